"""An outage of a shared store: when it began, and how long it is still waited out.

Promise: a store that restarts or fails over within `GRACE_S` costs a request time and nothing else; one that is away
for longer costs each request that time once at most, because from then on nobody waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from turnwire.prompts.recall.store import StoredTurn

__all__ = ["Lookups", "Outage", "SharedTurns"]


class Outage:
    """The outage of one store, as those who asked it saw it, whichever thread they are of."""

    # How long an outage that has just begun is waited out, in seconds.
    GRACE_S = 10.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Since when it does not answer, and until when it is left alone: one value, so that no thread sees half of it.
        self._state: tuple[float, float] | None = None

    def seen(self, pause: float) -> None:
        """The store did not answer; it is left alone for so many seconds."""
        now, known = self._clock(), self._state
        self._state = (known[0] if known is not None else now, now + pause)

    def over(self) -> None:
        """The store answered."""
        self._state = None

    @property
    def known(self) -> bool:
        """Whether the store did not answer the last time."""
        return self._state is not None

    @property
    def pause(self) -> float:
        """For how many seconds more the store is left alone."""
        state = self._state
        return 0.0 if state is None else max(0.0, state[1] - self._clock())

    @property
    def left(self) -> float:
        """For how many seconds more the outage is waited out; 0 where there is none, or where it lasts too long."""
        state = self._state
        return 0.0 if state is None else max(0.0, state[0] + self.GRACE_S - self._clock())


@runtime_checkable
class SharedTurns(Protocol):
    """A turn store that other processes share, and that may be away."""

    outage: Outage

    def get(self, space: str, key: str) -> tuple[StoredTurn, ...]: ...


class Lookups:
    """A turn store as one request asks it: `unanswered` where a turn may be there that could not be looked up."""

    waits = True

    def __init__(self, store: SharedTurns) -> None:
        self._store = store
        self.unanswered = False

    def get(self, space: str, key: str) -> tuple[StoredTurn, ...]:
        found = self._store.get(space, key)
        self.unanswered |= not found and self._store.outage.known
        return found
