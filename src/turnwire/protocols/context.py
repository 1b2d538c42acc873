"""Who asks, and how urgently: the TurnContext read from request headers and metadata, for every API.

Promise: a table of headers, total over any input, bounded in length, never raises. Nothing read here reaches a prompt.
The order of precedence is the order of the tables: canonical headers win over a harness's own, headers over metadata.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from turnwire.turns import Message, OutputFormat, Tool, TurnContext
from turnwire.unreadable import UNREADABLE

__all__ = ["PRIORITY_SPAN", "AgentHints", "dispatch_opt_in", "key_rank", "side_class", "turn_context"]

SESSION_HEADERS = (
    "x-dynamo-session-id",
    "x-claude-code-session-id",
    "session-id",
    "session_id",
    "x-session-id",
    "x-session-affinity",
)
PARENT_HEADERS = (
    "x-dynamo-parent-session-id",
    "x-claude-code-parent-agent-id",
    "x-codex-parent-thread-id",
    "x-parent-session-id",
)
AGENT_HEADERS = ("x-claude-code-agent-id", "thread-id")
LAST_RESORT_SESSION_HEADERS = ("thread-id", "x-client-request-id")

WORKER_HEADERS = ("x-dynamo-worker-instance-id", "x-worker-instance-id")

_HEADERS = tuple(
    dict.fromkeys(
        (
            *SESSION_HEADERS,
            *PARENT_HEADERS,
            *AGENT_HEADERS,
            *LAST_RESORT_SESSION_HEADERS,
            *WORKER_HEADERS,
            "traceparent",
            "user-agent",
            "x-claude-1p-request-class",
            "x-claude-code-request-class",
            "x-codex-turn-metadata",
            "x-codex-window-id",
            "x-dynamo-request-priority",
            "x-dynamo-request-strict-priority",
            "x-dynamo-session-final",
            "x-openai-subagent",
            "x-tenant-id",
            "x-turnwire-deadline",
        )
    )
)
"""Every header that is read here."""

_MOST_CONTEXTS = 256

TURN_CLASSES: Mapping[str, str] = {
    "main": "main",
    "side_reply": "main",
    "subagent": "subagent",
    "blocking-subagent": "subagent",
    "collab_spawn": "subagent",
    "review": "subagent",
    "workflow": "workflow",
    "compaction": "compaction",
    "compact": "compaction",
    "summary-extraction": "auxiliary",
    "followup-generation": "auxiliary",
    "auxiliary": "auxiliary",
    "memory": "background",
    "prewarm": "background",
    "background-task": "background",
    "turn": "main",
    "title": "title",
}
"""What harnesses call a kind of request, and what it is to us. An unknown word is not a class."""

CLASS_PRIORITY: Mapping[str, int] = {"auxiliary": -1, "title": -1, "background": -2}
"""Nobody waits in front of these; all other classes are 0."""

PRIORITY_BOUND = 100
PRIORITY_SPAN = 2 * PRIORITY_BOUND + 1
"""How many priorities a request can give itself; its key's priority counts in steps of as many."""


CALM, USUAL, URGENT = 0.25, 0.7, 1.0
"""What waiting weighs against reading a prompt again: where nobody waits, by default, and where the client says so."""

TIER_BOUND = 1_000_000
OUTPUT_BOUND = 10_000_000
PATIENCE_BOUND = 86_400.0


class AgentHints(msgspec.Struct, frozen=True, kw_only=True):
    """What the body of a request says about its place: Dynamo's `agent_hints`, and the worker that it names."""

    priority: int | None = None
    tier: int | None = None
    expected_output: int | None = None
    latency_sensitivity: float | None = None
    read_ahead: bool = False
    worker: int | None = None


NO_HINTS = AgentHints()


def turn_context(
    headers: Mapping[str, str],
    *,
    session: str | None = None,
    window: str | None = None,
    turn_class: str | None = None,
    hints: AgentHints = NO_HINTS,
    cache_salt: str | None = None,
    limit: int = 512,
) -> TurnContext:
    """The context of a request. Header names are lower case. The keyword values are what the body says (metadata,
    `prompt_cache_key`, hints): each is used where no header says it."""
    return _context(tuple(map(headers.get, _HEADERS)), session, window, turn_class, hints, cache_salt, limit)


