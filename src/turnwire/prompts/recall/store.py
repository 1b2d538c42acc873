"""Turns kept by the gateway for clients that do not carry seals back: found again by tool-call id or by what was said.

Promise: bounded, least recently used first out; a tenant never sees another's turns. A turn that two keys name is held
once. Sans-IO: this is the interface and the one in memory.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import Protocol

import msgspec

__all__ = ["MemoryTurnStore", "StoredTurn", "TurnStore", "call_key", "said_key"]

_SAME_KEY = 4
_RECORD_OVERHEAD = 400


class StoredTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn as the model wrote it: its output ids, raw text, how it looked to the client, and the end of the prompt
    it was written behind."""

    ids: array[int]
    text: str
    shape: bytes = b""
    tail: str | None = None

    @property
    def size(self) -> int:
        """Roughly the bytes it takes."""
        return 4 * len(self.ids) + len(self.text.encode("utf-8", "surrogatepass")) + len(self.shape)


class TurnStore(Protocol):
    """`space` keeps tenants and models apart."""

    def put(self, space: str, keys: Sequence[str], turn: StoredTurn) -> None:
        """Keep a turn under each of the keys."""
        ...

    def get(self, space: str, key: str) -> tuple[StoredTurn, ...]:
        """The turns under a key, newest first. More than one: the same words were said in different turns."""
        ...


def call_key(call_id: str) -> str:
    """The key of a tool-call id. Clients strip signs from ids, so only letters and digits count."""
    return "call:" + "".join([char for char in call_id if char.isalnum()])


def said_key(session: str, mark: bytes) -> str:
    """The key of what was said in a session, by its mark (`recall_shape.content_mark`)."""
    return f"said:{session}:{mark.hex()}"


class MemoryTurnStore:
    """Turns in memory, up to `max_bytes`. May be shared by threads."""

    def __init__(self, *, max_bytes: int = 128 * 1024 * 1024) -> None:
        if max_bytes <= 0:
            raise ValueError("max_bytes must be positive")
        self._max_bytes = max_bytes
        self._records: OrderedDict[int, tuple[str, tuple[str, ...], StoredTurn, int]] = OrderedDict()
        self._index: dict[tuple[str, str], list[int]] = {}
        self._bytes = 0
        self._next = 0
        self._lock = Lock()

    def put(self, space: str, keys: Sequence[str], turn: StoredTurn) -> None:
        size = turn.size + sum(map(len, keys)) + _RECORD_OVERHEAD
        if not keys or size > self._max_bytes:
            return
        with self._lock:
            for key in keys:
                if any(self._records[number][2] == turn for number in self._index.get((space, key), ())):
                    return
            number = self._next
            self._next += 1
            self._records[number] = (space, tuple(keys), turn, size)
            self._bytes += size
            for key in keys:
                numbers = self._index.setdefault((space, key), [])
                numbers.insert(0, number)
                del numbers[_SAME_KEY:]
            while self._bytes > self._max_bytes:
                self._drop()

    def get(self, space: str, key: str) -> tuple[StoredTurn, ...]:
        with self._lock:
            numbers = self._index.get((space, key), ())
            for number in numbers:
                self._records.move_to_end(number)
            return tuple(self._records[number][2] for number in numbers)

    def __len__(self) -> int:
        return len(self._records)

    def _drop(self) -> None:
        number, (space, keys, _, size) = self._records.popitem(last=False)
        self._bytes -= size
        for key in keys:
            left = [other for other in self._index.get((space, key), ()) if other != number]
            if left:
                self._index[space, key] = left
            else:
                self._index.pop((space, key), None)
