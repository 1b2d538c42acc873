"""Parts of earlier requests, decoded: a conversation that grows by a message is decoded by that message alone.

Promise: exact. A part is found only by the very bytes it was decoded from, under the same kind of part and the same
limits, and decoding a part depends on nothing else; so a request gives equal values with and without a cache. The same
holds for the beginning of a list of parts, which is compared as a whole. What is kept is bounded by `max_bytes`; what
was not asked for lately goes first. Values are shared between requests.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from turnwire.protocols.fields.body import rebased
from turnwire.protocols.wire import TurnFailure
from turnwire.turns import Note

__all__ = ["Beginning", "DecodedParts", "PartNote", "PartReader", "ReadList", "RequestNotes", "first_cases"]

S = TypeVar("S")
T = TypeVar("T")

_OVERHEAD = 1024
"""Bytes counted for an entry, or an element of one, beside its text."""

_UNSETTLED = 4
"""The last elements of a list, which are not part of a beginning that is kept: clients move cache marks there."""

_STEP = 8
"""How many more elements a beginning that is kept has than the one before it."""

_MOST_NEW = 64
"""How many elements a list may have after a beginning that is looked for."""

_MOST_NOTES = 64
_NOTHING: dict[Hashable, Any] = {}


class Beginning(msgspec.Struct, Generic[S], frozen=True, gc=False):
    """The first elements of a list that was read before, the size of their text, and what the reader of the list made
    of them."""

    elements: list[msgspec.Raw]
    size: int
    outcome: S

    @property
    def key(self) -> tuple[int, bytes]:
        """How many elements they are, and the last."""
        return len(self.elements), bytes(self.elements[-1])

    @property
    def cost(self) -> int:
        """What it counts for."""
        return _cost(self.size, len(self.elements))


class DecodedParts:
    """A bounded memory of decoded parts, for one process."""

    def __init__(self, max_bytes: int = 64 * 1024 * 1024) -> None:
        self._max = max_bytes
        self._kinds: dict[Hashable, int] = {}
        # Two generations: what is asked for again moves to the young one, and the old one is dropped as a whole.
        self._young: dict[int, dict[Hashable, Any]] = {}
        self._old: dict[int, dict[Hashable, Any]] = {}
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

    def get(self, kind: int, keys: Sequence[Hashable]) -> list[Any]:
        """The values of parts of one kind; None for each that is not known."""
        values = list(map(self._young.get(kind, _NOTHING).get, keys))
        if not all(values) and kind in self._old:
            for place, key in enumerate(keys):
                if values[place] is None:
                    values[place] = self.find(kind, key)
        return values

    def find(self, kind: int, key: Hashable) -> Any:
        """The value of a part, or what else is kept under a key; None where it is not known."""
        value = self._young.get(kind, _NOTHING).get(key)
        if value is None and (value := self._old.get(kind, _NOTHING).get(key)) is not None:
            self.put(kind, key, value)
        return value

    def put(self, kind: int, key: Hashable, value: Any) -> None:
        """Keep a part's value under its bytes; what is kept under another key knows its own `cost`. A value that would
        push out most of the others is not kept."""
        cost = _cost(len(key)) if isinstance(key, bytes) else value.cost
        if cost > self._max // 4 or key in self._young.get(kind, _NOTHING):
            return
        young, old = self._sizes
        if young + cost > self._max // 2:
            self._old, self._young, young, old = self._young, {}, 0, young
        self._young.setdefault(kind, {})[key] = value
        self._sizes = (young + cost, old)

    def beginning(self, kind: int, elements: list[msgspec.Raw]) -> Beginning[Any] | None:
        """The longest beginning of a list of parts of one kind that is known, if not too many follow it."""
        young, old = self._young.get(kind, _NOTHING), self._old.get(kind, _NOTHING)
        for count in range(len(elements), max(0, len(elements) - _MOST_NEW), -1):
            key = count, bytes(elements[count - 1])
            known: Beginning[Any] | None = young.get(key) or old.get(key)
            if known is not None and known.elements == elements[:count]:
                return known
        return None

    def grow(self, kind: int, before: Beginning[Any] | None, elements: Iterable[msgspec.Raw], outcome: Any) -> None:
        """Keep what the elements `before` and those after them came to, instead of what those before did alone."""
        added = list(map(bytes, elements))
        known, size = (before.elements, before.size) if before is not None else ([], 0)
        grown = Beginning([*known, *map(msgspec.Raw, added)], size + sum(map(len, added)), outcome)
        for key in (grown.key, before.key) if before is not None else (grown.key,):
            self._forget(kind, key)
        self.put(kind, grown.key, grown)

    def _forget(self, kind: int, key: tuple[int, bytes]) -> None:
        young, old = self._sizes
        if (known := self._young.get(kind, _NOTHING).pop(key, None)) is not None:
            young -= known.cost
        if (known := self._old.get(kind, _NOTHING).pop(key, None)) is not None:
            old -= known.cost
        self._sizes = (young, old)


def _cost(size: int, parts: int = 1) -> int:
    """The key, the decoded text and the objects around it."""
    return 3 * size + _OVERHEAD * parts


class PartNote(msgspec.Struct, frozen=True, gc=False):
    """A note on a part: where inside it, and what. Notes of one code and subject are one kind, of which a request
    reports the first case."""

    code: str
    where: str
    text: str
    subject: str = ""


def first_cases(
    known: Mapping[tuple[str, str], PartNote], path: str, notes: Iterable[PartNote]
) -> dict[tuple[str, str], PartNote]:
    """The first case of each kind of note on a list: those that are `known`, and those of the part at `path`."""
    cases = dict(known)
    for note in notes:
        if len(cases) < _MOST_NOTES:
            cases.setdefault((note.code, note.subject), PartNote(note.code, path + note.where, note.text, note.subject))
    return cases


class PartReader(Generic[T]):
    """Reads one kind of part, through the cache where there is one. `read` gets the part's bytes, gives its value, and
    reports failures by paths that start at the part."""

    def __init__(self, cache: DecodedParts | None, read: Callable[[bytes], T], *context: Hashable) -> None:
        self._cache = cache
        self._read = read
        self._kind = cache.kind(*context) if cache is not None else 0

    def value(self, raw: bytes | msgspec.Raw, path: str) -> T:
        """The value of the part at `path`."""
        data = bytes(raw)
        value: T | None = self._cache.find(self._kind, data) if self._cache is not None else None
        if value is None:
            value = self._fresh(data, lambda _: path, 0)
            if self._cache is not None:
                self._cache.put(self._kind, data, value)
        return value

    def values(self, raws: Sequence[bytes | msgspec.Raw], place: Callable[[int], str]) -> list[T]:
        """The values of several parts; `place` gives the path of each."""
        parts = list(map(bytes, raws))
        if self._cache is None:
            return [self._fresh(data, place, index) for index, data in enumerate(parts)]
        values: list[T] = self._cache.get(self._kind, parts)
        for index, value in enumerate(values):
            if value is None:
                fresh = values[index] = self._fresh(parts[index], place, index)
                self._cache.put(self._kind, parts[index], fresh)
        return values

    def list(self, raws: list[msgspec.Raw], place: Callable[[int], str]) -> ReadList[T]:
        """The parts of a list; `place` gives the path of each. What its beginning came to is known where an earlier
        request had the same."""
        before = self._cache.beginning(self._kind, raws) if self._cache is not None else None
        known = len(before.elements) if before is not None else 0
        values = self.values(raws[known:], lambda index: place(known + index))
        return ReadList(raws, before, known, values, self._cache, self._kind)

    def _fresh(self, data: bytes, place: Callable[[int], str], index: int) -> T:
        try:
            return self._read(data)
        except TurnFailure as failure:
            raise rebased(place(index), failure) from None


class ReadList(msgspec.Struct, Generic[T]):
    """A list that was read: the beginning that was `known`, and the values of the parts after it."""

    raws: list[msgspec.Raw]
    before: Beginning[Any] | None
    known: int
    values: list[T]
    cache: DecodedParts | None
    kind: int

    def folded(self, fold: Callable[[S, Sequence[T], int], S], empty: S, lasts: Callable[[Sequence[T]], bool]) -> S:
        """What the whole list comes to: `fold` takes what a beginning came to, the values after it, and the place of
        the first. `lasts` says of values whether nothing that follows them changes what they come to."""
        outcome: S = self.before.outcome if self.before is not None else empty
        settled = len(self.raws) - _UNSETTLED
        more = settled - self.known
        if self.cache is None or more < _STEP or not lasts(self.values[:more]):
            return fold(outcome, self.values, self.known)
        outcome = fold(outcome, self.values[:more], self.known)
        self.cache.grow(self.kind, self.before, self.raws[self.known : settled], outcome)
        return fold(outcome, self.values[more:], settled)


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

    def on_part(self, path: str, notes: Iterable[PartNote]) -> None:
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
