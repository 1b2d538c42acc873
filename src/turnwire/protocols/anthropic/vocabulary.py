"""The words of the Messages wire that more than one module needs: usage objects, stop reasons, the empty seal.

Promise: tables and pure functions over them.
"""

from __future__ import annotations

from collections.abc import Mapping

from turnwire.turns import FinishReason, Usage

__all__ = [
    "NO_SEAL",
    "UNPARSED_INPUT",
    "delta_usage_object",
    "hosted_usage",
    "message_id",
    "stop_reason",
    "turn_of",
    "usage_object",
]

NO_SEAL = "unsealed"
"""The signature of a thought that has no seal. Clients drop or rewrite thoughts whose signature is empty."""

UNPARSED_INPUT = "__unparsedToolInput"
"""The key under which argument text that is not JSON travels as a tool input."""

_STOP_REASONS: Mapping[FinishReason, str] = {
    "stop": "end_turn",
    "tool_calls": "end_turn",
    "length": "max_tokens",
    "stop_sequence": "stop_sequence",
    "content_filter": "refusal",
    "paused": "pause_turn",
}


def stop_reason(reason: FinishReason, calls: int) -> str | None:
    """The wire's stop reason; None where the turn did not end by itself. `tool_use` is said if and only if the turn
    ended normally and holds a call."""
    if calls and reason in ("stop", "tool_calls"):
        return "tool_use"
    return _STOP_REASONS.get(reason)


def message_id(turn_id: str) -> str:
    """The id of the answer's message."""
    return f"msg_{turn_id}"


def turn_of(message_id: str) -> str:
    """The turn that answered with a message."""
    return message_id.removeprefix("msg_")


def delta_usage_object(usage: Usage) -> dict[str, object]:
    """Token counts as the wire splits them: `input_tokens` are those that were not read from the cache. Every engine
    reads at least the last token of a prompt, so a prompt never counts 0, however much of it was foreseen as cached."""
    cached = min(usage.cached, max(0, usage.prompt - 1))
    return {
        "input_tokens": usage.prompt - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.output,
        "output_tokens_details": {"thinking_tokens": min(usage.reasoning, usage.output)},
    }


def hosted_usage(counts: Mapping[str, int]) -> dict[str, object]:
    """How often each hosted tool was run; nothing where none was."""
    told = {f"{kind}_requests": counts.get(kind, 0) for kind in ("web_search", "web_fetch")}
    return {"server_tool_use": told} if any(told.values()) else {}


def usage_object(usage: Usage) -> dict[str, object]:
    """The same in a message object, which has two fields more than a message_delta."""
    return {
        **delta_usage_object(usage),
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
        "service_tier": "standard",
    }
