"""How a turn looked to the client: enough to tell, when it comes back, whether somebody changed it.

Promise: a shape is small and bounded. A message that a client merely rewrote (blanks, order of keys, dropped thoughts)
fits its shape; a message whose words, calls or arguments were changed does not.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeAlias

import msgspec

from turnwire.conventions import raw_input
from turnwire.prompts.recall.same_arguments import MARK_SIZE, argument_marks, same_arguments
from turnwire.turns import (
    Block,
    BlockClosed,
    BlockDelta,
    BlockOpened,
    Event,
    Message,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolCallClosed,
)

__all__ = ["Witness", "content_mark", "edits", "thought_end", "thoughts_as_text", "thoughts_mark"]

_TEXT_SIZE = 12
# Whole turn or only its thoughts, raw characters up to the last thought's end, thoughts, text, calls.
_HEAD = struct.Struct(f">BI{_TEXT_SIZE}s{_TEXT_SIZE}sH")
_CALL = struct.Struct(">4sH")
_UNCHECKED = 0xFFFF
_MOST_BYTES = 32_768


class _Call(msgspec.Struct, frozen=True):
    name: bytes
    marks: frozenset[bytes] | None


_Shape: TypeAlias = tuple[bool, bytes, bytes, list[_Call]]


class _Words:
    """A running mark of text without its blanks. `text` is what came since the mark was asked for, in UTF-8: a stream
    may go on for minutes, and its pieces would take ten times the room of their characters."""

    __slots__ = ("_hash", "text")

    def __init__(self) -> None:
        self.text = bytearray()
        self._hash: blake2b | None = None

    def mark(self) -> bytes:
        if self.text:
            if self._hash is None:
                self._hash = blake2b(digest_size=_TEXT_SIZE)
            self._hash.update(_words(_decoded(self.text)))
            self.text.clear()
        return _NO_WORDS if self._hash is None else self._hash.digest()


class Witness:
    """Watches the events of a turn on their way to the client. A few cheap operations per event. `thoughts` are the
    raw characters, from and to, that the closed thoughts and their marks take; `rest` are the blocks after the last
    thought. `begun` are words that the client began the turn with: its message will hold them too."""

    def __init__(self, begun: str = "") -> None:
        self._text = _Words()
        if begun:
            self._text.text += begun.encode("utf-8", "surrogatepass")
        self._thoughts = _Words()
        self._open: dict[int, bytearray] = {}
        self._calls: list[_Call] = []
        self._raw = len(begun)
        self._thought_from = 0
        self._text_from = 0
        self.thoughts: list[tuple[int, int]] = []
        self.rest: list[Block] = []

    def feed(self, events: Sequence[Event]) -> None:
        """The turn's next events."""
        for event in events:
            if type(event) is BlockDelta:
                self.more(event.index, event.text, len(event.raw))
                continue
            before = self._raw
            self._raw += len(getattr(event, "raw", ""))  # not every event comes from the model's text
            if isinstance(event, BlockOpened):
                if event.kind != "tool_call":
                    self._open[event.index] = (self._text if event.kind == "text" else self._thoughts).text
                    self._thought_from = before
                    self._text_from = len(self._text.text)
            elif isinstance(event, BlockClosed):
                self._open.pop(event.index, None)
                if event.kind == "reasoning":
                    self.thoughts.append((self._thought_from, self._raw))
                    self.rest.clear()
                else:
                    self.rest.append(TextBlock(text=_decoded(self._text.text[self._text_from :])))
            elif isinstance(event, ToolCallClosed):
                marks = None if event.malformed else argument_marks(event.arguments)
                self._calls.append(_Call(_name_mark(event.name), None if marks is None else marks[0]))
                self.rest.append(ToolCallBlock(id=str(event.index), name=event.name, arguments=event.arguments))

    def more(self, index: int, text: str, raw: int) -> None:
        """More of an open block, and how many raw characters it takes."""
        self._raw += raw
        into = self._open.get(index)
        if into is not None:
            into += text.encode("utf-8", "surrogatepass")

    @property
    def said(self) -> bytes:
        """The mark of the turn's text so far, as `content_mark` gives it for the message."""
        return self._text.mark()

    def shape(self, *, last: bool) -> bytes:
        """The turn's shape by now. Before the end it only has thoughts: text and calls may still grow."""
        if not last:
            end = self.thoughts[-1][1] if self.thoughts else 0
            return _HEAD.pack(0, end, self._thoughts.mark(), bytes(_TEXT_SIZE), 0)
        parts = [_HEAD.pack(1, 0, self._thoughts.mark(), self._text.mark(), len(self._calls))]
        size = len(parts[0])
        for call in self._calls:
            marks = b"" if call.marks is None else b"".join(sorted(call.marks))
            size += _CALL.size + len(marks)
            if size > _MOST_BYTES:
                return b""
            parts.append(_CALL.pack(call.name, _UNCHECKED if call.marks is None else len(marks) // MARK_SIZE))
            parts.append(marks)
        return b"".join(parts)


def edits(shape: bytes, message: Message) -> str | None:
    """What a person changed in `message`: `thought`, `text`, `calls`, `name` or `arguments`; None if it is as the
    turn was, or if its shape is unknown. The shape of a part of a turn is compared with the thoughts alone, and
    `message` must then end with that part."""
    read = _read(shape)
    changed = None if read is None else _changes(read, message)
    if read is None or changed is None:
        return None
    as_text = thoughts_as_text(message)
    return changed if as_text is None or _changes(read, as_text) is not None else None


def _changes(read: _Shape, message: Message) -> str | None:
    whole, thoughts, text, calls = read
    said = thoughts_mark(message)
    if said is not None and said != thoughts:
        return "thought"
    if not whole:
        return None
    if content_mark(message) != text:
        return "text"
    sent = [block for block in message.blocks if isinstance(block, ToolCallBlock)]
    if len(sent) != len(calls):
        return "calls"
    for call, block in zip(calls, sent, strict=True):
        if _name_mark(block.name) != call.name:
            return "name"
        if call.marks is not None and not _fits(call.marks, block):
            return "arguments"
    return None


def thought_end(shape: bytes) -> int | None:
    """How many raw characters the turn had when its last thought closed, for the shape of a part of a turn."""
    return int(_HEAD.unpack_from(shape)[1]) or None if len(shape) >= _HEAD.size else None


def content_mark(message: Message) -> bytes:
    """The mark of a message's text."""
    return _mark("".join([block.text for block in message.blocks if isinstance(block, TextBlock)]))


def thoughts_mark(message: Message) -> bytes | None:
    """The mark of a message's thoughts; None where the client sent none of their words."""
    words = "".join([block.text for block in message.blocks if isinstance(block, ReasoningBlock)])
    return _mark(words) if words.strip() else None


def _fits(marks: frozenset[bytes], block: ToolCallBlock) -> bool:
    if block.kind == "custom":
        return same_arguments(marks, msgspec.json.encode(raw_input(block.arguments)).decode())
    return same_arguments(marks, block.arguments)


def thoughts_as_text(message: Message) -> Message | None:
    """The message as it was if its unsealed thoughts were words of its text: a model without thoughts of its own may
    write `<think>` all the same, and what reads the request takes that for a thought. None where it has none."""
    if not any(isinstance(block, ReasoningBlock) and block.text and not block.seal for block in message.blocks):
        return None
    blocks = tuple(
        TextBlock(text=f"<think>{block.text}</think>")
        if isinstance(block, ReasoningBlock) and block.text and not block.seal
        else block
        for block in message.blocks
    )
    return Message(role=message.role, blocks=blocks)


def _read(shape: bytes) -> _Shape | None:
    try:
        whole, _, thoughts, text, count = _HEAD.unpack_from(shape)
        place = _HEAD.size
        calls: list[_Call] = []
        for _ in range(count):
            name, leaves = _CALL.unpack_from(shape, place)
            place += _CALL.size
            marks: frozenset[bytes] | None = None
            if leaves != _UNCHECKED:
                end = place + leaves * MARK_SIZE
                if end > len(shape):
                    return None
                marks = frozenset(shape[at : at + MARK_SIZE] for at in range(place, end, MARK_SIZE))
                place = end
            calls.append(_Call(name, marks))
    except struct.error:
        return None
    return bool(whole), thoughts, text, calls


def _words(text: str) -> bytes:
    return "".join(text.split()).encode("utf-8", "surrogatepass")


def _decoded(text: bytearray) -> str:
    return text.decode("utf-8", "surrogatepass")


_NO_WORDS = blake2b(digest_size=_TEXT_SIZE).digest()


def _mark(text: str) -> bytes:
    return blake2b(_words(text), digest_size=_TEXT_SIZE).digest()


def _name_mark(name: str) -> bytes:
    plain = "".join([char for char in name.lower() if char.isalnum()])
    return blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=4).digest()
