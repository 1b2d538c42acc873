"""Output items while they grow: their events as prepared bytes, and the finished item.

Promise: an item opens with its `added` event, every piece of text is JSON-encoded exactly once, and `close` gives all
`done` events and the finished item from the same bytes. No event here carries its sequence number yet.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import msgspec

from turnwire.protocols.framing import json_line, quoted
from turnwire.protocols.responses.answer.custom_input import CustomInput
from turnwire.protocols.responses.tools import Origin
from turnwire.unreadable import UNREADABLE

__all__ = [
    "CustomCallItem",
    "FunctionCallItem",
    "ItemEvent",
    "MessageItem",
    "OutputItem",
    "ReasoningItem",
    "SearchCallItem",
    "carrier_item",
    "whole_item",
]

COMPLETED = b"completed"
IN_PROGRESS = b"in_progress"


ItemEvent: TypeAlias = tuple[str, bytes]
"""An event's name and its members as JSON, without its type, which is its name, and without its sequence number."""


class OutputItem(Protocol):
    """An open item. `delta_head` begins each of its deltas: the encoded text and the sequence number follow."""

    delta_head: ItemEvent

    @property
    def plain(self) -> bool:
        """Whether every text is a delta of its own, word for word."""
        ...

    def opening(self) -> list[ItemEvent]: ...

    def delta(self, text: str) -> bytes:
        """The encoded text of the next delta; empty when there is nothing to send yet."""
        ...

    def close(self, *, arguments: str = "", seal: str = "", status: bytes = COMPLETED) -> tuple[list[ItemEvent], bytes]:
        """The closing events and the finished item."""
        ...


def _place(item_id: str, index: int) -> bytes:
    return b'"item_id":"%b","output_index":%d' % (item_id.encode(), index)


def _added(index: int, item: bytes) -> ItemEvent:
    return ("response.output_item.added", b'"output_index":%d,"item":%b' % (index, item))


def _done(index: int, item: bytes) -> ItemEvent:
    return ("response.output_item.done", b'"output_index":%d,"item":%b' % (index, item))


class MessageItem:
    """An assistant message with one text part."""

    __slots__ = ("_head", "_index", "_parts", "_place", "delta_head")

    plain = True

    def __init__(self, turn_id: str, index: int) -> None:
        item_id = f"msg_{turn_id}_{index}".encode()
        self._index = index
        self._head = b'{"id":"%b","type":"message","status":' % item_id
        self._place = b'"item_id":"%b","output_index":%d,"content_index":0' % (item_id, index)
        self._parts: list[bytes] = []
        self.delta_head = ("response.output_text.delta", self._place + b',"logprobs":[],"delta":')

    def opening(self) -> list[ItemEvent]:
        return [
            _added(self._index, self._head + b'"in_progress","role":"assistant","content":[]}'),
            ("response.content_part.added", self._place + b',"part":' + _TEXT_PART % b'""'),
        ]

    def delta(self, text: str) -> bytes:
        encoded = quoted(text)
        self._parts.append(encoded[1:-1])
        return encoded

    def close(self, *, arguments: str = "", seal: str = "", status: bytes = COMPLETED) -> tuple[list[ItemEvent], bytes]:
        text = b'"%b"' % b"".join(self._parts)
        part = _TEXT_PART % text
        item = b'%b"%b","role":"assistant","content":[%b]}' % (self._head, status, part)
        return [
            ("response.output_text.done", self._place + b',"logprobs":[],"text":' + text),
            ("response.content_part.done", self._place + b',"part":' + part),
            _done(self._index, item),
        ], item


_TEXT_PART = b'{"type":"output_text","annotations":[],"logprobs":[],"text":%b}'


class ReasoningItem:
    """A thought. It is shown as its summary (what every client displays) and carried whole in `encrypted_content`."""

    __slots__ = ("_id", "_index", "_parts", "_place", "_visible", "delta_head")

    def __init__(self, turn_id: str, index: int, *, visible: bool) -> None:
        self._id = f"rs_{turn_id}_{index}"
        self._index = index
        self._visible = visible
        self._place = _place(self._id, index) + b',"summary_index":0'
        self._parts: list[bytes] = []
        self.delta_head = ("response.reasoning_summary_text.delta", self._place + b',"delta":')

    @property
    def plain(self) -> bool:
        return self._visible

    def opening(self) -> list[ItemEvent]:
        added = _added(self._index, _reasoning(self._id, b"", b"null", IN_PROGRESS))
        if not self._visible:
            return [added]
        part = self._place + b',"part":' + _summary_part(b'""')
        return [added, ("response.reasoning_summary_part.added", part)]

    def delta(self, text: str) -> bytes:
        if not self._visible:
            return b""
        encoded = quoted(text)
        self._parts.append(encoded[1:-1])
        return encoded

    def close(self, *, arguments: str = "", seal: str = "", status: bytes = COMPLETED) -> tuple[list[ItemEvent], bytes]:
        carried = quoted(seal) if seal else b"null"
        if not self._visible:
            item = _reasoning(self._id, b"", carried, status)
            return [_done(self._index, item)], item
        text = b'"%b"' % b"".join(self._parts)
        part = _summary_part(text)
        item = _reasoning(self._id, part, carried, status)
        return [
            ("response.reasoning_summary_text.done", self._place + b',"text":' + text),
            ("response.reasoning_summary_part.done", self._place + b',"part":' + part),
            _done(self._index, item),
        ], item


def _summary_part(text: bytes) -> bytes:
    return b'{"type":"summary_text","text":%b}' % text


