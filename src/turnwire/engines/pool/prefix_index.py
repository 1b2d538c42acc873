"""What each worker's prefix cache probably holds, as chains of block hashes.

Promise: constant memory (an LRU of blocks per worker) and one hash per block of prompt; an estimate of reuse, never a
claim about what the engine did.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

__all__ = ["PrefixIndex", "block_hashes"]


def block_hashes(ids: Sequence[int], *, block: int = 64, salt: str = "") -> list[bytes]:
    """The chained hash of every full block of `ids`: equal hashes mean equal prefixes."""
    data = array("I", ids).tobytes()
    width = 4 * block
    chain = blake2b(salt.encode(), digest_size=16)
    hashes = []
    for start in range(0, len(data) - width + 1, width):
        chain.update(data[start : start + width])
        hashes.append(chain.digest())
    return hashes


class PrefixIndex:
    """The blocks that one worker has seen lately."""

    def __init__(self, capacity: int = 65536) -> None:
        self._capacity = capacity
        self._blocks: OrderedDict[bytes, None] = OrderedDict()

    def add(self, hashes: Sequence[bytes]) -> None:
        for digest in hashes:
            self._blocks[digest] = None
            self._blocks.move_to_end(digest)
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)

    def overlap(self, hashes: Sequence[bytes]) -> int:
        """How many leading blocks are held; since hashes are chained, the first miss ends it."""
        low, high = 0, len(hashes)
        while low < high:
            middle = (low + high) // 2
            if hashes[middle] in self._blocks:
                low = middle + 1
            else:
                high = middle
        return low

    def clear(self) -> None:
        """Forget everything: the worker restarted with a cold cache."""
        self._blocks.clear()
