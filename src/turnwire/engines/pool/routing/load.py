"""What a worker still has to do for the turns it has, and how much they will write, in tokens of prompt.

Promise: sans-IO and bounded; constant work for each change. Whatever a turn added is gone when it ends.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

__all__ = ["ExpectedOutput", "Load", "TurnLoad"]

_TOKEN = 2.0
"""What writing a token costs beside reading one: it takes a place in every step until it is there."""
_CONTEXT = 8192
"""Tokens of context that double it: all of them are read for each token that is written."""


class TurnLoad(msgspec.Struct, gc=False):
    """What one turn adds to its worker's load."""

    prefilling: int
    decoding: float
    context: int
    expected: int


class Load:
    """The load of one worker: tokens that its turns have to read (`prefilling`), and what the output that is still to
    come costs (`decoding`)."""

    __slots__ = ("decoding", "prefilling")

    def __init__(self) -> None:
        self.prefilling = 0
        self.decoding = 0.0

    def begin(self, uncached: int, context: int, expected: int) -> TurnLoad:
        """A turn comes: so many tokens to read of so many, and so many to write."""
        turn = TurnLoad(max(uncached, 0), _decoding(expected, context), context, expected)
        self.prefilling += turn.prefilling
        self.decoding += turn.decoding
        return turn

    def read(self, turn: TurnLoad) -> None:
        """The turn's prompt was read."""
        self.prefilling -= turn.prefilling
        turn.prefilling = 0

    def wrote(self, turn: TurnLoad, tokens: int) -> None:
        """The turn has written so many tokens in all. One that writes more than was expected may go on for as long as
        a quarter of it."""
        left = _decoding(max(turn.expected - tokens, turn.expected // 4), turn.context)
        self.decoding += left - turn.decoding
        turn.decoding = left

    def end(self, turn: TurnLoad) -> None:
        """The turn is over."""
        self.read(turn)
        self.decoding = max(self.decoding - turn.decoding, 0.0)
        turn.decoding = 0.0


def _decoding(tokens: int, context: int) -> float:
    return tokens * _TOKEN * (1 + context / _CONTEXT)


class ExpectedOutput:
    """How much a conversation's next turn will write: as the request says, else as its turns before, else as all."""

    _RATE = 0.3
    _RATE_OF_ALL = 0.05

    def __init__(self, start: float = 256.0, capacity: int = 4096) -> None:
        self._all = start
        self._capacity = capacity
        self._conversations: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._conversations)

    def of(self, conversation: str | None, stated: int | None, most: int | None) -> int:
        """Tokens that a turn will probably write, at `most` so many."""
        if stated is None:
            stated = int(self._conversations.get(conversation or "", self._all))
        return max(stated if most is None else min(stated, most), 1)

    def learn(self, conversation: str | None, tokens: int) -> None:
        """A turn of a conversation has written so many."""
        self._all += self._RATE_OF_ALL * (tokens - self._all)
        if conversation:
            before = self._conversations.get(conversation)
            self._conversations[conversation] = tokens if before is None else before + self._RATE * (tokens - before)
            self._conversations.move_to_end(conversation)
            if len(self._conversations) > self._capacity:
                self._conversations.popitem(last=False)
