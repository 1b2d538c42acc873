"""Runs the load generator and reads a gateway's CPU time around what it counts.

Promise: the tokens that CPU time is divided by are those the engine said in that time, by its own count.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
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


def windows(
    gateway: Gateway, api: Api, body: bytes, streams: int, warm: float, seconds: float, word: str, loads: int
) -> Load:
    """The same from several load generators at a time, `streams` of each. What is counted lies between the moment when
    the last of them has begun and the one when the first of them ends."""
    places: list[Counted] = []
    file = _request(gateway, body)
    taken: list[tuple[float, float, int, float]] = []
    lock, begun = threading.Lock(), 0

    def moment() -> tuple[float, float, int, float]:
        return time.monotonic(), cpu_seconds(gateway.pid), gateway.tokens.value, rss_mib(gateway.pid)

    def heard(line: str) -> None:
        nonlocal begun
        with lock:
            begun += line == "begin"
            if (line == "begin" and begun == loads) or (line == "end" and len(taken) == 1):
                taken.append(moment())

    def one(_: int) -> None:
        given = {"WORD": word}
        arguments = [str(streams), "window", str(warm), str(seconds)]
        with _started(gateway, api, file, arguments, given) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("{"):
                    places.append(msgspec.convert(json.loads(line), Counted))
                else:
                    heard(line.strip())

    with ThreadPoolExecutor(loads) as threads:
        list(threads.map(one, range(loads)))
    if len(taken) < 2 or len(places) < loads or any(each.errors or each.cut for each in places):
        raise LoadFailure(str(places)[:500])
    (began, cpu, tokens, _), (ended, last_cpu, last_tokens, rss) = taken[:2]
    counted = msgspec.structs.replace(
        places[0],
        seconds=ended - began,
        turns=sum(each.turns for each in places),
        speaking=sum(each.speaking for each in places),
        cpu_s=max(each.cpu_s for each in places),
    )
    return Load(counted, last_cpu - cpu, last_tokens - tokens, rss)


def _run(gateway: Gateway, api: Api, body: bytes, arguments: list[str], given: dict[str, str]) -> Load:
    begin = end = (cpu_seconds(gateway.pid), gateway.tokens.value, 0.0)
    counted: Counted | None = None
    with _started(gateway, api, _request(gateway, body), arguments, given) as process:
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


def _request(gateway: Gateway, body: bytes) -> Path:
    file = gateway.processes.folder / f"{gateway.name}-request.json"
    file.write_bytes(body)
    return file


def _started(
    gateway: Gateway, api: Api, file: Path, arguments: list[str], given: dict[str, str]
) -> subprocess.Popen[str]:
    program = cache.program(Path(__file__).with_name("loadgen.c"))
    command = [str(program), str(gateway.port), PATHS[api], str(file), *arguments]
    environment = {**os.environ, **given, "ENDING": ENDINGS[api]}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
