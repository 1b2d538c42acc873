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
    """The outage of one store, as those who asked it saw it."""

    # How long an outage that has just begun is waited out, in seconds.
    GRACE_S = 10.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: float | None = None

    def seen(self) -> None:
        """The store did not answer."""
        if self._since is None:
            self._since = self._clock()

    def over(self) -> None:
        """The store answered."""
        self._since = None

    @property
    def left(self) -> float:
        """For how many seconds more it is waited out; 0 where there is none, or where it has lasted too long."""
        since = self._since
        return 0.0 if since is None else max(0.0, since + self.GRACE_S - self._clock())


@runtime_checkable
class SharedTurns(Protocol):
    """A turn store that other processes share, and that may be away."""

    outage: Outage

    @property
    def away(self) -> bool:
        """Whether it is left alone now because it did not answer."""
        ...

    def get(self, space: str, key: str) -> tuple[StoredTurn, ...]: ...


class Lookups:
    """A turn store as one request asks it: `unanswered` where a turn may be there that could not be looked up."""

    waits = True

    def __init__(self, store: SharedTurns) -> None:
        self._store = store
        self.unanswered = False

    def get(self, space: str, key: str) -> tuple[StoredTurn, ...]:
        found = self._store.get(space, key)
        self.unanswered |= not found and self._store.away
        return found
