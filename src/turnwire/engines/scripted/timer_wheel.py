"""One timer for all streams of a process: due streams are woken together, each by its own future.

Promise: one timer handle exists at any time, however many streams wait; a stream costs one future per wake-up; closing
ends every wait with the given error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from math import ceil

__all__ = ["TimerWheel"]

TICK = 0.001
"""Resolution in seconds; streams due in the same tick wake in the same turn of the event loop."""


class TimerWheel:
    """Waits until points of the running loop's clock. Belongs to one event loop."""

    def __init__(self) -> None:
        self._due: dict[int, list[asyncio.Future[None]]] = {}
        self._ticks: list[int] = []
        self._timer: asyncio.TimerHandle | None = None
        self._forever: set[asyncio.Future[None]] = set()
        self._closed: Callable[[], BaseException] | None = None

    def until(self, when: float) -> asyncio.Future[None]:
        """A future that is done at `when` (loop time), or in the loop's next turn if that has passed."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        if self._closed is not None:
            future.set_exception(self._closed())
            return future
        tick = ceil(when / TICK)
        waiting = self._due.get(tick)
        if waiting is None:
            self._due[tick] = [future]
            heappush(self._ticks, tick)
            if self._ticks[0] == tick:
                self._arm(loop)
        else:
            waiting.append(future)
        return future

    def forever(self) -> asyncio.Future[None]:
        """A future that only the wheel's close ends (or its waiter's cancellation)."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._closed is not None:
            future.set_exception(self._closed())
        else:
            self._forever.add(future)
            future.add_done_callback(self._forever.discard)
        return future

    def close(self, error: Callable[[], BaseException]) -> None:
        """End every wait, now and later, with `error()`."""
        self._closed = error
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waits: list[asyncio.Future[None]] = [future for futures in self._due.values() for future in futures]
        for future in (*waits, *self._forever):
            if not future.done():
                future.set_exception(error())
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
        ticks, due = self._ticks, self._due
        while ticks and ticks[0] <= now:
            for future in due.pop(heappop(ticks)):
                if not future.done():
                    future.set_result(None)
        if ticks:
            self._arm(loop)
