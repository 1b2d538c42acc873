"""The storm over replicas on several Ray nodes.

    python -m benchmarks ray_storm [--turns 1000] [--nodes 3] [--kills 6] [--redis-kills 2] [--clients] [--save]

First turns while replicas and Redis are killed, then turns without a kill while Ray scales in from all replicas to one
and out again: there nothing may have to be asked again. With `--clients` Claude Code and Codex work through tasks all
the while. Exits with 1 where anything was lost, doubled, truncated or misjudged, a prefix did not hold, the scale-in
broke a request, or a client did not finish a task.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.measure.results import Cell, Result, machine, save, today
from benchmarks.measure.versions import commit
from benchmarks.peers import cache
from benchmarks.ray.cluster import Application, Replicas, deploy, free_port, nodes
from benchmarks.replicas.engine import Engine
from benchmarks.replicas.storm import DATA, Findings, Redis, Storm
from benchmarks.replicas.tasks import STEPS, RealClient, real_clients, versions


def settings(engine: str, store: str) -> dict[str, Any]:
    """What replicas that can be stormed are started with."""
    return {
        "engine": engine,
        "model": "m",
        "dialect": "qwen3_coder",
        "store": store,
        "seal_key": "a key for replicas on Ray",
        "tokenizer": str(DATA / "turnwire-tokenizer.json"),
        "template": str(DATA / "turnwire.jinja"),
        "port": free_port(),
        # Not by live turns; how many there are is said with the deployment.
        "replicas": 1,
    }


async def scaled_in(storm: Storm, flags: dict[str, Any], replicas: Replicas, count: int) -> Findings:
    """Turns while Ray takes all replicas but one away, and gives them back."""
    running = asyncio.create_task(storm.run())
    await asyncio.sleep(1)
    for number in (1, count):
        await deploy(Application("ray:direct", flags, number))
        await replicas.number(number)
    storm.enough()
    return await running


async def run(chosen: argparse.Namespace, folder: Path, clients: list[RealClient]) -> tuple[Findings, Findings]:
    engine, redis = Engine(0.002), Redis(folder)
    await redis.start()
    flags = settings(f"vllm:{await engine.start()}", redis.url)
    replicas = Replicas(f"http://127.0.0.1:{flags['port']}")
    try:
        await deploy(Application("ray:direct", flags, chosen.nodes))
        print(f"replicas {len(replicas.processes())} on {len(replicas.nodes())} nodes", flush=True)
        storm = Storm(replicas, redis, engine, turns=chosen.turns, at_once=chosen.at_once, loop=4, beside=clients)
        killed = await storm.run(kills=chosen.kills, redis_kills=chosen.redis_kills)
        await replicas.number(chosen.nodes)
        await asyncio.sleep(3)
        calm = Storm(replicas, redis, engine, turns=1 << 40, at_once=chosen.at_once, loop=4)
        return killed, await scaled_in(calm, flags, replicas, chosen.nodes)
    finally:
        await engine.close()
        redis.stop()


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--redis-kills", type=int, default=2)
    parser.add_argument("--at-once", type=int, default=12)
    parser.add_argument("--clients", action="store_true", help="Claude Code and Codex work meanwhile")
    parser.add_argument("--save", action="store_true")
    chosen = parser.parse_args(arguments)
    before = machine()
    with tempfile.TemporaryDirectory() as folder:
        clients = real_clients(Path(folder), STEPS) if chosen.clients else []
        # One core of each node, so that Ray puts one replica on each.
        with nodes(chosen.nodes, cores=1):
            killed, calm = asyncio.run(run(chosen, Path(folder), clients))
    stormed = f"{chosen.nodes} nodes, {killed.kills} replicas killed, Redis {killed.redis_kills} times"
    cells = [_cell(stormed, killed), _cell(f"{chosen.nodes} nodes, scaled in to 1 and out again", calm)]
    cells += [client.cell(stormed) for client in clients]
    if chosen.save:
        about = versions(commit(cache.ROOT), clients)
        print("written:", save(Result("replicas_ray", today(), before, about, cells)))
    broke = killed.wrong or calm.wrong or calm.asked_again or any(client.wrong for client in clients)
    sys.exit(1 if broke else 0)


def _cell(case: str, found: Findings) -> Cell:
    print(f"\n{case}")
    found.show()
    return Cell("turnwire", "all", case, found.figures())
