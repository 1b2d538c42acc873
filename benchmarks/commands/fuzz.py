"""Bad requests by the hundred thousand over every route: no 500, no hang, no stream that breaks its API's rules.

    python -m benchmarks fuzz [--requests 200000] [--seed 1] [--processes 1] [--save] [--again FILE]

Good requests for every row of the table of routes, and messages on both WebSockets, are broken in many ways, with JSON
schemas drawn at random in their tools and formats; scripted models answer with thoughts, calls and texts, right and
wrong ones. Each process draws from a seed of its own in front of a gateway of its own. A finding holds what was sent,
whole, and is written to a file; `--again` sends what such a file holds once more. Exits with 1 on any finding.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import msgspec

from benchmarks.fuzz.findings import Finding, Tally
from benchmarks.fuzz.run import again, share
from benchmarks.measure.results import FOLDER, machine, today
from turnwire.gateway.routes import ROUTES


class Fuzzed(msgspec.Struct):
    """The result file."""

    command: str
    taken: str
    machine: dict[str, str | int | float]
    seed: int
    processes: int
    seconds: float
    tally: Tally


def run(options: argparse.Namespace) -> Fuzzed:
    """Every process's share, added up."""
    began, processes = time.monotonic(), options.processes
    total = Tally(statuses={}, routes={}, findings=[])
    each = -(-options.requests // processes)
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for tally in pool.map(
            share, [each] * processes, range(options.seed, options.seed + processes), [options.connections] * processes
        ):
            total.add(tally)
    if options.requests >= 5000:
        for row in ROUTES:
            if f"{row.method} {row.path}" not in total.routes:
                total.find(Finding(f"{row.method} {row.path} was never asked"))
    spent = round(time.monotonic() - began, 1)
    return Fuzzed("fuzz", today(), machine(), options.seed, processes, spent, total)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--connections", type=int, default=16, help="of each process")
    parser.add_argument("--save", action="store_true", help="write the result file")
    parser.add_argument("--again", type=Path, metavar="FILE", help="send only what the findings of a file hold")
    options = parser.parse_args(arguments)
    if options.again is not None:
        found = again(msgspec.json.decode(options.again.read_bytes(), type=list[Finding]))
        print("\n".join(map(str, found.findings)) or f"{found.requests} requests, nothing found")
        raise SystemExit(1 if found.found else 0)
    made = run(options)
    tally = made.tally
    for finding in tally.findings:
        print(finding)
    print(f"{tally.requests} requests over {len(tally.routes)} routes in {made.seconds:.0f} s, seed {made.seed}")
    print("answers: " + ", ".join(f"{status} x {count}" for status, count in tally.statuses.items()))
    print(f"streams: {tally.streams} read to their end with {tally.events} events, {tally.left} left on purpose")
    print(f"findings: {tally.found or 'none'}")
    if options.save:
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / "fuzz.json").write_bytes(msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n")
    if tally.found:
        file = Path(tempfile.gettempdir()) / f"fuzz-findings-{made.seed}.json"
        file.write_bytes(msgspec.json.encode(tally.findings))
        print(f"sent once more by: python -m benchmarks fuzz --again {file}")
        raise SystemExit(1)
