"""uvicorn that sleeps while nothing happens.

Promise: a server without requests does not wake up; it ends at once when `should_exit` is set in its event loop. There
is no date in its answers. This leans on parts of uvicorn that are not its public interface, so its version is pinned.
"""

from __future__ import annotations

import asyncio

import uvicorn

__all__ = ["SleepingServer"]


class SleepingServer(uvicorn.Server):
    """uvicorn's own server looks ten times a second whether to end, which takes two milliseconds of CPU time: each look
    finds cold caches. Between an agent's turns that was a twentieth of the gateway's work."""

    def __init__(self, config: uvicorn.Config) -> None:
        self._exit = asyncio.Event()
        super().__init__(config)

    @property
    def should_exit(self) -> bool:
        """Whether the server ends."""
        return self._exit.is_set()

    @should_exit.setter
    def should_exit(self, ends: bool) -> None:
        if ends:
            self._exit.set()

    async def main_loop(self) -> None:
        """Wait for the end."""
        # Once, for the headers that all answers have; a date among them would stand still.
        await self.on_tick(0)
        await self._exit.wait()
