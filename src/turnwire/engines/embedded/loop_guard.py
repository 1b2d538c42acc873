"""Notices when a small model has begun to repeat itself without end.

Promise: only output whose last tokens are one passage repeated again and again counts, `SPAN` tokens of it and at least
`TIMES` times over. The work is linear in the output: a bounded look at the tail, once in every `EVERY` tokens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

__all__ = ["LoopGuard"]

SPAN = 320
TIMES = 5
EVERY = 64


class LoopGuard:
    """Fed with the tokens of one generation."""

    def __init__(self) -> None:
        self._tail: deque[int] = deque(maxlen=SPAN)
        self._unseen = 0

    def feed(self, ids: Sequence[int]) -> bool:
        """Take more tokens; whether the generation goes round in a loop."""
        self._tail.extend(ids)
        self._unseen += len(ids)
        if len(self._tail) < SPAN or self._unseen < EVERY:
            return False
        self._unseen = 0
        return SPAN // _period(list(self._tail)) >= TIMES


def _period(tokens: list[int]) -> int:
    """The length of the shortest passage that, repeated (the last time perhaps in part), gives the tokens."""
    borders = [0] * len(tokens)
    matched = 0
    for at in range(1, len(tokens)):
        while matched and tokens[at] != tokens[matched]:
            matched = borders[matched - 1]
        matched += tokens[at] == tokens[matched]
        borders[at] = matched
    return len(tokens) - borders[-1]
