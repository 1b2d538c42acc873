"""Runs the load generator and reads a gateway's CPU time around what it counts.

Promise: the tokens that CPU time is divided by are those the engine said in that time, by its own count.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.load.requests import ENDINGS, PATHS, Api
from benchmarks.measure.usage import cpu_seconds, rss_mib
from benchmarks.peers import cache
from benchmarks.peers.gateways import Gateway


class Counted(msgspec.Struct):
    """What the load generator printed; `first_ms` is least, median, p99, `late_ms` median, p90, p99, most."""

    seconds: float
    turns: int
    errors: int
    cut: int
    speaking: int
    events: int
    words: int
    bytes: int
    first_ms: tuple[float, float, float]
    late_ms: tuple[float, float, float, float]
    cpu_s: float


class Load(NamedTuple):
    """A load and what it cost the gateway."""

    counted: Counted
    cpu: float
    tokens: int
    rss: float

    @property
    def each(self) -> float:
        """µs of CPU for a token."""
        return self.cpu / max(1, self.tokens) * 1e6


class LoadFailure(Exception):
    """Turns failed or were cut short."""


def turns(gateway: Gateway, api: Api, body: bytes, streams: int, count: int, word: str) -> Load:
    """`count` whole turns, `streams` at a time."""
    return _run(gateway, api, body, [str(streams), "turns", str(count)], {"WORD": word})


def window(
    gateway: Gateway, api: Api, body: bytes, streams: int, warm: float, seconds: float, word: str, period: float = 0
) -> Load:
    """`streams` turns held open, counted for `seconds` in the middle."""
    given = {"WORD": word, "PERIOD": str(period)}
    return _run(gateway, api, body, [str(streams), "window", str(warm), str(seconds)], given)


def _run(gateway: Gateway, api: Api, body: bytes, arguments: list[str], given: dict[str, str]) -> Load:
    file = gateway.processes.folder / f"{gateway.name}-request.json"
    file.write_bytes(body)
    program = cache.program(Path(__file__).with_name("loadgen.c"))
    command = [str(program), str(gateway.port), PATHS[api], str(file), *arguments]
    environment = {**os.environ, **given, "ENDING": ENDINGS[api]}
    begin = end = (cpu_seconds(gateway.pid), gateway.tokens.value, 0.0)
    counted: Counted | None = None
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            if line.startswith("begin"):
                begin = (cpu_seconds(gateway.pid), gateway.tokens.value, 0.0)
            elif line.startswith("end"):
                end = (cpu_seconds(gateway.pid), gateway.tokens.value, rss_mib(gateway.pid))
            else:
                counted = msgspec.convert(json.loads(line), Counted)
        complaint = process.stderr.read()
    if counted is None or counted.errors or counted.cut:
        raise LoadFailure(f"{counted} {complaint[:500]}")
    return Load(counted, end[0] - begin[0], end[1] - begin[1], end[2])
