"""A model of an engine's prefix cache: which leading tokens of a prompt it has already computed.

Promise: bounded memory, least recently used blocks go first; a match is a whole number of blocks and never the whole
prompt, because an engine must compute at least the last token to have something to sample from. A sequence is hashed
once, and its continuation from where it ended.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

__all__ = ["CachedSequence", "PrefixCache"]


_RECENT = 64
"""How many sequences are remembered with their tokens, so that a prompt that extends one is not hashed again."""


class CachedSequence:
    """A growing sequence of tokens and the names of its whole blocks; a name stands for a block's content and all that
    comes before it."""

    __slots__ = ("_block_size", "ids", "names")

    def __init__(self, block_size: int, ids: list[int], names: list[int]) -> None:
        self._block_size = block_size
        self.ids = ids
        self.names = names
        self.extend(())

    def extend(self, ids: Sequence[int]) -> None:
        """Append tokens and name the blocks that became whole."""
        tokens, names, size = self.ids, self.names, self._block_size
        tokens.extend(ids)
        name = names[-1]
        for start in range((len(names) - 1) * size, len(tokens) - size + 1, size):
            name = hash((name, *tokens[start : start + size]))
            names.append(name)


class PrefixCache:
    """Blocks of `block_size` tokens that were computed and are still held."""

    def __init__(self, block_size: int = 16, capacity_blocks: int = 1 << 16) -> None:
        self.block_size = block_size
        self._capacity = capacity_blocks
        self._blocks: OrderedDict[int, None] = OrderedDict()
        self._recent: OrderedDict[tuple[object, ...], CachedSequence] = OrderedDict()

    def sequence(self, ids: Sequence[int], salt: str | None = None) -> CachedSequence:
        """A sequence to match and store; different salts never share blocks."""
        tokens = list(ids)
        names = [hash(salt)]
        key = (salt, *tokens[: self.block_size])
        before = self._recent.get(key)
        if before is not None and tokens[: len(before.ids)] == before.ids:
            names = before.names[: len(before.ids) // self.block_size + 1]
        sequence = CachedSequence(self.block_size, tokens, names)
        self._recent[key] = CachedSequence(self.block_size, list(tokens), list(names))
        self._recent.move_to_end(key)
        if len(self._recent) > _RECENT:
            self._recent.popitem(last=False)
        return sequence

    def match(self, sequence: CachedSequence) -> int:
        """How many leading tokens of it are held."""
        blocks, size = self._blocks, self.block_size
        cached = 0
        for name in sequence.names[1 : (len(sequence.ids) - 1) // size + 1]:
            if name not in blocks:
                break
            cached += size
        return cached

    def store(self, sequence: CachedSequence, start: int = 0) -> None:
        """Hold every whole block of a computed sequence from token `start` on, as the most recently used."""
        blocks = self._blocks
        for name in sequence.names[start // self.block_size + 1 :]:
            blocks[name] = None
            blocks.move_to_end(name)
        while len(blocks) > self._capacity:
            blocks.popitem(last=False)
