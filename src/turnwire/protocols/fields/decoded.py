"""Parts of earlier requests, decoded: a conversation that grows by a message is decoded by that message alone.

Promise: exact. A part is found only by the very bytes it was decoded from, under the same kind of part and the same
limits, and decoding a part depends on nothing else; so a request gives equal values with and without a cache. What is
kept is bounded by `max_bytes`; what was not asked for lately goes first. Values are shared between requests.
"""

from __future__ import annotations

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
_NOTHING: dict[bytes, Any] = {}


class DecodedParts:
    """A bounded memory of decoded parts, for one process."""

    def __init__(self, max_bytes: int = 64 * 1024 * 1024) -> None:
        self._max = max_bytes
        self._kinds: dict[Hashable, int] = {}
        # Two generations: what is asked for again moves to the young one, and the old one is dropped as a whole.
        self._young: dict[int, dict[bytes, Any]] = {}
        self._old: dict[int, dict[bytes, Any]] = {}
        self._sizes = (0, 0)

    def __len__(self) -> int:
        return sum(map(len, (*self._young.values(), *self._old.values())))

    @property
    def size(self) -> int:
        """What the entries count for, in bytes."""
        return sum(self._sizes)

    def kind(self, *context: Hashable) -> int:
        """A small number for a kind of part together with everything but its bytes that its value depends on."""
        return self._kinds.setdefault(context, len(self._kinds))

    def get(self, kind: int, parts: Sequence[bytes]) -> list[Any]:
        """The values of parts of one kind; None for each that is not known."""
        values = list(map(self._young.get(kind, _NOTHING).get, parts))
        if not all(values):
            old = self._old.get(kind, _NOTHING)
            for place, data in enumerate(parts):
                if values[place] is None and (known := old.get(data)) is not None:
                    values[place] = known
                    self.put(kind, data, known)
        return values

    def put(self, kind: int, data: bytes, value: Any) -> None:
        """Keep a part's value. One that would push out most of the others is not kept."""
        cost = _cost(data)
        if cost > self._max // 4 or data in self._young.get(kind, _NOTHING):
            return
        young, old = self._sizes
        if young + cost > self._max // 2:
            self._old, self._young, young, old = self._young, {}, 0, young
        self._young.setdefault(kind, {})[data] = value
        self._sizes = (young + cost, old)


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
