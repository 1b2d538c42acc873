"""What becomes of a turn whose worker failed: a table, and the budget that bounds it.

Promise: sans-IO. The engine's word, whether this worker had said anything, and whether the turn can go on elsewhere
decide; nothing else does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

from turnwire.engines.failures import Kind

__all__ = ["Attempts", "Budget", "Next", "next_step"]

Next: TypeAlias = Literal["retry", "migrate", "give_up"]

# The kind of failure: what follows if this worker had said nothing, and if it had. Whatever cannot move is given up.
_NEXT: Mapping[Kind, tuple[Next, Next]] = {
    "unreachable": ("retry", "migrate"),
    "disconnected": ("retry", "migrate"),
    "overloaded": ("retry", "migrate"),
    "timeout": ("retry", "migrate"),
    "internal": ("retry", "migrate"),
    # The request's own fault: the same everywhere.
    "context_overflow": ("give_up", "give_up"),
    "invalid_request": ("give_up", "give_up"),
}

_COMES_BACK: frozenset[Kind] = frozenset({"unreachable", "disconnected"})
"""Words after which the same worker may be asked again, once it is back."""


def next_step(word: Kind, *, had_output: bool, can_move: bool) -> Next:
    """The table."""
    return _NEXT[word][had_output] if can_move else "give_up"


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """How often in a row a turn may be refused (`retries`) or lose its worker (`migrations`). A worker that said
    `progress` tokens before it failed does not count, but no turn moves more than `moves` times in all."""

    retries: int = 3
    migrations: int = 3
    progress: int = 16
    moves: int = 64


class Attempts:
    """What one turn has used of its budget."""

    __slots__ = ("_budget", "_moved", "_refused", "_total")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._refused = self._moved = self._total = 0

    def after(self, word: Kind, *, said: int, movable: bool, others: bool) -> Next:
        """What follows the failure of a worker that said `said` tokens (or steps) of this turn. `movable`: another
        worker can go on from the tokens so far; `others`: there is another one that could take the turn."""
        somewhere = others or word in _COMES_BACK
        if said:
            self._refused = 0
            self._moved = 0 if said >= self._budget.progress else self._moved
            room = self._moved < self._budget.migrations and self._total < self._budget.moves
        else:
            room = self._refused < self._budget.retries
        step = next_step(word, had_output=bool(said), can_move=movable and somewhere and room)
        if step == "retry":
            self._refused += 1
        elif step == "migrate":
            self._moved += 1
            self._total += 1
        return step
