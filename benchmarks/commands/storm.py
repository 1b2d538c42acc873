"""Turns in front of servers of which only one is sound: none is lost, cut short as a success, or hung.

    python -m benchmarks storm [--turns 10000] [--seed 1] [--clients 64] [--processes 4] [--save]

Five servers in processes of their own speak vLLM's wire; four of them fail six generations of ten, in some forty ways,
before the answer, at a random token or after it; the fifth is sound and has room, so that every error is one too many.
One gateway with its defaults, clients on three APIs, streamed and whole, of which some leave and some read slowly.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from typing import Any

import aiohttp
import msgspec

from benchmarks.commands.endurance import DATA
from benchmarks.measure.results import FOLDER, machine, today
from benchmarks.measure.usage import cpu_seconds
from benchmarks.storm.clients import PATHS, ask
from benchmarks.storm.rude_server import RudeServer
from turnwire.prompts.tokenizers.load import load_tokenizer

RUDENESS = (0.6, 0.6, 0.6, 0.6, 0.0)
DEADLINE_S = 90.0
"""From a turn's request to its last byte: several silent workers in a row, each found out in its time."""


class Storm(msgspec.Struct):
    """The result file. `faults` is what the servers did, `events` what the pool counted, `longest` the slowest turn."""

    command: str
    taken: str
    machine: dict[str, str | int | float]
    seed: int
    seconds: float
    cpu_seconds: float
    tally: dict[str, int]
    faults: dict[str, int]
    events: dict[str, int]
    longest: float


def serve(seed: int, rudeness: float, told: Any, over: Any) -> None:
    """One server, until `over` is set; its port is told at the beginning, its faults at the end."""

    async def run() -> None:
        server = RudeServer(load_tokenizer(None), seed, rudeness)
        async with server.listening() as url:
            told.put(url)
            await asyncio.to_thread(over.wait)
        told.put(dict(server.faults))

    asyncio.run(run())


def clients(base: str, seed: int, first: int, count: int, turns: int, told: Any) -> None:
    """The clients of one process; tells what became of their turns, and how long the longest took."""

    async def run() -> None:
        tally, left, longest = Counter[str](), turns, 0.0

        async def client(number: int, session: aiohttp.ClientSession) -> None:
            nonlocal left, longest
            dice = random.Random(f"{seed} {number}")
            while left > 0:
                left -= 1
                began = time.monotonic()
                try:
                    async with asyncio.timeout(DEADLINE_S):
                        word = await ask(session, base, dice.choice(list(PATHS)), f"{number}x{left}", dice)
                except TimeoutError:
                    word = "HUNG PAST ITS DEADLINE"
                tally[word] += 1
                longest = max(longest, time.monotonic() - began)

        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session:
            await asyncio.gather(*(client(first + number, session) for number in range(count)))
        told.put((dict(tally), longest))

    asyncio.run(run())


def run(options: argparse.Namespace) -> Storm:
    """All of it; the processes end with it."""
    spawn = multiprocessing.get_context("spawn")
    with contextlib.ExitStack() as stack:
        over, told = spawn.Event(), [spawn.Queue() for _ in RUDENESS]
        servers = [
            spawn.Process(target=serve, args=(100 * options.seed + number, rudeness, told[number], over))
            for number, rudeness in enumerate(RUDENESS)
        ]
        for server in servers:
            server.start()
            stack.callback(server.kill)
        urls = [queue.get(timeout=60) for queue in told]
        command = [sys.executable, "-m", "turnwire", "serve", "--port", "0", "--log-level", "error"]
        command += ["--engine", ",".join(f"vllm:{url}" for url in urls), "--dialect", "qwen3_coder"]
        command += ["--tokenizer", str(DATA / "turnwire-tokenizer.json"), "--template", str(DATA / "turnwire.jinja")]
        gateway = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        stack.callback(gateway.kill)
        assert gateway.stdout is not None
        base = re.search(r"http://127\.0\.0\.1:\d+", gateway.stdout.readline())[0]  # type: ignore[index]
        began, queue = time.monotonic(), spawn.Queue()
        share, turns = options.clients // options.processes, -(-options.turns // options.processes)
        asking = [
            spawn.Process(target=clients, args=(base, options.seed, 1 + share * n, share, turns, queue))
            for n in range(options.processes)
        ]
        for process in asking:
            process.start()
            stack.callback(process.kill)
        tally, longest = Counter[str](), 0.0
        for _ in asking:
            counts, took = queue.get()
            tally.update(counts)
            longest = max(longest, took)
        seconds = time.monotonic() - began
        events = asyncio.run(_events(base, tally))
        spent = cpu_seconds(gateway.pid)
        gateway.send_signal(signal.SIGTERM)
        tally["exit status of the gateway"] = gateway.wait(40)
        over.set()
        faults: Counter[str] = Counter()
        for each in told:
            faults.update(each.get(timeout=30))
    return Storm(
        "storm",
        today(),
        machine(),
        options.seed,
        round(seconds, 1),
        round(spent, 1),
        dict(sorted(tally.items())),
        dict(sorted(faults.items())),
        events,
        round(longest, 1),
    )


async def _events(base: str, tally: Counter[str]) -> dict[str, int]:
    """What the pool counted, once no turn is left."""
    page = ""
    async with aiohttp.ClientSession() as session:
        for _ in range(100):
            async with session.get(f"{base}/metrics") as answer:
                page = await answer.text()
            if re.search(r"^turnwire_live_turns 0(\.0)?$", page, re.MULTILINE):
                break
            await asyncio.sleep(0.1)
        else:
            tally["TURNS LEFT RUNNING"] += 1
    found = re.findall(r'^turnwire_worker_events_total{event="(\w+)".*} (\S+)$', page, re.MULTILINE)
    return {name: int(float(value)) for name, value in found}


def main(arguments: list[str]) -> None:
    """Run, print what was counted, and end with 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks storm", description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--processes", type=int, default=1, help="of the clients")
    parser.add_argument("--save", action="store_true", help="write the result file")
    options = parser.parse_args(arguments)
    made = run(options)
    for name, count in made.tally.items():
        print(f"{name:28} {count}")
    print("faults: " + ", ".join(f"{name} {count}" for name, count in made.faults.items()))
    print("pool: " + ", ".join(f"{name} {count}" for name, count in made.events.items()))
    print(f"{made.seconds:.0f} s, gateway CPU {made.cpu_seconds:.0f} s, longest turn {made.longest:.1f} s")
    if options.save:
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / "storm.json").write_bytes(msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n")
    wrong = [name for name in made.tally if name not in ("complete", "left", "exit status of the gateway")]
    if wrong or made.tally["exit status of the gateway"]:
        raise SystemExit(f"a promise was broken: {', '.join(wrong)}")
