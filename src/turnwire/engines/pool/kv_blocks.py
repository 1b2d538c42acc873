"""A prompt as the blocks that prefix caches keep: one number per block, which stands for it and all that comes before.

Promise: equal numbers mean equal prefixes under equal salts. They are this process's own (keyed, so nobody can
construct two prefixes that share one) and are computed once per prompt and block size, in one pass.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from turnwire.token_ids import packed_ids

__all__ = ["SHORT", "PromptBlocks", "chain", "root"]

SHORT = (1 << 60) - 1
"""Sixty bits tell as many blocks apart as any index has, and take a third less memory than 64: two digits of an
integer instead of three."""


def root(extra: object) -> int:
    """What the first block is chained to: `extra` is what tells caches with equal tokens apart, or None."""
    return hash(("root", None if extra is None else repr(extra))) & SHORT


def chain(parent: int, ids: Sequence[int], size: int) -> list[int]:
    """The numbers of the full blocks of `size` ids that come after `parent`."""
    data = packed_ids(ids).tobytes()
    width = array("I").itemsize * size
    numbers = []
    for start in range(0, len(data) - width + 1, width):
        parent = hash((parent, data[start : start + width])) & SHORT
        numbers.append(parent)
    return numbers


class PromptBlocks:
    """The blocks of one prompt, for whichever block sizes are asked for."""

    __slots__ = ("_by_size", "_salt", "ids")

    def __init__(self, ids: Sequence[int], salt: str | None) -> None:
        self.ids = ids
        self._salt = salt
        self._by_size: dict[int, list[int]] = {}

    def of(self, size: int) -> list[int]:
        """The numbers of the blocks that can be found in a cache: the last id is always read anew."""
        numbers = self._by_size.get(size)
        if numbers is None:
            ids = packed_ids(self.ids)
            usable = ids[: max(len(ids) - 1, 0) // size * size]
            numbers = self._by_size[size] = chain(self._root(), usable, size)
        return numbers

    @property
    def asked(self) -> bool:
        """Whether anybody asked for its numbers."""
        return bool(self._by_size)

    def then(self, size: int, ids: Sequence[int]) -> list[int]:
        """The numbers of the whole blocks of the prompt and of what was written after it."""
        numbers = self.of(size)
        parent = numbers[-1] if numbers else self._root()
        return [*numbers, *chain(parent, [*self.ids[len(numbers) * size :], *ids], size)]

    def _root(self) -> int:
        return root([self._salt] if self._salt else None)
