"""What it costs to watch: processor time per turn and per token with the console open and with capture on.

    python -m benchmarks observing [--turns 200] [--rounds 5] [--save]

Promise: one gateway for each condition; they live side by side on scripted engines and take turns. Each figure is one
gateway's own processor time, of all its threads, over its turns alone, and every round's is kept. A turn's fixed cost
and the cost of a token are told apart by answers of two lengths.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import tracemalloc
from contextlib import AsyncExitStack, closing, suppress
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from benchmarks.measure.results import FOLDER, machine, today
from benchmarks.measure.usage import cpu_seconds
from turnwire.gateway.telemetry.journal import TurnSummary

SYSTEM = "You work in a repository of a streaming parser; keep answers short. " * 150
WORDS = f"{SYSTEM[:67]} a buffer holds what came early and gives it back once its place is known".split()
LENGTHS = {"short": 8, "long": 160}
PERIOD_MS, STREAMS = 4, 64


class Watching(msgspec.Struct, frozen=True):
    """What is on: the console, capture, a store, and in it the journal of summaries."""

    console: bool = False
    capture: bool = False
    store: bool = False
    journal: bool = True


CONDITIONS = {
    "console closed, capture off": Watching(),
    "console open, capture off": Watching(console=True),
    "console closed, capture on": Watching(capture=True),
    "console open, capture on": Watching(console=True, capture=True),
    "store in SQLite, summaries not kept": Watching(store=True, journal=False),
    "store in SQLite, summaries kept": Watching(store=True),
}


class Condition(msgspec.Struct):
    """One gateway's rounds: processor milliseconds for each turn of a short answer, microseconds for each further
    token; bytes of capture files, and of the store's journal, for each turn."""

    turn_ms: list[float]
    token_us: list[float]
    capture_bytes: float = 0.0
    journal_bytes: float = 0.0


class Observing(msgspec.Struct):
    """The result file. `summary_bytes` is a turn's line of `/admin/turns`, `memory_bytes` what it takes in memory."""

    command: str
    taken: str
    machine: dict[str, str | int | float]
    turns: int
    prompt_tokens: int
    output_tokens: dict[str, int]
    summary_bytes: int
    memory_bytes: int
    conditions: dict[str, Condition]


def _script(turns: int) -> str:
    """An answer for each question, no two alike."""
    chosen = random.Random(7)
    lines = []
    for length, words in LENGTHS.items():
        for count in range(turns):
            said = " ".join(chosen.choice(WORDS) + str(chosen.randrange(100)) for _ in range(words))
            text = f"I look.\n</think>\n\n{said}"
            lines.append(json.dumps({"match": f"{length} {count}.", "text": text, "delay_ms": PERIOD_MS}))
    return "\n".join(lines) + "\n"


class _Watched:
    """A gateway of one condition."""

    def __init__(self, folder: Path, script: Path, watching: Watching) -> None:
        self.console = watching.console
        self.captures = folder / f"captures-{watching.console}" if watching.capture else None
        self._store = folder / f"store-{watching.journal}.db" if watching.store else None
        self._environment = os.environ | ({} if watching.journal else {"TURNWIRE_JOURNAL_BYTES": "0"})
        self._flags = ["--engine", f"scripted:{script}", "--model", "m", "--dialect", "qwen3_coder", "--port", "0"]
        self._flags += ["--log-level", "info", *(["--capture", str(self.captures)] if watching.capture else [])]
        self._flags += ["--store", f"sqlite:{self._store}"] if watching.store else []
        self._sent = 0

    async def __aenter__(self) -> _Watched:
        self._process = subprocess.Popen(  # noqa: ASYNC220 - it starts once, before anything is measured
            [sys.executable, "-m", "turnwire", "serve", *self._flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=self._environment,
        )
        assert self._process.stdout is not None
        line = ""
        while "on http://" not in line:
            line = await asyncio.to_thread(self._process.stdout.readline)
            if not line:
                raise SystemExit("The gateway did not start.")
        self._base = "http://" + line.split("on http://")[1].split()[0]
        self._session = aiohttp.ClientSession()
        self._watching = asyncio.create_task(self._watch()) if self.console else None
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._watching is not None:
            self._watching.cancel()
            with suppress(asyncio.CancelledError):
                await self._watching
        await self._session.close()
        self._process.terminate()
        await asyncio.to_thread(self._process.wait, 30)

    async def _watch(self) -> None:
        """What an open console asks for: the last turns once, then the events."""
        async with self._session.get(self._base + "/admin/turns?limit=1000") as answer:
            await answer.read()
        async with self._session.get(self._base + "/admin/events", timeout=aiohttp.ClientTimeout(total=None)) as answer:
            async for _ in answer.content.iter_any():
                pass

    async def run(self, length: str, turns: int) -> float:
        """Processor seconds of the gateway over some turns, many at a time, until the last is written."""
        places = asyncio.Semaphore(STREAMS)

        async def one(count: int) -> None:
            question = {"role": "user", "content": f"{length} {count}."}
            body = {"model": "m", "max_tokens": 4000, "stream": True, "system": SYSTEM, "messages": [question]}
            headers = {"x-claude-code-session-id": f"s-{count % 20}"}
            async with (
                places,
                self._session.post(self._base + "/v1/messages", json=body, headers=headers) as answer,
            ):
                if answer.status != 200:
                    raise SystemExit(await answer.text())
                await answer.read()

        before = cpu_seconds(self._process.pid)
        await asyncio.gather(*(one(count) for count in range(turns)))
        self._sent += turns
        while self.captures is not None and await self._written() < self._sent:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)
        return cpu_seconds(self._process.pid) - before

    async def _written(self) -> int:
        async with self._session.get(self._base + "/metrics") as answer:
            found = re.search(r'^turnwire_captures_total\{outcome="written"\} ([0-9.]+)', await answer.text(), re.M)
        return int(float(found[1])) if found else 0

    async def rows(self) -> list[dict[str, Any]]:
        """The last turns as `/admin/turns` lists them."""
        async with self._session.get(self._base + "/admin/turns?limit=1000") as answer:
            listed: list[dict[str, Any]] = (await answer.json())["turns"]
            return listed

    @property
    def kept(self) -> float:
        """Bytes of capture files for each turn."""
        if self.captures is None:
            return 0.0
        return sum(path.stat().st_size for path in self.captures.glob("*")) / self._sent

    @property
    def journal(self) -> float:
        """Bytes of the store's journal for each turn; only once the gateway has ended."""
        file = Path(f"{self._store}.journal")
        if self._store is None or not file.exists():
            return 0.0
        with closing(sqlite3.connect(file)) as database:
            size, count = database.execute("SELECT SUM(LENGTH(value)), COUNT(*) FROM journal").fetchone()
        return float(size) / count


