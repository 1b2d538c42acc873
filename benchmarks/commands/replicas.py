"""Whether turns survive: agent sessions over several processes that share a Redis, while some of them are killed.

    python -m benchmarks replicas [--turns 10000] [--workers 3] [--kills 20] [--redis-kills 0] [--clients]
                                  [--save]

Every answer is checked by the marks that the engine put at its beginning and end, and every pair of turns in a tool
loop by the tokens that the engine read. With `--clients` Claude Code and Codex work through tasks all the while. Exits
with 1 where a turn was lost, doubled or truncated, a prefix did not hold, a verdict was wrong, or a client did not
finish a task.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from benchmarks.measure.results import Cell, Result, machine, save, today
from benchmarks.measure.versions import commit
from benchmarks.peers import cache
from benchmarks.replicas.storm import storm
from benchmarks.replicas.tasks import STEPS, real_clients, versions


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--redis-kills", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=24)
    parser.add_argument("--clients", action="store_true", help="Claude Code and Codex work meanwhile")
    parser.add_argument("--save", action="store_true")
    chosen = parser.parse_args(arguments)
    before = machine()
    with tempfile.TemporaryDirectory() as folder:
        clients = real_clients(Path(folder), STEPS) if chosen.clients else []
        found = asyncio.run(
            storm(
                Path(folder),
                turns=chosen.turns,
                workers=chosen.workers,
                at_once=chosen.at_once,
                kills=chosen.kills,
                redis_kills=chosen.redis_kills,
                delay_s=0.002,
                beside=clients,
            )
        )
    found.show()
    case = f"{chosen.workers} processes, {found.kills} killed, Redis {found.redis_kills} times"
    cells = [Cell("turnwire", "all", case, found.figures()), *(client.cell(case) for client in clients)]
    if chosen.save:
        about = versions(commit(cache.ROOT), clients)
        print("written:", save(Result("replicas", today(), before, about, cells)))
    sys.exit(1 if found.wrong or any(client.wrong for client in clients) else 0)
