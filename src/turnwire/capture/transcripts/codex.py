"""Codex's rollouts (`~/.codex/sessions/**/rollout-*.jsonl`) as captured turns.

Promise: each response of the model is one turn of the Responses API, with the items that came before it as its input;
a compaction puts its own history in their place. Unknown lines are passed over.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from turnwire.capture.format import CapturedTurn, ParsedBlock
from turnwire.capture.transcripts.draft import Draft, Usage, moment
from turnwire.unreadable import UNREADABLE

__all__ = ["SOURCE", "codex_turns"]

SOURCE = "codex"
_ANSWERED = frozenset({"function_call", "custom_tool_call", "local_shell_call", "reasoning"})
# What Codex notes beside an item, for itself.
_OWN = frozenset({"internal_chat_message_metadata_passthrough", "metadata"})


def codex_turns(lines: Iterable[dict[str, Any]]) -> list[CapturedTurn]:
    """The turns of a rollout's lines, in order."""
    rollout = _Rollout()
    for line in lines:
        payload = line.get("payload")
        if isinstance(payload, dict):
            rollout.add(str(line.get("type")), payload, moment(line.get("timestamp")))
    return rollout.turns()


class _Rollout:
    def __init__(self) -> None:
        self._session: str | None = None
        self._parent: str | None = None
        self._client = "codex"
        self._model = "unknown"
        self._instructions = ""
        self._items: list[dict[str, Any]] = []
        self._asked = 0.0
        self._drafts: list[Draft] = []
        self._open = False
        self._answers = 0

    def add(self, kind: str, payload: dict[str, Any], at: float) -> None:
        """The next line."""
        if kind == "session_meta":
            self._meta(payload)
        elif kind == "turn_context":
            self._model = str(payload.get("model", self._model))
        elif kind == "response_item":
            self._item(payload, at)
        elif kind == "compacted":
            kept = payload.get("replacement_history")
            told = {"type": "message", "role": "user", "content": str(payload.get("message", ""))}
            self._items = [item for item in kept if isinstance(item, dict)] if isinstance(kept, list) else [told]
            self._open = False
        elif kind == "token_usage_record":
            self._used(payload.get("usage"))
        elif kind == "event_msg" and payload.get("type") == "token_count" and isinstance(payload.get("info"), dict):
            self._used(payload["info"].get("last_token_usage"))

    def _meta(self, payload: dict[str, Any]) -> None:
        self._session = str(payload.get("id") or payload.get("session_id"))
        name = str(payload.get("originator", "codex"))
        self._client = f"{name}/{payload.get('cli_version', 'unknown')}"
        if isinstance(told := payload.get("base_instructions"), dict):
            self._instructions = str(told.get("text", ""))
        source = payload.get("source")
        spawned = source.get("subagent") if isinstance(source, dict) else None
        began = spawned.get("thread_spawn") if isinstance(spawned, dict) else None
        if isinstance(began, dict) and isinstance(parent := began.get("parent_thread_id"), str):
            self._parent = parent

    def _item(self, payload: dict[str, Any], at: float) -> None:
        item = {name: value for name, value in payload.items() if name not in _OWN and value is not None}
        if item.get("type") in _ANSWERED or item.get("role") == "assistant":
            if not self._open:
                self._begin()
            for block in _blocks(item):
                self._drafts[-1].add(at, block, str(item.get("call_id")))
        else:
            self._open = False
            self._asked = at
        self._items.append(item)

    def _begin(self) -> None:
        body = {"model": self._model, "instructions": self._instructions, "input": list(self._items), "stream": True}
        name = f"{self._session}-{len(self._drafts)}"
        draft = Draft(name, "responses", self._model, at=self._asked, body=body, source=SOURCE)
        draft.place = len(self._drafts)
        self._drafts.append(draft)
        self._open = True

    def _used(self, told: object) -> None:
        """Counts come after the response that they are of; some versions tell them twice."""
        if not isinstance(told, dict) or not self._drafts or self._drafts[-1].usage is not None:
            return
        counts = {name: value for name, value in told.items() if isinstance(value, int)}
        self._drafts[-1].usage = Usage(
            prompt=counts.get("input_tokens", 0),
            cached=counts.get("cached_input_tokens", 0),
            output=counts.get("output_tokens", 0),
            reasoning=counts.get("reasoning_output_tokens", 0),
        )

    def turns(self) -> list[CapturedTurn]:
        return [
            draft.turn(session=self._session, parent=self._parent, agent=None, client=self._client)
            for draft in self._drafts
        ]


def _blocks(item: dict[str, Any]) -> list[ParsedBlock]:
    kind = item.get("type")
    if kind == "reasoning":
        parts = [*(item.get("summary") or ()), *(item.get("content") or ())]
        return [ParsedBlock(kind="reasoning", text=_joined(parts))]
    if kind == "message":
        return [ParsedBlock(kind="text", text=_joined(item.get("content")))]
    if kind == "function_call":
        return [ParsedBlock(kind="tool_call", name=str(item.get("name")), arguments=_arguments(item.get("arguments")))]
    if kind == "custom_tool_call":
        return [ParsedBlock(kind="tool_call", name=str(item.get("name")), arguments=item.get("input"))]
    return [ParsedBlock(kind="tool_call", name="local_shell", arguments=item.get("action"))]


def _joined(parts: object) -> str:
    listed = parts if isinstance(parts, list) else []
    return "\n\n".join(str(part["text"]) for part in listed if isinstance(part, dict) and "text" in part)


def _arguments(text: object) -> Any:
    try:
        return msgspec.json.decode(str(text))
    except UNREADABLE:
        return text
