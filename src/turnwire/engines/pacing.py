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

    async def until(self, when: float) -> None:
        """Return at `when` (loop time) or, if that has passed, in the loop's next turn."""
        if self._closed is not None:
            raise self._closed()
        loop = asyncio.get_running_loop()
        if when <= loop.time():
            await asyncio.sleep(0)
            return
        tick = ceil(when / TICK)
        future = loop.create_future()
        waiting = self._due.get(tick)
        if waiting is None:
            self._due[tick] = [future]
            heappush(self._ticks, tick)
            if self._ticks[0] == tick:
                self._arm(loop)
        else:
            waiting.append(future)
        await future

    async def forever(self) -> None:
        """Wait for the close of the wheel (or the caller's cancellation)."""
        if self._closed is not None:
            raise self._closed()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._forever.add(future)
        try:
            await future
        finally:
            self._forever.discard(future)

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