def _reasoning(item_id: str, summary: bytes, carried: bytes, status: bytes) -> bytes:
    return b'{"id":"%b","type":"reasoning","summary":[%b],"encrypted_content":%b,"status":"%b"}' % (
        item_id.encode(),
        summary,
        carried,
        status,
    )


def carrier_item(turn_id: str, index: int, seal: str) -> tuple[list[ItemEvent], bytes]:
    """A reasoning item without a thought: it only carries the seal of what came after the last one."""
    item_id = f"rs_{turn_id}_{index}"
    item = _reasoning(item_id, b"", quoted(seal), COMPLETED)
    return [_added(index, _reasoning(item_id, b"", b"null", IN_PROGRESS)), _done(index, item)], item


class FunctionCallItem:
    """A function call; its argument text streams as it is written."""

    __slots__ = ("_head", "_index", "_name", "_place", "delta_head")

    plain = True

    def __init__(self, turn_id: str, index: int, call_id: str, origin: Origin) -> None:
        item_id = f"fc_{turn_id}_{index}"
        self._index = index
        self._place = _place(item_id, index)
        self._name = quoted(origin.name)
        space = b',"namespace":' + quoted(origin.namespace) if origin.namespace else b""
        self._head = b'{"id":"%b","type":"function_call","call_id":%b,"name":%b%b,"arguments":' % (
            item_id.encode(),
            quoted(call_id),
            self._name,
            space,
        )
        self.delta_head = ("response.function_call_arguments.delta", self._place + b',"delta":')

    def opening(self) -> list[ItemEvent]:
        return [_added(self._index, self._item(b'""', IN_PROGRESS))]

    def delta(self, text: str) -> bytes:
        return quoted(text)

    def close(self, *, arguments: str = "", seal: str = "", status: bytes = COMPLETED) -> tuple[list[ItemEvent], bytes]:
        encoded = quoted(arguments)
        item = self._item(encoded, status)
        done = self._place + b',"name":%b,"arguments":%b' % (self._name, encoded)
        return [("response.function_call_arguments.done", done), _done(self._index, item)], item

    def _item(self, arguments: bytes, status: bytes) -> bytes:
        return b'%b%b,"status":"%b"}' % (self._head, arguments, status)


class CustomCallItem:
    """A custom tool call: the model's one argument, given back as the raw text that it holds."""

    __slots__ = ("_head", "_index", "_input", "_place", "_received", "delta_head")

    plain = False

    def __init__(self, turn_id: str, index: int, call_id: str, origin: Origin) -> None:
        item_id = f"ctc_{turn_id}_{index}"
        self._index = index
        self._place = _place(item_id, index)
        self._input = CustomInput()
        self._received = 0
        space = b',"namespace":' + quoted(origin.namespace) if origin.namespace else b""
        self._head = b'{"id":"%b","type":"custom_tool_call","call_id":%b,"name":%b%b,"input":' % (
            item_id.encode(),
            quoted(call_id),
            quoted(origin.name),
            space,
        )
        self.delta_head = ("response.custom_tool_call_input.delta", self._place + b',"delta":')

    def opening(self) -> list[ItemEvent]:
        return [_added(self._index, self._item(b'""', IN_PROGRESS))]

    def delta(self, text: str) -> bytes:
        self._received += len(text)
        piece = self._input.feed(text)
        return quoted(piece) if piece else b""

    def close(self, *, arguments: str = "", seal: str = "", status: bytes = COMPLETED) -> tuple[list[ItemEvent], bytes]:
        piece = self._input.feed(arguments[self._received :])
        last, whole = self._input.finish()
        encoded = quoted(whole)
        item = self._item(encoded, status)
        name, head = self.delta_head
        events = [(name, head + quoted(piece + last))] if piece or last else []
        events.append(("response.custom_tool_call_input.done", self._place + b',"input":' + encoded))
        events.append(_done(self._index, item))
        return events, item

    def _item(self, text: bytes, status: bytes) -> bytes:
        return b'%b%b,"status":"%b"}' % (self._head, text, status)


class SearchCallItem:
    """A call of the client's own tool search; its arguments are an object and have no deltas on this wire."""

    __slots__ = ("_head", "_index", "delta_head")

    plain = False

    def __init__(self, turn_id: str, index: int, call_id: str, origin: Origin) -> None:
        self._index = index
        self._head = b'{"id":"tsc_%b_%d","type":"tool_search_call","call_id":%b,"execution":"client","arguments":' % (
            turn_id.encode(),
            index,
            quoted(call_id),
        )
        self.delta_head = ("", b"")

    def opening(self) -> list[ItemEvent]:
        return [_added(self._index, self._item(b"{}", IN_PROGRESS))]

    def delta(self, text: str) -> bytes:
        return b""

    def close(self, *, arguments: str = "", seal: str = "", status: bytes = COMPLETED) -> tuple[list[ItemEvent], bytes]:
        item = self._item(json_line(_value(arguments)), status)
        return [_done(self._index, item)], item

    def _item(self, arguments: bytes, status: bytes) -> bytes:
        return b'%b%b,"status":"%b"}' % (self._head, arguments, status)


def _value(arguments: str) -> Any:
    try:
        return msgspec.json.decode(arguments) if arguments else {}
    except UNREADABLE:
        return arguments


def whole_item(index: int, item: dict[str, Any]) -> tuple[list[ItemEvent], bytes]:
    """An item that is known whole: added and done at once."""
    encoded = json_line(item)
    return [_added(index, encoded), _done(index, encoded)], encoded
