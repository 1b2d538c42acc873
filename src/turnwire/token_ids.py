"""The token ids of a prompt, kept so that the next prompt can be made from them without touching each one.

Promise: a sequence of whole numbers that never changes, equal to any other sequence of the same numbers. Growing one
copies a few bytes for each id that stays; as JSON and as msgpack it is written once, and of one that grew only what is
new.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import msgspec

__all__ = ["TokenIds", "ids_json", "ids_msgpack", "packed_ids"]

_encode = msgspec.json.Encoder().encode
_NUMBER = 5  # bytes of an id in msgpack, with the mark before it, and of a list's head
_WIDEST = 11  # bytes of an id with its comma
_NEAR = 128  # bytes; in fewer, ids are looked at one by one


class TokenIds(Sequence[int]):
    """See the module's promise. `packed` are the ids, four bytes each; nobody may change them."""

    __slots__ = ("_base", "_most", "_numbers", "_text", "packed")

    def __init__(self, ids: Iterable[int] = ()) -> None:
        self.packed = array("I", ids)
        self._text: bytes | None = None
        # The text of those it grew from, how many they are, and how many of them are here.
        self._base: tuple[bytes, int, int] | None = None
        # A list in msgpack, written here or where they grew from, and how many of its first ids are these.
        self._numbers = (b"", 0)
        self._most: int | None = None

    def grown(self, kept: int, fresh: Sequence[int]) -> TokenIds:
        """The first `kept` of these ids, and then `fresh`."""
        made = TokenIds()
        made.packed = self.packed[:kept]
        made.packed.extend(packed_ids(fresh))
        # What is written of ids of which few stay is not worth being held until these are written.
        if 2 * kept >= len(self.packed):
            if self._text is not None:
                made._base = (self._text, len(self.packed), kept)
            numbers, count = self._numbers
            made._numbers = (numbers, min(count, kept))
        if self._most is not None:
            made._most = max(self._most, max(fresh, default=0))
        return made

    def below(self, count: int) -> bool:
        """Whether every id is below `count`."""
        # Of ids that grew, the most may have been among those that were left out.
        if self._most is None or self._most >= count:
            self._most = max(self.packed, default=0)
        return self._most < count

    @property
    def json(self) -> bytes:
        """The ids as a JSON list."""
        if self._text is None:
            self._text = self._written()
            self._base = None
        return self._text

    def _written(self) -> bytes:
        text, size, kept = self._base or (b"", 0, 0)
        if not 0 < kept < len(self.packed):
            return _encode(self.packed.tolist())
        end = _end_of(text, size, kept)
        # Joined from a view: of hundreds of kilobytes every copy counts.
        return b"".join((memoryview(text)[:end], b",", memoryview(_encode(self.packed[kept:].tolist()))[1:]))

    @property
    def msgpack(self) -> bytes:
        """The ids as a msgpack list, each in four bytes behind a mark."""
        # Read once and set once: several threads may ask.
        numbers, count = self._numbers
        size = len(self.packed)
        if len(numbers) == _NUMBER * (1 + size) and count == size:
            return numbers
        big = self.packed[count:]
        if sys.byteorder == "little":
            big.byteswap()
        written, fresh = big.tobytes(), bytearray(_NUMBER * len(big))
        for place in range(_NUMBER):
            fresh[place::_NUMBER] = written[place - 1 :: 4] if place else b"\xce" * len(big)
        kept = memoryview(numbers)[_NUMBER : _NUMBER * (1 + count)]
        numbers = b"".join((b"\xdd", size.to_bytes(4, "big"), kept, fresh))
        self._numbers = (numbers, size)
        return numbers

    def __len__(self) -> int:
        return len(self.packed)

    def __iter__(self) -> Iterator[int]:
        return iter(self.packed)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> list[int]: ...
    def __getitem__(self, place: int | slice) -> int | list[int]:
        if isinstance(place, slice):
            return self.packed[place].tolist()
        return self.packed[place]

    def __add__(self, other: Sequence[int]) -> list[int]:
        return [*self.packed, *other]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TokenIds):
            return self.packed == other.packed
        if isinstance(other, list | tuple | array):
            return len(other) == len(self.packed) and self.packed.tolist() == list(other)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"TokenIds({self.packed.tolist()!r})"


def _end_of(text: bytes, size: int, kept: int) -> int:
    """Where the first `kept` of the `size` ids of a JSON list end, which are at least half of them."""
    high = len(text) - 1
    if kept == size:
        return high
    low = max(0, high - _WIDEST * (size - kept))
    more = text.count(b",", low, high) - (size - kept) + 1
    # They end at the comma behind `low` that is number `more`, and before `high`.
    while high - low > _NEAR:
        middle = (low + high) // 2
        passed = text.count(b",", low, middle)
        if passed < more:
            low, more = middle, more - passed
        else:
            high = middle
    for _ in range(more):
        low = text.find(b",", low) + 1
    return low - 1


def packed_ids(ids: Sequence[int]) -> array[int]:
    """Ids four bytes each, which nobody may change: those that are packed already, or a copy."""
    if isinstance(ids, TokenIds):
        return ids.packed
    return ids if isinstance(ids, array) else array("I", ids)


def ids_json(ids: Sequence[int]) -> msgspec.Raw:
    """A prompt's ids as a JSON list, to be put into a request as it is."""
    return msgspec.Raw(ids.json if isinstance(ids, TokenIds) else _encode(list(ids)))


def ids_msgpack(ids: Sequence[int]) -> msgspec.Raw:
    """The same as a msgpack list."""
    return msgspec.Raw(ids.msgpack if isinstance(ids, TokenIds) else msgspec.msgpack.encode(list(ids)))