def _in_memory(rows: list[dict[str, Any]]) -> int:
    """What a summary takes in memory, on average."""
    data = [msgspec.json.encode(row) for row in rows]
    decoder = msgspec.json.Decoder(TurnSummary)
    tracemalloc.start()
    kept = [decoder.decode(line) for line in data]
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size // len(kept)


async def measure(turns: int, rounds: int) -> Observing:
    """All conditions, taking turns."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.jsonl"
        script.write_text(_script(turns))
        found = {name: Condition([], []) for name in CONDITIONS}
        async with AsyncExitStack() as stack:
            gateways = {
                name: await stack.enter_async_context(_Watched(Path(folder), script, watching))
                for name, watching in CONDITIONS.items()
            }
            rows: dict[str, dict[str, Any]] = {}
            for gateway in gateways.values():
                for length in LENGTHS:
                    await gateway.run(length, min(20, turns))
                    rows[length] = (await gateway.rows())[0]
            tokens = {length: row["output_tokens"] for length, row in rows.items()}
            for number in range(rounds):
                names = list(gateways)
                for name in names[number % len(names) :] + names[: number % len(names)]:
                    spent = {length: await gateways[name].run(length, turns) for length in LENGTHS}
                    more = (spent["long"] - spent["short"]) / turns / (tokens["long"] - tokens["short"])
                    found[name].turn_ms.append(round(1e3 * spent["short"] / turns, 3))
                    found[name].token_us.append(round(1e6 * more, 2))
                    print(f"{name:30} {found[name].turn_ms[-1]} ms a turn, {found[name].token_us[-1]} µs a token")
            listed = await gateways["console closed, capture off"].rows()
        for name, gateway in gateways.items():
            found[name].capture_bytes = round(gateway.kept)
            found[name].journal_bytes = round(gateway.journal)
    return Observing(
        command="observing",
        taken=today(),
        machine=machine(),
        turns=turns,
        prompt_tokens=rows["short"]["prompt_tokens"],
        output_tokens=tokens,
        summary_bytes=sum(len(msgspec.json.encode(row)) for row in listed) // len(listed),
        memory_bytes=_in_memory(listed),
        conditions=found,
    )


def block(folder: Path = FOLDER) -> str:
    """The table of docs/capture.md."""
    made = msgspec.json.decode((folder / "observing.json").read_bytes(), type=Observing)
    lines = [
        "| | processor for a turn, ms | for each output token, µs | bytes on disk for a turn |",
        "|---|---|---|---|",
    ]
    for name, condition in made.conditions.items():
        kept = f"{condition.capture_bytes:,.0f}"
        if name.startswith("store"):
            kept = f"{condition.journal_bytes:,.0f} beside the store's own"
        lines.append(f"| {name} | {_cell(condition.turn_ms)} | {_cell(condition.token_us)} | {kept} |")
    base = made.conditions["console closed, capture off"]
    busy = " that other work used too" if float(made.machine["load"]) > 1 else ""
    short, long = made.output_tokens["short"], made.output_tokens["long"]
    where = f"{made.machine['cores']} cores of an {made.machine['cpu']}{busy}, Python {made.machine['python']}"
    about = (
        f"Median (and range) of {len(base.turn_ms)} rounds of {made.turns} turns of {made.prompt_tokens:,} tokens",
        f"over `/v1/messages`, streamed, {STREAMS} at a time, on a scripted engine in the same process that says",
        f"a token every {PERIOD_MS} ms; its share is in the figures. A turn's figure is with {short} tokens of output;",
        f"a token's is the difference to turns of {long}, divided. Taken {made.taken} on {where}.",
        f"The summary that the console and `/admin/turns` show is {made.summary_bytes:,} bytes of JSON, and",
        f"{made.memory_bytes:,} bytes in memory, for each of the last 1,000 turns, whatever is on.",
    )
    return "\n".join([*lines, "", *about])


def _cell(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/observing.json")
    parser.add_argument("--to", type=Path, default=FOLDER, help="the folder to save to, instead")
    chosen = parser.parse_args(arguments)
    result = asyncio.run(measure(chosen.turns, chosen.rounds))
    if chosen.save:
        chosen.to.mkdir(parents=True, exist_ok=True)
        file = chosen.to / "observing.json"
        file.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")
        print(file)


if __name__ == "__main__":
    main(sys.argv[1:])
