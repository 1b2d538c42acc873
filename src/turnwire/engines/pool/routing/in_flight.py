"""Prompts that a worker is reading now: a turn that begins as one of them finds that beginning when its time comes.

Promise: sans-IO. Asking costs the logarithm of a prompt for each that is being read; nothing outlives its turn.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["InFlight"]


class InFlight:
    """The prompts in flight on one worker, as the numbers of their blocks."""

    def __init__(self) -> None:
        self._prompts: dict[int, Sequence[int]] = {}

    def __len__(self) -> int:
        return len(self._prompts)

    def add(self, turn: int, blocks: Sequence[int]) -> None:
        """A prompt is sent."""
        if blocks:
            self._prompts[turn] = blocks

    def remove(self, turn: int) -> None:
        """A prompt was read, or its turn is over; one that is not there changes nothing."""
        self._prompts.pop(turn, None)

    def overlap(self, blocks: Sequence[int]) -> int:
        """How many leading blocks are being read."""
        best = 0
        for other in self._prompts.values():
            # Equal numbers mean equal prefixes, so a longer match than the best so far shows at its next block.
            if best < len(blocks) and best < len(other) and blocks[best] == other[best]:
                best = _shared(blocks, other, best)
        return best


def _shared(one: Sequence[int], other: Sequence[int], low: int) -> int:
    high = min(len(one), len(other))
    while low < high:
        middle = (low + high) // 2
        if one[middle] == other[middle]:
            low = middle + 1
        else:
            high = middle
    return low
