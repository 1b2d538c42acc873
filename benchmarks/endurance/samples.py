"""Samples of a gateway's process over a run, and a picture of their curves.

Promise: `pause_ms` is the longest that a request to `/health` took since the sample before, of one every 50 ms: no
pause of the event loop that is longer than that goes unseen. `busy_ms` is the longest that the thread of the event loop
was on a core during one such request: the rest of a pause is the machine's doing, which had no core for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import msgspec

from benchmarks.measure.usage import rss_mib

PROBE_S = 0.05


class Sample(msgspec.Struct):
    """What the gateway's process looked like at one moment."""

    minute: float
    rss_mib: float
    descriptors: int
    threads: int
    live: int
    pause_ms: float
    turns: int
    busy_ms: float | None = None


def held(pid: int) -> tuple[int, int]:
    """Threads and file descriptors of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"Threads:\s+(\d+)", status)[1]), len(list(Path(f"/proc/{pid}/fd").iterdir()))  # type: ignore[index]


def on_core_ms(pid: int) -> float:
    """How long the first thread of a process was on a core, in all."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e6


class Watch:
    """Takes a sample every `every` seconds until it is stopped."""

    def __init__(self, base: str, pid: int, tally: Counter[str], every: float) -> None:
        self.samples: list[Sample] = []
        self._base = base
        self._pid = pid
        self._tally = tally
        self._every = every
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Take the last sample and end."""
        self._stopped.set()

    async def run(self) -> None:
        """Probe and sample."""
        began = time.monotonic()
        due, longest, busiest = began + self._every, 0.0, 0.0
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
            while True:
                asked, worked = time.perf_counter(), on_core_ms(self._pid)
                with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                    async with session.get(f"{self._base}/health") as answer:
                        await answer.read()
                longest = max(longest, (time.perf_counter() - asked) * 1000)
                busiest = max(busiest, on_core_ms(self._pid) - worked)
                over = self._stopped.is_set()
                if over or time.monotonic() >= due:
                    due += self._every
                    self.samples.append(await self._sample(session, began, longest, busiest))
                    longest = busiest = 0.0
                if over:
                    return
                await asyncio.sleep(PROBE_S)

    async def _sample(self, session: aiohttp.ClientSession, began: float, longest: float, busiest: float) -> Sample:
        async with session.get(f"{self._base}/metrics") as answer:
            found = re.findall(r"^turnwire_live_turns(?:{.*})? (\S+)$", await answer.text(), re.MULTILINE)
        threads, descriptors = held(self._pid)
        live = int(sum(float(value) for value in found))
        minute = round((time.monotonic() - began) / 60, 3)
        memory, asked = round(rss_mib(self._pid), 1), self._tally["asked"]
        return Sample(minute, memory, descriptors, threads, live, round(longest, 1), asked, round(busiest, 1))


CURVES = (("rss_mib", "memory, MiB"), ("descriptors", "file descriptors"), ("threads", "threads"),
          ("live", "live turns"), ("pause_ms", "longest /health, ms"))  # fmt: skip


def picture(samples: Sequence[Sample], across: str, names: Sequence[str]) -> str:
    """A curve for each quantity over the minutes or the turns, each on its own scale from zero."""
    wide, high, parts = 720, 84, []
    last = float(getattr(samples[-1], across)) or 1.0
    drawn = [(name, text) for name, text in CURVES if name in names]
    for number, (name, text) in enumerate(drawn):
        top = 40 + number * (high + 30)
        values = [float(getattr(sample, name)) for sample in samples]
        most = max(values) or 1.0
        points = " ".join(
            f"{60 + wide * float(getattr(sample, across)) / last:.1f},{top + high - high * value / most:.1f}"
            for sample, value in zip(samples, values, strict=True)
        )
        parts.append(
            f'<text x="60" y="{top - 8}">{text}</text><text class="small" x="52" y="{top + 10}">{most:.0f}</text>'
            f'<text class="small" x="52" y="{top + high}">0</text>'
            f'<path d="M60 {top + high}H{60 + wide}"/><polyline points="{points}"/>'
        )
    bottom = 40 + len(drawn) * (high + 30)
    style = (
        "text{font:13px system-ui,sans-serif;fill:#1f2933}.small{font-size:11px;fill:#5f6c7b;text-anchor:end}"
        "polyline{fill:none;stroke:#3b82c4;stroke-width:1.5}path{stroke:#9aa7b4}"
        "@media (prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9aa7b4}}"
    )
    end = f"minute {last:.0f}" if across == "minute" else f"{last:,.0f} turns"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide + 90} {bottom + 20}" role="img" '
        f'aria-label="The gateway up to {end}"><style>{style}</style>{"".join(parts)}'
        f'<text class="small" x="{60 + wide}" y="{bottom}">{end}</text></svg>\n'
    )
