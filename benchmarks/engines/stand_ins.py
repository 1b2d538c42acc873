"""Engine stand-ins as processes that can be killed, for the benchmarks of faults and of endurance.

Promise: needs nothing but the standard library, so that programs run from either folder can use it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

TOKENS = 120
_PROGRAM = Path(__file__).resolve().parents[1] / "engine_stand_in.py"


class StandIn:
    """An engine process that can be killed and started again on its port."""

    def __init__(self, *flags: str) -> None:
        self._flags = flags or ("--tokens", str(TOKENS))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it listens a moment later."""
        self.process = subprocess.Popen([sys.executable, str(_PROGRAM), str(self.port), *self._flags])

    def kill(self) -> None:
        """End it without a word."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def wait(self) -> None:
        """Return once it listens."""
        for _ in range(400):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 0.2):
                return
            time.sleep(0.05)
        raise RuntimeError("an engine did not start")


async def kill_now_and_then(
    engines: list[StandIn],
    until: float,
    tally: Counter[str],
    *,
    between: tuple[float, float],
    away: tuple[float, float],
) -> None:
    """Kill one of them after `between` seconds, start it again `away` seconds later, and so on."""
    dice = random.Random(7)
    while time.monotonic() < until:
        await asyncio.sleep(dice.uniform(*between))
        engine = dice.choice(engines)
        await asyncio.to_thread(engine.kill)
        tally["engines killed"] += 1
        await asyncio.sleep(dice.uniform(*away))
        engine.start()
