"""A hundred thousand turns through one gateway process: its memory over the turns, and every answer checked.

    python -m benchmarks endurance [--turns 100000] [--clients 48] [--processes 4] [--minutes 60] [--save]

Conversations of up to seven turns on the three APIs, each with material of its own that no other has, so that every
store of the gateway fills up to its bound. Stand-ins for engines answer at once. What is asked of the curve: the last
third of the turns adds no memory beyond the noise.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from benchmarks.endurance.clients import Client
from benchmarks.endurance.samples import Sample, Watch, picture
from benchmarks.engines.stand_ins import StandIn
from benchmarks.measure.results import FOLDER, machine, today
from benchmarks.measure.usage import cpu_seconds

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "src" / "turnwire" / "prompts" / "data"
ENGINES = 3
MATERIAL = 3000
# A bound that a third of the turns reaches.
MEMORY = 128 * 1024 * 1024
TOKENS = 40


class Endurance(msgspec.Struct):
    """The result file."""

    command: str
    taken: str
    machine: dict[str, str | int | float]
    tally: dict[str, int]
    seconds: float
    cpu_seconds: float
    samples: list[Sample]

    def median(self, first: float, last: float) -> float:
        """The median memory between two parts of the turns."""
        most = self.samples[-1].turns
        return statistics.median(s.rss_mib for s in self.samples if first * most <= s.turns <= last * most)


def clients(base: str, first: int, count: int, turns: int, until: float, told: Any) -> None:
    """The clients of one process, which ask until so many turns or a time; what became of their turns goes to `told`
    every second."""

    async def run() -> None:
        tally: Counter[str] = Counter()
        connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=120)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            each = [Client(first + n, base, session, tally, material=MATERIAL, tokens=TOKENS) for n in range(count)]

            def more() -> bool:
                return tally["asked"] < turns and time.monotonic() < until

            working = asyncio.gather(*(client.run(more) for client in each))
            while not working.done():
                await asyncio.wait([working], timeout=1.0)
                told.put((first, dict(tally)))
            await working

    asyncio.run(run())


async def collect(queue: Any, tally: Counter[str], processes: Sequence[Any]) -> None:
    """Keep the sum of what the processes tell, until they are over."""
    known: dict[int, dict[str, int]] = {}
    while True:
        over = not any(process.is_alive() for process in processes)
        while not queue.empty():
            first, counts = queue.get()
            known[first] = counts
        tally.clear()
        for counts in known.values():
            tally.update(counts)
        if over:
            return
        await asyncio.sleep(0.2)


async def run(options: argparse.Namespace) -> Endurance:
    """All of it; the processes end with it."""
    with contextlib.ExitStack() as stack:
        engines = [StandIn("--tokens", str(TOKENS), "--delay-ms", "0") for _ in range(ENGINES)]
        for engine in engines:
            engine.start()
            stack.callback(engine.kill)
        for engine in engines:
            engine.wait()
        command = [sys.executable, "-m", "turnwire", "serve", "--port", "0", "--log-level", "error"]
        command += ["--engine", ",".join(f"vllm:http://127.0.0.1:{engine.port}" for engine in engines)]
        command += ["--tokenizer", str(DATA / "turnwire-tokenizer.json"), "--template", str(DATA / "turnwire.jinja")]
        command += ["--dialect", "qwen3_coder"]
        environment = os.environ | {"TURNWIRE_MEMORY": str(MEMORY)}
        gateway = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220 - nothing runs yet
        stack.callback(gateway.kill)
        assert gateway.stdout is not None
        port = int(re.search(r"127\.0\.0\.1:(\d+)", gateway.stdout.readline())[1])  # type: ignore[index]
        base, tally, began = f"http://127.0.0.1:{port}", Counter[str](), time.monotonic()
        spawn = multiprocessing.get_context("spawn")
        queue = spawn.Queue()
        share, turns = options.clients // options.processes, options.turns // options.processes
        until = began + options.minutes * 60
        processes = [
            spawn.Process(target=clients, args=(base, 1 + number * share, share, turns, until, queue))
            for number in range(options.processes)
        ]
        for process in processes:
            process.start()
            stack.callback(process.kill)
        watch = Watch(base, gateway.pid, tally, options.every)
        watching = asyncio.create_task(watch.run())
        await collect(queue, tally, processes)
        watch.stop()
        await watching
        seconds, spent = time.monotonic() - began, cpu_seconds(gateway.pid)
        gateway.send_signal(signal.SIGTERM)
        tally["exit status of the gateway"] = await asyncio.to_thread(gateway.wait, 40)
    return Endurance(
        "endurance", today(), machine(), dict(sorted(tally.items())), round(seconds, 1), round(spent, 1), watch.samples
    )


def main(arguments: list[str]) -> None:
    """Run, print what was counted, and end with 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks endurance", description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=48)
    parser.add_argument("--processes", type=int, default=4, help="of the clients")
    parser.add_argument("--minutes", type=float, default=60.0, help="at most, however many turns there were")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between samples")
    parser.add_argument("--save", action="store_true", help="write the result file and the picture")
    options = parser.parse_args(arguments)
    made = asyncio.run(run(options))
    for name, count in made.tally.items():
        print(f"{name:28} {count}")
    print(f"seconds, of them gateway CPU {made.seconds:.0f}, {made.cpu_seconds:.0f}")
    for at in range(0, 100, 10):
        print(f"memory at {at:2} to {at + 10:3} %       {made.median(at / 100, (at + 10) / 100):.0f} MiB")
    print(f"longest /health              {max(sample.pause_ms for sample in made.samples):.0f} ms")
    print(f"own work during one, at most {max(sample.busy_ms or 0 for sample in made.samples):.0f} ms")
    if options.save:
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / "endurance.json").write_bytes(msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n")
        page = picture(made.samples, "turns", ("rss_mib", "descriptors", "threads", "pause_ms"))
        (ROOT / "docs" / "images" / "endurance.svg").write_text(page, encoding="utf-8")
    wrong = [name for name in made.tally if name.isupper() or name in ("told an error", "cut with an error")]
    if wrong or made.tally["exit status of the gateway"]:
        raise SystemExit(f"a promise was broken: {', '.join(wrong)}")
