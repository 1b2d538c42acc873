"""Which blocks of the key-value cache hold which tokens.

Promise: a block is shared by every sequence that begins with the same tokens, a block in use is never given away, and
the block unused for longest goes first. The work follows the number of blocks of the sequence asked about.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

BLOCK = 16


class PrefixCache:
    """Blocks of `BLOCK` tokens, found by their tokens and by the block before them."""

    def __init__(self, blocks: int) -> None:
        self._free = list(range(blocks - 1, -1, -1))
        self._found: dict[tuple[int, tuple[int, ...]], int] = {}
        self._key: dict[int, tuple[int, tuple[int, ...]]] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._users: dict[int, int] = {}

    def take(self, ids: Sequence[int], room: int) -> tuple[list[int], int]:
        """Blocks for `ids` and `room` tokens more, and how many tokens the first of them hold already.

        The last token is always computed again: its output is the first new token.
        """
        table, parent = [], -1
        for start in range(0, (len(ids) - 1) // BLOCK * BLOCK, BLOCK):
            block = self._found.get((parent, tuple(ids[start : start + BLOCK])))
            if block is None:
                break
            table.append(block)
            parent = block
        held = len(table)
        for block in table:
            self._use(block)
        while len(table) * BLOCK < len(ids) + room:
            block = self._new()
            self._use(block)
            table.append(block)
        return table, held * BLOCK

    def keep(self, table: Sequence[int], ids: Sequence[int]) -> None:
        """The sequence has ended: its full blocks can be found by others, all of them may be given away again."""
        parent = -1
        for number, block in enumerate(table):
            tokens = tuple(ids[number * BLOCK : (number + 1) * BLOCK])
            if len(tokens) == BLOCK and parent is not None:
                known = self._found.get((parent, tokens))
                if known is None and block not in self._key:
                    self._found[parent, tokens] = block
                    self._key[block] = (parent, tokens)
                parent = known if known is not None else block
            self._leave(block)

    def _use(self, block: int) -> None:
        self._users[block] = self._users.get(block, 0) + 1
        self._idle.pop(block, None)

    def _leave(self, block: int) -> None:
        self._users[block] -= 1
        if self._users[block]:
            return
        del self._users[block]
        if block in self._key:
            self._idle[block] = None
        else:
            self._free.append(block)

    def _new(self) -> int:
        if self._free:
            return self._free.pop()
        if not self._idle:
            raise MemoryError("the cache is full of running sequences: make it larger")
        block, _ = self._idle.popitem(last=False)
        del self._found[self._key.pop(block)]
        return block
