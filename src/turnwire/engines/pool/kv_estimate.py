"""What a worker's cache probably holds, where the worker does not publish it: what it was given lately.

Promise: sans-IO, bounded, and never a block whose beginning is not held too. What was only sent counts for a short
time; what was served counts until the room is needed, and then the ends of prefixes go before their beginnings.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

__all__ = ["KVEstimate"]


class KVEstimate:
    """The blocks that one worker has got lately. `sent_life` is how many seconds a prompt counts that was sent and not
    yet served, `served_life` how many one that was."""

    def __init__(self, capacity: int = 65536, *, sent_life: float = 30.0, served_life: float = 3600.0) -> None:
        self._capacity = capacity
        self._sent_life = sent_life
        self._served_life = served_life
        # Until when each block counts, least recently used first. A block is always touched after those that follow
        # it, so whatever goes first has nothing after it.
        self._until: OrderedDict[int, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._until)

    def sent(self, blocks: Sequence[int], now: float) -> None:
        """A prompt was sent: turns that come right after it find it there."""
        self._touch(blocks, now + self._sent_life)

    def served(self, blocks: Sequence[int], now: float) -> None:
        """A prompt was read to its end."""
        self._touch(blocks, now + self._served_life)

    def overlap(self, blocks: Sequence[int], now: float) -> int:
        """How many leading blocks are probably held."""
        until = self._until
        low, high = 0, len(blocks)
        # A block is held no longer than the one before it, so what is held is a beginning.
        while low < high:
            middle = (low + high) // 2
            if until.get(blocks[middle], 0.0) > now:
                low = middle + 1
            else:
                high = middle
        return low

    def clear(self) -> None:
        """The worker began anew."""
        self._until.clear()

    def _touch(self, blocks: Sequence[int], until: float) -> None:
        held = self._until
        for block in reversed(blocks[: self._capacity]):
            held[block] = max(held.get(block, 0.0), until)
            held.move_to_end(block)
        while len(held) > self._capacity:
            held.popitem(last=False)
