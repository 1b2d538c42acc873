"""Turnwire with a clock in its event loop: how long the loop works at most before others have their turn.

    python -m benchmarks.measure.steps FILE serve ...

Promise: FILE holds the longest step since it was cleared, in seconds of CPU of the loop's thread, so that other work on
the machine does not count. A step is what lies between two looks at the clock, every half millisecond of a free loop.
"""

from __future__ import annotations

import asyncio
import mmap
import socket
import struct
import sys
import time
from pathlib import Path

_EVERY = 0.0005
_SECONDS = struct.Struct("d")


class Steps:
    """The longest step of a gateway, as both sides see it."""

    def __init__(self, file: Path) -> None:
        if not file.exists():
            file.write_bytes(_SECONDS.pack(0.0))
        with file.open("r+b") as opened:
            self._map = mmap.mmap(opened.fileno(), _SECONDS.size)

    @property
    def longest(self) -> float:
        return float(_SECONDS.unpack_from(self._map)[0])

    @longest.setter
    def longest(self, seconds: float) -> None:
        _SECONDS.pack_into(self._map, 0, seconds)


def _watch(steps: Steps) -> None:
    """Look at the clock for as long as the loop runs."""
    loop, last = asyncio.get_running_loop(), time.thread_time()

    def look() -> None:
        nonlocal last
        now = time.thread_time()
        steps.longest = max(steps.longest, now - last)
        last = now
        loop.call_later(_EVERY, look)

    look()


def main() -> None:
    from turnwire.cli.main import main as turnwire
    from turnwire.gateway.server import GatewayServer

    file, sys.argv[1:] = Path(sys.argv[1]), sys.argv[2:]
    startup = GatewayServer.startup

    async def watched(self: GatewayServer, sockets: list[socket.socket] | None = None) -> None:
        await startup(self, sockets)
        _watch(Steps(file))

    GatewayServer.startup = watched  # type: ignore[method-assign]
    turnwire()


if __name__ == "__main__":
    main()
