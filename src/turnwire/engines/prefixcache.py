"""A model of an engine's prefix cache: which leading tokens of a prompt it has already computed.

Promise: bounded memory, least recently used blocks go first; a match is a whole number of blocks and never the whole
prompt, because an engine must compute at least the last token to have something to sample from. A sequence is hashed
once, and its continuation from where it ended.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

__all__ = ["CachedSequence", "PrefixCache"]


class CachedSequence:
    """A growing sequence of tokens and the names of its whole blocks; a name stands for a block's content and all that
    comes before it."""

    __slots__ = ("_block_size", "_rest", "names")

    def __init__(self, block_size: int, salt: str | None) -> None:
        self._block_size = block_size
        self._rest: list[int] = []
        self.names = [hash(salt)]

    def extend(self, ids: Sequence[int]) -> None:
        """Append tokens and name the blocks that became whole."""
        tokens = [*self._rest, *ids]
        size, names = self._block_size, self.names
        name, end = names[-1], len(tokens) - len(tokens) % size
        for start in range(0, end, size):
            name = hash((name, *tokens[start : start + size]))
            names.append(name)
        self._rest = tokens[end:]

    @property
    def length(self) -> int:
        """How many tokens it holds."""
        return (len(self.names) - 1) * self._block_size + len(self._rest)


class PrefixCache:
    """Blocks of `block_size` tokens that were computed and are still held."""

    def __init__(self, block_size: int = 16, capacity_blocks: int = 1 << 16) -> None:
        self.block_size = block_size
        self._capacity = capacity_blocks
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def sequence(self, ids: Sequence[int], salt: str | None = None) -> CachedSequence:
        """A sequence to match and store; different salts never share blocks."""
        sequence = CachedSequence(self.block_size, salt)
        sequence.extend(ids)
        return sequence

    def match(self, sequence: CachedSequence) -> int:
        """How many leading tokens of it are held."""
        blocks, size = self._blocks, self.block_size
        cached = 0
        for name in sequence.names[1 : (sequence.length - 1) // size + 1]:
            if name not in blocks:
                break
            blocks.move_to_end(name)
            cached += size
        return cached

    def store(self, sequence: CachedSequence) -> None:
        """Hold every whole block of a computed sequence."""
        blocks = self._blocks
        blocks.update(dict.fromkeys(sequence.names[1:]))
        while len(blocks) > self._capacity:
            blocks.popitem(last=False)
