"""OpenAI's Responses from a client's side.

Promise: whatever a server sends becomes a turn with its problems; nothing raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnwire.conformance.apis.interface import Ask
from turnwire.conformance.exchange import Exchange, Frame
from turnwire.conformance.turn import Block, BlockKind, Counts, Result, Turn, User
from turnwire.conformance.values import at, items, mapping, number, parsed, string
from turnwire.conformance.words import ApiName, clipped

__all__ = ["Responses"]

_KINDS: dict[str, BlockKind] = {"reasoning": "thinking", "message": "text", "function_call": "call"}
_ENDS = ("response.completed", "response.incomplete", "response.failed")
# The events that carry text, with the kind of item they belong to.
_DELTAS: dict[str, BlockKind] = {
    "response.output_text.delta": "text",
    "response.reasoning_text.delta": "thinking",
    "response.reasoning_summary_text.delta": "thinking",
    "response.function_call_arguments.delta": "call",
}
# The events that state a whole, with the field that has it.
_WHOLES: dict[str, str] = {
    "response.output_text.done": "text",
    "response.reasoning_text.done": "text",
    "response.reasoning_summary_text.done": "text",
    "response.function_call_arguments.done": "arguments",
}


class Responses:
    """`POST /v1/responses`."""

    name: ApiName = "responses"
    path = "/v1/responses"
    counting: tuple[str, str] | None = ("/v1/responses/input_tokens", "input_tokens")
    overflow: Sequence[str] = (
        "context_length_exceeded",
        "maximum context length",
        "context window",
        "context length",
        "exceeds the",
    )

    def body(self, ask: Ask) -> dict[str, Any]:
        sent: list[dict[str, Any]] = []
        for message in ask.messages:
            if isinstance(message, User):
                content = [{"type": "input_text", "text": message.text}]
                sent.append({"type": "message", "role": "user", "content": content})
            elif isinstance(message, Result):
                sent.append({"type": "function_call_output", "call_id": message.call, "output": message.text})
            else:
                sent += [item for item in message.raw if ask.thoughts or item.get("type") != "reasoning"]
        made: dict[str, Any] = {"model": ask.model, "input": sent, "max_output_tokens": ask.most, "store": ask.store}
        if not ask.store:
            made["include"] = ["reasoning.encrypted_content"]
        # As Codex asks for thoughts; some servers give none without it.
        made["reasoning"] = {"effort": "medium", "summary": "auto"}
        if ask.system:
            made["instructions"] = "\n\n".join(ask.system)
        if ask.tools:
            made["tools"] = [
                {"type": "function", "name": t.name, "description": t.about, "parameters": t.schema, "strict": False}
                for t in ask.tools
            ]
        if ask.forced:
            made["tool_choice"] = "required"
        if ask.previous is not None:
            made["previous_response_id"] = ask.previous
        if ask.stream:
            made["stream"] = True
        return made

    def read(self, exchange: Exchange) -> Turn:
        if exchange.streamed:
            return _Stream(exchange).turn
        turn = Turn(blocks=[], problems=[], ended=exchange.ended)
        document = exchange.document
        if exchange.status >= 300 or not isinstance(document, dict):
            turn.error = clipped(exchange.body.decode("utf-8", "replace"))
            return turn
        _finish(turn, document)
        turn.raw = [item for item in items(document, "output") if isinstance(item, dict)]
        turn.blocks = [block for block in (_block(item, exchange.ended) for item in turn.raw) if block is not None]
        return turn

    def error(self, document: object) -> str | None:
        return string(document, "error", "message")


class _Stream:
    """One pass over the events of a stream."""

    def __init__(self, exchange: Exchange) -> None:
        self.turn = Turn(blocks=[], problems=[], raw=[])
        self._items: dict[int, Block] = {}
        self._open: set[int] = set()
        self._begun = 0
        self._wholes: dict[int, list[str]] = {}
        self._ends = 0
        self._number = -1
        self._created = False
        for frame in exchange.frames:
            self._take(frame)
        self._close(exchange)

    def _take(self, frame: Frame) -> None:
        turn = self.turn
        if frame.data.strip() == "[DONE]":
            return  # servers differ, clients skip it
        event = parsed(frame.data)
        kind = string(event, "type")
        if not isinstance(event, dict) or kind is None:
            turn.problem("fields", f"an event without a type: {clipped(frame.data, 80)}")
            return
        if frame.name is not None and frame.name != kind:
            turn.problem("fields", f"the event line says {clipped(frame.name, 40)}, the data {clipped(kind, 40)}")
        if not kind.startswith("response."):
            if kind == "error":
                turn.error = clipped(string(event, "message") or string(event, "error", "message") or frame.data)
            elif (place := number(event, "sequence_number")) is not None:
                self._count(place)  # an event that a client opted into
            return
        self._count(number(event, "sequence_number"))
        if self._ends:
            turn.problem("order", f"{clipped(kind, 60)} after the end")
        if kind != "response.created" and not self._created:
            turn.problem("order", f"{clipped(kind, 60)} before response.created")
        if kind == "response.created":
            self._created = True
            if not string(event, "response", "id"):
                turn.problem("fields", "response.created without response.id")
        elif kind in _ENDS:
            self._ends += 1
            self._end(event, frame.at)
        else:
            self._item_event(kind, event, frame.at)

    def _count(self, place: int | None) -> None:
        if place is None:
            self.turn.problem("fields", "an event without sequence_number")
        else:
            if place != self._number + 1:
                self.turn.problem("order", f"sequence_number {place} after {self._number}")
            self._number = place

    def _item_event(self, kind: str, event: dict[str, object], now: float) -> None:
        turn, place = self.turn, number(event, "output_index")
        if kind in ("response.in_progress", "response.queued"):
            return
        if place is None:
            turn.problem("fields", f"{clipped(kind, 60)} without output_index")
            # Read on as clients do that take the item which is open.
            place = self._begun if kind == "response.output_item.added" else self._begun - 1
        if kind == "response.output_item.added":
            self._add(place, mapping(event, "item"), now)
            return
        block = self._items.get(place)
        if place not in self._open:
            turn.problem("order", f"{clipped(kind, 60)} for item {place}, which is not open")
            return
        if kind == "response.output_item.done":
            self._open.discard(place)
            turn.raw.append(mapping(event, "item"))
            if block is not None:
                self._item_done(block, mapping(event, "item"), now)
        elif block is not None and kind in _DELTAS:
            text = string(event, "delta")
            if text is None or _DELTAS[kind] != block.kind:
                turn.problem("fields", f"{kind} without a delta, or in a {block.kind}")
            else:
                block.add(text, now)
                block.field = kind
        elif block is not None and kind in _WHOLES:
            whole = string(event, _WHOLES[kind])
            if whole is None:
                turn.problem("fields", f"{kind} without {_WHOLES[kind]}")
            else:
                self._wholes.setdefault(place, []).append(whole)
                if "".join(self._wholes[place]) != block.text:
                    turn.problem("agree", f"{kind} is not the sum of its deltas")

    def _add(self, place: int, item: dict[str, object], now: float) -> None:
        turn = self.turn
        if place != self._begun:
            turn.problem("order", f"item {place} began where {self._begun} was next")
        self._begun += 1
        self._open.add(place)
        kind = _KINDS.get(string(item, "type") or "")
        if kind is None:
            return
        block = Block(kind, now, pieces=[], name=string(item, "name") or "", id=string(item, "call_id") or "")
        if not string(item, "id") or (kind == "call" and (not block.name or not block.id)):
            turn.problem("fields", "an item without id, or a call without call_id or name")
        self._items[place] = block
        turn.blocks.append(block)

    def _item_done(self, block: Block, item: dict[str, object], now: float) -> None:
        block.complete = now
        whole = _block(item, now)
        if whole is None or whole.kind != block.kind:
            self.turn.problem("agree", "output_item.done has another type than output_item.added")
        elif whole.text != block.text:
            if block.deltas:
                self.turn.problem("agree", f"output_item.done of a {block.kind} is not the sum of its deltas")
            block.add(whole.text, now)

    def _end(self, event: dict[str, object], now: float) -> None:
        turn, document = self.turn, mapping(event, "response")
        _finish(turn, document)
        turn.ended = now
        if string(event, "type") == "response.failed":
            # What failed may fail in the middle of an item.
            turn.error = clipped(string(document, "error", "message") or "response.failed")
            return
        if self._open:
            turn.problem("order", "the end came while an item was open")
        stated = [block for item in items(document, "output") if (block := _block(item, now)) is not None]
        said = [(block.kind, block.text) for block in turn.blocks]
        if said != [(block.kind, block.text) for block in stated]:
            turn.problem("agree", "the output of the last event is not what was streamed")

    def _close(self, exchange: Exchange) -> None:
        turn = self.turn
        turn.ended = turn.ended or exchange.ended
        if turn.error is None and exchange.fault is None and self._ends != 1:
            turn.problem("finish", f"{self._ends} events that end the response")


def _finish(turn: Turn, document: dict[str, object]) -> None:
    """What a response object says of itself."""
    turn.id = string(document, "id") or ""
    if not turn.id or document.get("object") != "response" or not isinstance(document.get("output"), list):
        turn.problem("fields", "a response without id, object or output")
    status = string(document, "status") or ""
    calls = any(string(item, "type") == "function_call" for item in items(document, "output"))
    turn.stop_text = status
    if status == "completed":
        turn.stop = "calls" if calls else "end"
    elif status == "incomplete":
        reason = string(document, "incomplete_details", "reason")
        turn.stop, turn.stop_text = ("limit" if reason == "max_output_tokens" else "other"), f"incomplete: {reason}"
    else:
        turn.stop = "other"
    usage = document.get("usage")
    turn.counts = Counts(
        number(usage, "input_tokens"),
        number(usage, "output_tokens"),
        number(usage, "input_tokens_details", "cached_tokens"),
        number(usage, "total_tokens"),
    )


def _block(item: object, now: float) -> Block | None:
    """An output item as a block; None for kinds that no rule looks at."""
    kind = _KINDS.get(string(item, "type") or "")
    if kind is None:
        return None
    if kind == "call":
        text = string(item, "arguments") or ""
        name, made = string(item, "name") or "", string(item, "call_id") or ""
        return Block(kind, now, pieces=[text] if text else [], name=name, id=made, complete=now)
    parts = items(item, "content") or items(item, "summary")
    text = "".join(string(part, "text") or "" for part in parts)
    signed = string(item, "encrypted_content") or ""
    return Block(kind, now, pieces=[text] if text else [], complete=now, signature=signed, id=str(at(item, "id")))
