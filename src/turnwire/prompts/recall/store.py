"""Turns kept by the gateway for clients that do not carry seals back: found again after the history they were said in.

Promise: bounded, least recently used first out; a tenant never sees another's turns, and every key holds the digest of
what precedes the turn. A turn that two keys name is held once. Sans-IO: this is the interface and the one in memory.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from threading import Lock
from typing import Protocol

from turnwire.conventions import letters_and_digits
from turnwire.prompts.prompt import RecalledTurn

__all__ = ["KnownTurns", "MemoryTurnStore", "StoredTurn", "TurnStore", "call_key", "said_key"]

_SAME_KEY = 4
_RECORD_OVERHEAD = 400


class StoredTurn(RecalledTurn, frozen=True, kw_only=True):
    """A turn as the model wrote it, and how it looked to the client."""

    ids: array[int]
    shape: bytes = b""

    @property
    def size(self) -> int:
        """Roughly the bytes it takes."""
        return 4 * len(self.ids) + len(self.text.encode("utf-8", "surrogatepass")) + len(self.shape)


class KnownTurns(Protocol):
    """`space` keeps tenants and models apart. `waits`: `get` may take longer than memory does, so that no event loop
    should call it."""

    @property
    def waits(self) -> bool: ...

    def get(self, space: str, key: str) -> tuple[StoredTurn, ...]:
        """The turns under a key, newest first. More than one: the same words were said in different turns."""
        ...


class TurnStore(KnownTurns, Protocol):
    """Turns that can be kept, too."""

    def put(self, space: str, keys: Sequence[str], turn: StoredTurn) -> Future[None] | None:
        """Keep a turn under each of the keys. What is returned is done once other processes can find it, or once that
        has failed; None where there are no others."""
        ...


def call_key(history: bytes, call_id: str) -> str:
    """The key of a call that was made after `history`, one of the loose digests of a `HistoryKey`."""
    return f"call:{history.hex()}:{letters_and_digits(call_id)}"


def said_key(history: bytes, mark: bytes, session: str = "") -> str:
    """The key of words said after `history`, the strict digest of a `HistoryKey`, by their mark
    (`witness.content_mark`). With a session it tells turns apart that had the same history and the same words."""
    return f"said:{history.hex()}:{mark.hex()}:{session}"


class MemoryTurnStore:
    """Turns in memory, up to `max_bytes`. May be shared by threads."""

    waits = False

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
            keys = [key for key in keys if not self._holds(space, key, turn)]
            if not keys:
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

    def _holds(self, space: str, key: str, turn: StoredTurn) -> bool:
        return any(self._records[number][2] == turn for number in self._index.get((space, key), ()))

    def _drop(self) -> None:
        number, (space, keys, _, size) = self._records.popitem(last=False)
        self._bytes -= size
        for key in keys:
            left = [other for other in self._index.get((space, key), ()) if other != number]
            if left:
                self._index[space, key] = left
            else:
                self._index.pop((space, key), None)
