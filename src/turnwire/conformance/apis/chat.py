"""Chat Completions from a client's side.

Promise: whatever a server sends becomes a turn with its problems; nothing raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnwire.conformance.apis.arguments import ArgumentsEnd
from turnwire.conformance.apis.interface import Ask
from turnwire.conformance.exchange import Exchange, Frame
from turnwire.conformance.turn import Block, Counts, Result, Stop, Turn, User
from turnwire.conformance.values import at, items, mapping, number, parsed, string
from turnwire.conformance.words import ApiName, clipped

__all__ = ["Chat"]

_STOPS: dict[str, Stop] = {"stop": "end", "tool_calls": "calls", "length": "limit"}
# The API has no field for thoughts; these are the two that servers and clients agree on.
_THOUGHTS = ("reasoning_content", "reasoning")
_CHUNK = "chat.completion.chunk"


class Chat:
    """`POST /v1/chat/completions`."""

    name: ApiName = "chat"
    path = "/v1/chat/completions"
    counting: tuple[str, str] | None = None
    overflow: Sequence[str] = (
        "context_length_exceeded",
        "maximum context length",
        "context window",
        "context length",
        "exceeds the",
    )

    def body(self, ask: Ask) -> dict[str, Any]:
        messages: list[dict[str, Any]] = [{"role": "system", "content": "\n\n".join(ask.system)}] if ask.system else []
        messages += [_message(message, ask.thoughts) for message in ask.messages]
        made: dict[str, Any] = {"model": ask.model, "messages": messages, "max_tokens": ask.most, "temperature": 0}
        if ask.tools:
            made["tools"] = [
                {"type": "function", "function": {"name": t.name, "description": t.about, "parameters": t.schema}}
                for t in ask.tools
            ]
        if ask.forced:
            made["tool_choice"] = "required"
        if ask.stream:
            made |= {"stream": True, "stream_options": {"include_usage": True}}
        return made

    def read(self, exchange: Exchange) -> Turn:
        return _Stream(exchange).turn if exchange.streamed else _document(exchange)

    def error(self, document: object) -> str | None:
        return string(document, "error", "message")


def _message(message: User | Result | Turn, thoughts: bool) -> dict[str, Any]:
    if isinstance(message, User):
        return {"role": "user", "content": message.text}
    if isinstance(message, Result):
        return {"role": "tool", "tool_call_id": message.call, "content": message.text}
    made: dict[str, Any] = {"role": "assistant", "content": message.text() or None}
    thinking = message.of("thinking")
    if thinking and thoughts:
        made[thinking[0].field] = message.text("thinking")
    if calls := message.of("call"):
        made["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.text}}
            for call in calls
        ]
    return made


class _Stream:
    """One pass over the chunks of a stream."""

    def __init__(self, exchange: Exchange) -> None:
        self.turn = Turn(blocks=[], problems=[])
        self._calls: dict[int, Block] = {}
        self._ends: dict[int, ArgumentsEnd] = {}
        self._finishes = 0
        self._done = False
        self._told = False
        for frame in exchange.frames:
            self._take(frame)
        self._close(exchange)

    def _take(self, frame: Frame) -> None:
        if self._done:
            self.turn.problem("order", f"an event after [DONE]: {clipped(frame.data, 80)}")
        if frame.data.strip() == "[DONE]":
            self._done = True
            return
        if frame.name not in (None, "message", "error"):
            return  # an event that a client opted into, or that clients of this API skip
        chunk = parsed(frame.data)
        if not isinstance(chunk, dict):
            self.turn.problem("fields", f"an event that is not a JSON object: {clipped(frame.data, 80)}")
        elif chunk.get("error") is not None:
            self.turn.error = clipped(string(chunk, "error", "message") or chunk["error"])
        else:
            self._chunk(chunk, frame.at)

    def _chunk(self, chunk: dict[str, object], now: float) -> None:
        turn = self.turn
        if not isinstance(chunk.get("choices"), list):
            turn.problem("fields", "a chunk without choices")
        if chunk.get("object") != _CHUNK:
            turn.problem("fields", f"object is {clipped(chunk.get('object'), 40)}, not {_CHUNK!r}")
        name = string(chunk, "id")
        if not name or number(chunk, "created") is None or string(chunk, "model") is None:
            turn.problem("fields", "a chunk without id, created or model")
        elif turn.id and name != turn.id:
            turn.problem("fields", f"the id changes from {clipped(turn.id, 40)} to {clipped(name, 40)}")
        turn.id = turn.id or name or ""
        if isinstance(chunk.get("usage"), dict):
            turn.counts = _counts(chunk["usage"])
        for choice in items(chunk, "choices"):
            self._choice(choice, now)

    def _choice(self, choice: object, now: float) -> None:
        turn, delta = self.turn, mapping(choice, "delta")
        if number(choice, "index") is None:
            turn.problem("fields", "a choice without an index")
        said = False
        for field in _THOUGHTS:
            if text := string(delta, field):
                self._say("thinking", text, now, field)
                said = True
                break
        if text := string(delta, "content"):
            self._say("text", text, now)
            said = True
        for call in items(delta, "tool_calls"):
            self._call(call, now)
            said = True
        if said and self._finishes:
            turn.problem("order", "content after finish_reason")
        if said and not self._told and string(delta, "role") is None:
            turn.problem("order", "content before the role")
        self._told = self._told or string(delta, "role") is not None
        reason = at(choice, "finish_reason")
        if reason is not None:
            self._finishes += 1
            turn.stop_text = clipped(reason, 40)
            turn.stop = _STOPS.get(reason, "other") if isinstance(reason, str) else "other"
            turn.ended = now

    def _say(self, kind: Any, text: str, now: float, field: str = "") -> None:
        blocks = self.turn.blocks
        if not blocks or blocks[-1].kind != kind:
            blocks.append(Block(kind, now, pieces=[], field=field))
        blocks[-1].add(text, now)

    def _call(self, call: object, now: float) -> None:
        place = number(call, "index")
        if place is None:
            self.turn.problem("fields", "a tool call without an index")
            place = len(self._calls)
        block = self._calls.get(place)
        if block is None:
            name, made = string(call, "function", "name"), string(call, "id")
            if not name or not made:
                self.turn.problem("fields", "the first piece of a tool call has no id or no name")
            if place != len(self._calls):
                self.turn.problem("order", f"tool call {place} began where {len(self._calls)} was next")
            block = self._calls[place] = Block("call", now, pieces=[], name=name or "", id=made or "")
            self._ends[place] = ArgumentsEnd()
            self.turn.blocks.append(block)
        text = string(call, "function", "arguments") or ""
        block.add(text, now)
        if self._ends[place].feed(text):
            block.complete = now

    def _close(self, exchange: Exchange) -> None:
        turn = self.turn
        turn.ended = turn.ended or exchange.ended
        if turn.error is not None or exchange.fault is not None:
            return
        if self._finishes != 1:
            turn.problem("finish", f"{self._finishes} finish reasons in one answer")
        if not self._done:
            turn.problem("order", "no [DONE] at the end")


def _document(exchange: Exchange) -> Turn:
    turn = Turn(blocks=[], problems=[], ended=exchange.ended)
    document = exchange.document
    if exchange.status >= 300 or not isinstance(document, dict):
        turn.error = clipped(exchange.body.decode("utf-8", "replace"))
        return turn
    for field, kind in (("id", str), ("created", int), ("model", str), ("choices", list)):
        if not isinstance(document.get(field), kind):
            turn.problem("fields", f"a document without {field}")
    turn.id = string(document, "id") or ""
    message, now = mapping(document, "choices", 0, "message"), exchange.ended
    for field in _THOUGHTS:
        if text := string(message, field):
            turn.blocks.append(Block("thinking", now, pieces=[text], field=field))
            break
    if text := string(message, "content"):
        turn.blocks.append(Block("text", now, pieces=[text]))
    for call in items(message, "tool_calls"):
        name, made = string(call, "function", "name") or "", string(call, "id") or ""
        if not name or not made or string(call, "function", "arguments") is None:
            turn.problem("fields", "a tool call without id, name or arguments")
        arguments = string(call, "function", "arguments") or ""
        turn.blocks.append(Block("call", now, pieces=[arguments], name=name, id=made, complete=now))
    reason = string(document, "choices", 0, "finish_reason")
    if reason is None:
        turn.problem("finish", "a document without a finish reason")
    turn.stop_text, turn.stop = reason or "", _STOPS.get(reason or "", "other")
    turn.counts = _counts(document.get("usage"))
    return turn


def _counts(usage: object) -> Counts:
    return Counts(
        number(usage, "prompt_tokens"),
        number(usage, "completion_tokens"),
        number(usage, "prompt_tokens_details", "cached_tokens"),
        number(usage, "total_tokens"),
    )
