"""Anthropic's Messages from a client's side.

Promise: whatever a server sends becomes a turn with its problems; nothing raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from turnwire.conformance.apis.interface import Ask
from turnwire.conformance.exchange import Exchange, Frame
from turnwire.conformance.turn import Block, BlockKind, Counts, Message, Result, Stop, Turn, User
from turnwire.conformance.values import at, items, mapping, number, parsed, string
from turnwire.conformance.words import ApiName, clipped

__all__ = ["Messages"]

_STOPS: dict[str, Stop] = {"end_turn": "end", "tool_use": "calls", "max_tokens": "limit"}
_KINDS: dict[str, BlockKind] = {
    "thinking": "thinking",
    "text": "text",
    "tool_use": "call",
    "redacted_thinking": "sealed",
}
_BUDGET = 1024  # the least that the API takes, and it must be below the limit
# Each delta with the kind of block that it belongs to and the field that has its text.
_DELTAS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("thinking", "signature"),
    "input_json_delta": ("call", "partial_json"),
}


class Messages:
    """`POST /v1/messages`."""

    name: ApiName = "messages"
    path = "/v1/messages"
    counting: tuple[str, str] | None = ("/v1/messages/count_tokens", "input_tokens")
    overflow: Sequence[str] = ("prompt is too long", "too long")

    def body(self, ask: Ask) -> dict[str, Any]:
        made: dict[str, Any] = {"model": ask.model, "max_tokens": ask.most, "messages": _messages(ask)}
        if ask.system:
            made["system"] = [{"type": "text", "text": part} for part in ask.system]
        if ask.tools:
            made["tools"] = [{"name": t.name, "description": t.about, "input_schema": t.schema} for t in ask.tools]
        if ask.forced:
            made["tool_choice"] = {"type": "any"}
        elif ask.most > _BUDGET:
            made["thinking"] = {"type": "enabled", "budget_tokens": _BUDGET}
        if ask.stream:
            made["stream"] = True
        return made

    def read(self, exchange: Exchange) -> Turn:
        return _Stream(exchange).turn if exchange.streamed else _document(exchange)

    def error(self, document: object) -> str | None:
        if string(document, "type") != "error" or not string(document, "error", "type"):
            return None
        return string(document, "error", "message")


def _messages(ask: Ask) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for message in ask.messages:
        role, content = _content(message, ask.thoughts)
        if made and made[-1]["role"] == role:
            made[-1]["content"] += content
        else:
            made.append({"role": role, "content": content})
    return made


def _content(message: Message, thoughts: bool) -> tuple[str, list[dict[str, Any]]]:
    if isinstance(message, User):
        return "user", [{"type": "text", "text": message.text}]
    if isinstance(message, Result):
        result = {"type": "tool_result", "tool_use_id": message.call, "content": message.text}
        return "user", [result | ({"is_error": True} if message.failed else {})]
    return "assistant", [_block(block) for block in message.blocks if thoughts or block.kind != "thinking"]


def _block(block: Block) -> dict[str, Any]:
    if block.kind == "thinking":
        return {"type": "thinking", "thinking": block.text, "signature": block.signature}
    if block.kind == "text":
        return {"type": "text", "text": block.text}
    if block.kind == "sealed":
        return {"type": "redacted_thinking", "data": block.signature}
    arguments = block.arguments
    return {
        "type": "tool_use",
        "id": block.id,
        "name": block.name,
        "input": arguments if isinstance(arguments, dict) else {},
    }


class _Stream:
    """One pass over the events of a stream."""

    def __init__(self, exchange: Exchange) -> None:
        self.turn = Turn(blocks=[], problems=[])
        self._open: dict[int, Block | None] = {}
        self._begun = 0
        self._events: dict[str, int] = {}
        self._last = ""
        for frame in exchange.frames:
            self._take(frame)
        self._close(exchange)

    def _take(self, frame: Frame) -> None:
        turn, event = self.turn, parsed(frame.data)
        kind = string(event, "type")
        if kind is None:
            turn.problem("fields", f"an event without a type: {clipped(frame.data, 80)}")
            return
        if frame.name != kind:
            turn.problem("fields", f"the event line says {clipped(frame.name, 40)}, the data {clipped(kind, 40)}")
        if self._events.get("message_stop"):
            turn.problem("order", f"{clipped(kind, 40)} after message_stop")
        if not self._events.get("message_start") and kind not in ("message_start", "ping", "error"):
            turn.problem("order", f"{clipped(kind, 40)} before message_start")
        self._events[kind] = self._events.get(kind, 0) + 1
        if kind == "error":
            turn.error = clipped(string(event, "error", "message") or frame.data)
        elif kind == "message_start":
            self._start(mapping(event, "message"))
        elif kind == "message_delta":
            self._end(event, frame.at)
        elif kind.startswith("content_block_"):
            place = number(event, "index")
            if place is None:
                turn.problem("fields", f"{kind} without an index")
                return
            step = {"start": self._begin, "delta": self._more, "stop": self._stop}.get(
                kind.removeprefix("content_block_")
            )
            if step is not None:
                step(place, event, frame.at)

    def _start(self, message: dict[str, object]) -> None:
        turn = self.turn
        turn.id = string(message, "id") or ""
        wanted = {"type": "message", "role": "assistant", "content": []}
        wrong = [name for name, value in wanted.items() if message.get(name) != value]
        wrong += [name for name in ("id", "model") if not string(message, name)]
        if number(message, "usage", "input_tokens") is None:
            wrong.append("usage.input_tokens")
        if wrong:
            turn.problem("fields", f"message_start without a proper {', '.join(wrong)}")
        turn.counts = _counts(message.get("usage"))

    def _begin(self, place: int, event: object, now: float) -> None:
        turn = self.turn
        if place != self._begun:
            turn.problem("order", f"block {place} began where {self._begun} was next")
        if any(block is not None for block in self._open.values()):
            turn.problem("order", f"block {place} began while another was open")
        if self._events.get("message_delta"):
            turn.problem("order", "a block after message_delta")
        self._begun += 1
        content = mapping(event, "content_block")
        kind = _KINDS.get(string(content, "type") or "")
        if kind is None:
            turn.problem("fields", f"a block of the type {clipped(content.get('type'), 40)}")
            return
        block = Block(kind, now, pieces=[], name=string(content, "name") or "", id=string(content, "id") or "")
        if kind == "call" and (not block.name or not block.id):
            turn.problem("fields", "a tool_use block without id or name")
        block.add(string(content, "text") or string(content, "thinking") or "", now)
        if kind == "call" and mapping(content, "input"):
            turn.problem("fields", "tool input at the start of its block, where clients do not read it")
        block.signature = string(content, "data") or ""
        turn.blocks.append(block)
        self._open[place] = block

    def _more(self, place: int, event: object, now: float) -> None:
        block = self._open.get(place)
        if block is None:
            self.turn.problem("order", f"a delta of block {place}, which is not open")
            return
        named = _DELTAS.get(string(event, "delta", "type") or "")
        text = string(event, "delta", named[1]) if named else None
        if named is None or named[0] != block.kind or text is None:
            kind = clipped(at(event, "delta", "type"), 40)
            self.turn.problem("fields", f"{kind} in a block of the kind {block.kind}")
        elif named[1] == "signature":
            block.signature += text[:65536]
        else:
            block.add(text, now)

    def _stop(self, place: int, event: object, now: float) -> None:
        block = self._open.get(place)
        if block is None:
            self.turn.problem("order", f"a stop of block {place}, which is not open")
            return
        block.complete = now
        self._open[place] = None

    def _end(self, event: object, now: float) -> None:
        turn = self.turn
        if any(block is not None for block in self._open.values()):
            turn.problem("order", "message_delta while a block is open")
        reason = string(event, "delta", "stop_reason")
        if reason is None:
            turn.problem("finish", "message_delta without a stop_reason")
        turn.stop_text, turn.stop, turn.ended = reason or "", _STOPS.get(reason or "", "other"), now
        late = _counts(at(event, "usage"))
        early = turn.counts
        turn.counts = Counts(
            early.prompt if late.prompt is None else late.prompt,
            late.output,
            early.cached if late.cached is None else late.cached,
        )

    def _close(self, exchange: Exchange) -> None:
        turn = self.turn
        turn.ended = turn.ended or exchange.ended
        if turn.error is not None or exchange.fault is not None:
            return
        for kind in ("message_start", "message_delta", "message_stop"):
            if self._events.get(kind, 0) != 1:
                turn.problem("finish", f"{self._events.get(kind, 0)} {kind} events in one answer")


def _document(exchange: Exchange) -> Turn:
    turn = Turn(blocks=[], problems=[], ended=exchange.ended)
    document, now = exchange.document, exchange.ended
    if exchange.status >= 300 or not isinstance(document, dict):
        turn.error = clipped(exchange.body.decode("utf-8", "replace"))
        return turn
    for field, wanted in (("type", "message"), ("role", "assistant")):
        if document.get(field) != wanted:
            turn.problem("fields", f"{field} is not {wanted!r}")
    if not string(document, "id") or not string(document, "model") or not isinstance(document.get("content"), list):
        turn.problem("fields", "a document without id, model or content")
    turn.id = string(document, "id") or ""
    for content in items(document, "content"):
        kind = _KINDS.get(string(content, "type") or "")
        if kind is None:
            turn.problem("fields", f"a block of the type {clipped(at(content, 'type'), 40)}")
            continue
        text = string(content, kind if kind != "call" else "") or ""
        block = Block(kind, now, pieces=[text] if text else [], complete=now)
        if kind == "call":
            block.name, block.id = string(content, "name") or "", string(content, "id") or ""
            block.pieces = [_written(at(content, "input"))]
            if not block.name or not block.id:
                turn.problem("fields", "a tool_use block without id or name")
        block.signature = string(content, "signature") or string(content, "data") or ""
        turn.blocks.append(block)
    reason = string(document, "stop_reason")
    if reason is None:
        turn.problem("finish", "a document without a stop_reason")
    turn.stop_text, turn.stop = reason or "", _STOPS.get(reason or "", "other")
    turn.counts = _counts(document.get("usage"))
    return turn


def _written(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _counts(usage: object) -> Counts:
    """The prompt's count is of all of it: this API states what was cached apart."""
    fresh, cached = number(usage, "input_tokens"), number(usage, "cache_read_input_tokens")
    written = number(usage, "cache_creation_input_tokens") or 0
    whole = None if fresh is None else fresh + (cached or 0) + written
    return Counts(whole, number(usage, "output_tokens"), cached)
