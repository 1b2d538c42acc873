"""One timer for all streams of a process: what is due is called together.

Promise: one timer handle exists at any time, however many streams wait; calls come in the order of their times.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from math import ceil

__all__ = ["Due", "TimerWheel"]

TICK = 0.001
"""Resolution in seconds; streams due in the same tick are called in the same turn of the event loop."""


class Due:
    """A call to come."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self._call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """It does not come."""
        self._call = None

    def run(self) -> None:
        """Now it is here."""
        call, self._call = self._call, None
        if call is not None:
            call()


class TimerWheel:
    """Calls at points of the running loop's clock. Belongs to one event loop."""

    def __init__(self) -> None:
        self._due: dict[int, list[Due]] = {}
        self._ticks: list[int] = []
        self._timer: asyncio.TimerHandle | None = None

    def at(self, when: float, call: Callable[[], None]) -> Due:
        """Call at `when` (loop time), or in the loop's next turn if that has passed."""
        due, tick = Due(call), ceil(when / TICK)
        waiting = self._due.get(tick)
        if waiting is None:
            self._due[tick] = [due]
            heappush(self._ticks, tick)
            if self._ticks[0] == tick:
                self._arm(asyncio.get_running_loop())
        else:
            waiting.append(due)
        return due

    def close(self) -> None:
        """Nothing is called any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due.clear()
        self._ticks.clear()

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._ticks[0] * TICK, self._wake, loop)

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        # uvloop may fire up to a millisecond early; a tick that fires early is still this tick.
        now = ceil(loop.time() / TICK)
        ready: list[Due] = []
        while self._ticks and self._ticks[0] <= now:
            ready += self._due.pop(heappop(self._ticks))
        if self._ticks:
            self._arm(loop)
        for due in ready:
            due.run()