@lru_cache(_MOST_CONTEXTS)
def _context(
    values: tuple[str | None, ...],
    session: str | None,
    window: str | None,
    turn_class: str | None,
    hints: AgentHints,
    cache_salt: str | None,
    limit: int,
) -> TurnContext:
    """The same by the values of the headers: those of one conversation say the same with every request."""
    headers = {name: value for name, value in zip(_HEADERS, values, strict=True) if value is not None}

    def first(names: tuple[str, ...]) -> str | None:
        for name in names:
            value = headers.get(name)
            if value:
                return value[:limit]
        return None

    metadata = _codex_metadata(headers.get("x-codex-turn-metadata", ""))
    agent = first(AGENT_HEADERS)
    found = first(SESSION_HEADERS) or session or first(LAST_RESORT_SESSION_HEADERS) or _trace(headers)
    if agent == found:
        agent = None
    parent = first(PARENT_HEADERS)
    if parent is None and agent is not None and headers.get("x-claude-code-agent-id"):
        parent = found
    kind = _turn_class(headers, metadata) or turn_class or ("subagent" if parent else "main")
    return TurnContext(
        session=found[:limit] if found else None,
        parent=parent,
        agent=agent,
        window=(first(("x-codex-window-id",)) or window or "")[:limit] or None,
        turn_class=kind,
        priority=_priority(headers, hints, kind),
        tier=_tier(headers, hints),
        urgency=_urgency(hints, kind),
        expected_output=hints.expected_output,
        read_ahead=hints.read_ahead,
        patience=_patience(headers.get("x-turnwire-deadline", "")),
        final=headers.get("x-dynamo-session-final", "").strip().lower() in ("1", "true", "yes"),
        client=headers.get("user-agent", "").split(" ", 1)[0][:limit] or None,
        cache_salt=headers.get("x-tenant-id", "")[:limit] or cache_salt,
        worker=_worker(first(WORKER_HEADERS) or "", hints),
    )


def _worker(stated: str, hints: AgentHints) -> int | None:
    """The number of the worker that a request names, by header or in its body."""
    return int(stated) if stated.isascii() and stated.isdigit() and len(stated) <= 20 else hints.worker


def side_class(messages: Sequence[Message], tools: Sequence[Tool], output: OutputFormat | None) -> str | None:
    """The class of a request that a harness sends beside the conversation under the same session, recognised by its
    shape: a first exchange without tools that asks for a title. None for anything else."""
    if tools or any(message.role == "assistant" for message in messages):
        return None
    if output is not None and output.schema is not None and list(output.schema.get("properties") or ()) == ["title"]:
        return "title"
    first = messages[0] if messages else None
    if first is not None and first.role in ("system", "developer") and "title generator" in first.text[:200].lower():
        return "title"
    return None


def dispatch_opt_in(headers: Mapping[str, str]) -> bool | None:
    """The request's own setting of `tool_call_dispatch` events; None where it says nothing."""
    value = headers.get("x-turnwire-dispatch", "").strip().lower()
    if not value:
        return None
    return value in ("1", "true", "yes", "on")


def _turn_class(headers: Mapping[str, str], metadata: Mapping[str, Any]) -> str | None:
    for word in (
        headers.get("x-claude-code-request-class"),
        headers.get("x-claude-1p-request-class"),
        headers.get("x-openai-subagent"),
        metadata.get("request_kind"),
    ):
        if isinstance(word, str):
            known = TURN_CLASSES.get(word.strip().lower())
            if known is not None and not (known == "main" and metadata.get("thread_source") == "subagent"):
                return known
    if headers.get("x-openai-subagent") or headers.get("x-claude-code-agent-id"):
        return "subagent"
    return "subagent" if metadata.get("thread_source") == "subagent" else None


def _priority(headers: Mapping[str, str], hints: AgentHints, turn_class: str) -> int:
    stated = _integer(headers.get("x-dynamo-request-priority"))
    if stated is None:
        stated = hints.priority
    if stated is None and hints.latency_sensitivity is not None:
        stated = int(hints.latency_sensitivity)
    return CLASS_PRIORITY.get(turn_class, 0) if stated is None else _bounded(stated)


def _tier(headers: Mapping[str, str], hints: AgentHints) -> int:
    stated = _integer(headers.get("x-dynamo-request-strict-priority"))
    tier = stated if stated is not None else hints.tier
    return 0 if tier is None else max(0, min(TIER_BOUND, tier))


def _urgency(hints: AgentHints, turn_class: str) -> float:
    if hints.latency_sensitivity is not None:
        return URGENT if hints.latency_sensitivity > 0 else CALM
    return CALM if turn_class in CLASS_PRIORITY else USUAL


def _patience(value: str) -> float | None:
    """Seconds, where a number of them is given."""
    try:
        seconds = float(value[:32])
    except ValueError:
        return None
    return min(seconds, PATIENCE_BOUND) if seconds > 0 else None


def _bounded(value: int) -> int:
    return max(-PRIORITY_BOUND, min(PRIORITY_BOUND, value))


def _integer(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str) and len(value) < 12:
        try:
            return int(value)
        except ValueError:
            return None
    return None


def _trace(headers: Mapping[str, str]) -> str | None:
    """The trace id of a `traceparent`: one per run in harnesses that name no conversation."""
    fields = headers.get("traceparent", "").split("-")
    return f"trace-{fields[1]}" if len(fields) == 4 and len(fields[1]) == 32 else None


def _codex_metadata(text: str) -> Mapping[str, Any]:
    if not text or len(text) > 16_384:
        return {}
    try:
        value = msgspec.json.decode(text)
    except UNREADABLE:
        return {}
    return value if isinstance(value, dict) else {}


def key_rank(priority: int) -> int:
    """The part of a priority that the key gave, without what the request says of itself."""
    return (priority + PRIORITY_BOUND) // PRIORITY_SPAN
