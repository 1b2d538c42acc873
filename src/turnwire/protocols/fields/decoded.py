"""Parts of earlier requests, decoded: a conversation that grows by a message is decoded by that message alone.

Promise: exact. A part is found only by the very bytes it was decoded from, under the same kind of part and the same
limits, and decoding a part depends on nothing else; so a request gives equal values with and without a cache. What is
kept is bounded by `max_bytes`; the longest unused goes first. Values are shared between requests.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from turnwire.protocols.fields.body import rebased
from turnwire.protocols.wire import TurnFailure
from turnwire.turns import Note

__all__ = ["DecodedParts", "PartNote", "PartReader", "RequestNotes"]

T = TypeVar("T")

_OVERHEAD = 1024
"""Bytes counted for an entry beside its text."""

_MOST_NOTES = 64


class DecodedParts:
    """A bounded memory of decoded parts, for one process."""

    def __init__(self, max_bytes: int = 64 * 1024 * 1024) -> None:
        self._max = max_bytes
        self._size = 0
        self._kinds: dict[Hashable, int] = {}
        self._entries: OrderedDict[tuple[int, bytes], Any] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size(self) -> int:
        """What the entries count for, in bytes."""
        return self._size

    def kind(self, *context: Hashable) -> int:
        """A small number for a kind of part together with everything but its bytes that its value depends on."""
        return self._kinds.setdefault(context, len(self._kinds))

    def get(self, kind: int, parts: Sequence[bytes]) -> list[Any]:
        """The values of parts of one kind; None for each that is not known."""
        known, keep = self._entries.get, self._entries.move_to_end
        values: list[Any] = []
        for data in parts:
            key = (kind, data)
            value = known(key)
            if value is not None:
                keep(key)
            values.append(value)
        return values

    def put(self, kind: int, data: bytes, value: Any) -> None:
        """Keep a part's value. One that would push out most of the others is not kept."""
        cost = _cost(data)
        if cost > self._max // 4 or (kind, data) in self._entries:
            return
        self._entries[kind, data] = value
        self._size += cost
        while self._size > self._max:
            (_, oldest), _ = self._entries.popitem(last=False)
            self._size -= _cost(oldest)


def _cost(data: bytes) -> int:
    """The key, the decoded text and the objects around it."""
    return 3 * len(data) + _OVERHEAD


class PartNote(msgspec.Struct, frozen=True, gc=False):
    """A note on a part: where inside it, and what. Notes of one code and subject are one kind, of which a request
    reports the first case."""

    code: str
    where: str
    text: str
    subject: str = ""


class PartReader(Generic[T]):
    """Reads one kind of part, through the cache where there is one. `read` gets the part's bytes, gives its value, and
    reports failures by paths that start at the part."""

    def __init__(self, cache: DecodedParts | None, read: Callable[[bytes], T], *context: Hashable) -> None:
        self._cache = cache
        self._read = read
        self._kind = cache.kind(*context) if cache is not None else 0

    def value(self, raw: bytes | msgspec.Raw, path: str) -> T:
        """The value of the part at `path`."""
        return self.values((raw,), lambda _: path)[0]

    def values(self, raws: Sequence[bytes | msgspec.Raw], place: Callable[[int], str]) -> list[T]:
        """The values of several parts; `place` gives the path of each."""
        parts = [bytes(raw) for raw in raws]
        if self._cache is None:
            return [self._fresh(data, place, index) for index, data in enumerate(parts)]
        values: list[T] = self._cache.get(self._kind, parts)
        for index, value in enumerate(values):
            if value is None:
                fresh = values[index] = self._fresh(parts[index], place, index)
                self._cache.put(self._kind, parts[index], fresh)
        return values

    def _fresh(self, data: bytes, place: Callable[[int], str], index: int) -> T:
        try:
            return self._read(data)
        except TurnFailure as failure:
            raise rebased(place(index), failure) from None


class RequestNotes:
    """The notes of one request while it is read. A long conversation repeats the same note in every message, so of each
    kind the first case is reported."""

    def __init__(self) -> None:
        self._notes: list[Note] = []
        self._kinds: set[tuple[str, str]] = set()

    def __len__(self) -> int:
        return len(self._notes)

    def add(self, code: str, message: str) -> None:
        """A note on the request itself."""
        self._notes.append(Note(code, message))

    def extend(self, notes: Iterable[Note]) -> None:
        """Notes on the request that were taken before."""
        self._notes.extend(notes)

    def on_part(self, path: str, notes: tuple[PartNote, ...]) -> None:
        """Notes on the part at `path`."""
        for note in notes:
            kind = (note.code, note.subject)
            if kind not in self._kinds and len(self._kinds) < _MOST_NOTES:
                self._kinds.add(kind)
                place = path + note.where
                self._notes.append(Note(note.code, f"{place}: {note.text}" if place else note.text))

    def all(self) -> tuple[Note, ...]:
        """Every note, in the order taken."""
        return tuple(self._notes)
