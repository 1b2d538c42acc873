"""Memory that is not needed any more goes back to the system.

Promise: what loading needed goes back before the first turn, and what many turns needed once they have ended and none
has followed for a while; nothing is done while a turn lives. Without glibc the allocator decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc

from turnwire.gateway.turns.heartbeat import Heartbeat

__all__ = ["return_memory", "return_when_quiet"]

_QUIET_S = 10.0


def return_memory() -> None:
    """Give back what the allocator holds and nobody uses: a tokenizer's file takes ten times its size to read."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


async def return_when_quiet(heartbeat: Heartbeat, quiet_s: float = _QUIET_S) -> None:
    """Give memory back each time turns have run and none has begun for `quiet_s`."""
    returned = heartbeat.begun
    while True:
        begun = heartbeat.begun
        await asyncio.sleep(quiet_s)
        if heartbeat.quiet.is_set() and heartbeat.begun == begun != returned:
            # Connections stand in circles, and an idle gateway makes nothing new that would call the collector.
            gc.collect()
            await asyncio.to_thread(return_memory)
            returned = begun
