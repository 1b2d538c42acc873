"""Structured deltas of an upstream server as the ordered events of a turn.

Promise: blocks open once and close once, in the order their first delta came; argument text is passed on as it arrives
and checked as JSON when its call closes; deltas are never looked into for markup. A call keeps the server's id, unless
that id is taken in the conversation or is not one that every API can carry.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from typing import Generic, TypeVar

import msgspec

from turnwire.engines.http.stream import Reading
from turnwire.engines.interface import EngineError, EventBatch
from turnwire.turns import (
    BlockClosed,
    BlockDelta,
    BlockKind,
    BlockOpened,
    Conversation,
    Event,
    ToolCallBlock,
    ToolCallClosed,
)
from turnwire.unreadable import UNREADABLE

__all__ = ["BlockReading", "BlockWriter", "call_ids"]

_PORTABLE = re.compile(r"[A-Za-z0-9_-]{1,64}")


def call_ids(conversation: Conversation) -> set[str]:
    """The ids of every call so far."""
    return {
        block.id for message in conversation.messages for block in message.blocks if isinstance(block, ToolCallBlock)
    }


class BlockWriter:
    """Writes events into `events`; the owner takes them out of there."""

    def __init__(self, conversation: Conversation | None = None) -> None:
        self._taken = call_ids(conversation) if conversation is not None else set()
        self.events: list[Event] = []
        self.called = False
        self._index = -1
        self._kind: BlockKind | None = None
        self._key: object = None
        self._closed: set[object] = set()
        self._name = ""
        self._call_id = ""
        self._arguments: list[str] = []

    def text(self, kind: BlockKind, text: str) -> None:
        """More prose or thought."""
        if self._kind != kind:
            self.close()
            self._index += 1
            self._kind = kind
            self.events.append(BlockOpened(self._index, kind))
        self.events.append(BlockDelta(self._index, text))

    def call(self, key: object, *, name: str = "", call_id: str = "", arguments: str = "") -> None:
        """More of the tool call `key`. Its name is known with its first part."""
        if self._kind != "tool_call" or self._key != key:
            if key in self._closed:
                raise EngineError("internal", "the upstream server mixes the deltas of several tool calls")
            if not name:
                raise EngineError("internal", "the upstream server began a tool call without its name")
            self.close()
            if call_id in self._taken or not _PORTABLE.fullmatch(call_id):
                call_id = ""
            self._taken.add(call_id)
            self._index += 1
            self._kind, self._key, self._name, self._call_id = "tool_call", key, name, call_id
            self.called = True
            self.events.append(BlockOpened(self._index, "tool_call", name, call_id))
        if arguments:
            self._arguments.append(arguments)
            self.events.append(BlockDelta(self._index, arguments))

    def seal(self, seal: str) -> None:
        """End the open thought with its opaque carrier; a thought that was never shown gets a block of its own."""
        if self._kind != "reasoning":
            self.close()
            self._index += 1
            self.events.append(BlockOpened(self._index, "reasoning"))
        self._kind = None
        self.events.append(BlockClosed(self._index, "reasoning", seal))

    def close(self) -> None:
        """End the open block, if there is one."""
        kind, self._kind = self._kind, None
        if kind is None:
            return
        if kind != "tool_call":
            self.events.append(BlockClosed(self._index, kind))
            return
        arguments, self._arguments = "".join(self._arguments), []
        self._closed.add(self._key)
        malformed = False
        if not arguments:
            arguments = "{}"
            self.events.append(BlockDelta(self._index, arguments))
        else:
            try:
                msgspec.json.decode(arguments)
            except UNREADABLE:
                malformed = True
        self.events.append(
            ToolCallClosed(self._index, self._name, arguments, call_id=self._call_id, malformed=malformed)
        )

    def take(self) -> tuple[Event, ...]:
        """The events since the last time."""
        events = tuple(self.events)
        self.events.clear()
        return events


E = TypeVar("E")


class BlockReading(Reading, Generic[E]):
    """A stream of JSON events that write blocks; a subclass says what each event does."""

    def __init__(self, decoder: msgspec.json.Decoder[list[E]], conversation: Conversation | None) -> None:
        self._decoder = decoder
        self._blocks = BlockWriter(conversation)

    @abstractmethod
    def _event(self, event: E) -> None:
        """One event; EngineError where it says that the generation failed."""

    def feed(self, events: bytes) -> EventBatch | None:
        """The events as one batch, up to the end or the failure among them."""
        for event in self._decoder.decode(events):
            try:
                self._event(event)
            except EngineError as error:
                self.error = error
            if self.error is not None or self.end is not None:
                break
        taken = self._blocks.take()
        return EventBatch(taken) if taken else None
