"""Routing on real workers: three vLLM servers and one SGLang (CPU builds, a tiny random model) with KV events.

    python -m benchmarks routing_workers [--vllm 3] [--no-sglang] [--copies 8] [--only beliefs|agents] [--save]

First beliefs: turn by turn, what is believed of the worker that gets a turn against what that worker then reports:
while conversations grow, after eviction, after events were lost on the way, after workers were killed and started
again. SGLang's cache is emptied once it is listened to, since it repeats nothing. Then agents: copies of the captured
sessions of routing/traces at a tenth of their lengths and a quarter of their waits, on the vLLM servers, under each
policy, with empty caches. Takes some ten minutes and 12 GiB; `--save` writes results/routing_workers.json and its table
in docs/routing.md.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import tempfile
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.measure.results import FOLDER, machine, today
from benchmarks.routing.page import write_workers_page
from benchmarks.routing.policies import BlockCost, CacheAware, RoundRobin
from benchmarks.routing.real_workers import Told, pool_of, servers, start, take_turn
from benchmarks.routing.result import AgentsOnWorkers, Belief, WorkersRun
from benchmarks.routing.traces import Trace, TracedAgent, copies, shipped
from turnwire.engines.pool.pool import Worker, WorkerPool
from turnwire.engines.pool.routing.policy import RoutingPolicy, TokenCost

BLOCKS = 1000
SHORTER, QUICKER = 10, 4
SETTLE = 0.3
"""Seconds in which the events of a turn arrive."""


class Beliefs:
    """Turns one after another, and what was wrong."""

    def __init__(self, pool: WorkerPool) -> None:
        self.pool = pool
        self.rows: list[Belief] = []
        self.losses: list[_Loss] = []

    async def turn(self, phase: str, session: str, prompt: list[int]) -> None:
        unnoticed = {loss.worker for loss in self.losses if loss.unnoticed}
        told = await take_turn(self.pool, session, prompt)
        await asyncio.sleep(SETTLE)
        if told.route.worker in unnoticed:
            phase = "events lost, none since"
        engine = told.route.worker.partition(":")[0]
        row = next((one for one in self.rows if (one.phase, one.engine) == (phase, engine)), None)
        if row is None:
            row = Belief(phase, engine)
            self.rows.append(row)
        row.turns += 1
        row.prompt += len(prompt)
        row.reported += told.reported
        error = abs(told.reported - told.route.cached)
        row.wrong += error > 0
        row.error = max(row.error, error)
        print(
            f"{phase:10} {session:9} {engine:6} believed {told.route.cached:5} reported {told.reported:5}", flush=True
        )


async def beliefs(running: list[Any]) -> list[Belief]:
    """All phases."""
    # Small prompts on idle workers: conversations are spread as large ones on busy workers would be.
    pool = pool_of(running, TokenCost(crowding=2.0))
    await pool.start()
    subject = Beliefs(pool)
    dice = random.Random(11)
    scaffold = _some(dice, 640)
    sessions = {f"s{number}": [*scaffold, *_some(dice, 160)] for number in range(8)}

    async def all_grow(phase: str, rounds: int) -> None:
        for _ in range(rounds):
            for name in sessions:
                await subject.turn(phase, name, sessions[name])
                sessions[name] += _some(dice, 130)

    try:
        await _published(pool, running)
        await all_grow("growing", 3)
        # More than the rest of each cache has room for; SGLang's window is smaller, so these go to vLLM.
        for number in range(15):
            await subject.turn("eviction", f"large-{number}", _some(dice, 7000))
        await all_grow("eviction", 2)
        subject.losses = [_Loss(worker, 2) for worker in pool.workers if not worker.name.startswith("sglang")]
        await all_grow("after a gap", 4)
        print("messages lost:", [loss.lost for loss in subject.losses], flush=True)
        again = [running[0], *(server for server in running if server.name == "sglang")]
        for server in again:
            server.kill()
        await asyncio.to_thread(start, again)
        async with asyncio.timeout(120):
            while any(worker.state != "healthy" for worker in pool.workers):
                await take_turn(pool, "probe", _some(dice, 96))
                await asyncio.sleep(SETTLE)
        await _emptied(pool, running)
        await all_grow("restart", 3)
    finally:
        await pool.close()
    return subject.rows


class _Loss:
    """The next messages of a worker's feed are lost on their way."""

    def __init__(self, worker: Worker, count: int) -> None:
        (feed,) = worker._feeds
        self.worker = worker.name
        self.lost = 0
        self.unnoticed = False
        self._count = count
        self._take = feed._take  # type: ignore[attr-defined]
        feed._take = self._lossy  # type: ignore[attr-defined]

    def _lossy(self, number: int, payload: bytes, *, live: bool) -> None:
        if live and self.lost < self._count:
            self.lost += 1
            self.unnoticed = True
        else:
            self.unnoticed = False
            self._take(number, payload, live=live)


async def _published(pool: WorkerPool, running: list[Any]) -> None:
    """Until all events are there."""
    await _emptied(pool, running)
    async with asyncio.timeout(60):
        while not all(worker.publishes for worker in pool.workers):  # noqa: ASYNC110
            await asyncio.sleep(SETTLE)


async def _emptied(pool: WorkerPool, running: list[Any]) -> None:
    """SGLang repeats no event that was missed, so its cache is emptied: from there on all is known."""
    for server, worker in zip(running, pool.workers, strict=True):
        async with asyncio.timeout(120):
            while server.name == "sglang" and not worker.publishes:
                await asyncio.to_thread(_post, f"{server.url}/flush_cache")
                body = b'{"input_ids": [5, 6, 7], "sampling_params": {"max_new_tokens": 1}}'
                await asyncio.to_thread(_post, f"{server.url}/generate", body)
                await asyncio.sleep(SETTLE)


def _some(dice: random.Random, count: int) -> list[int]:
    return [dice.randrange(1000, 90_000) for _ in range(count)]


# ---------------------------------------------------------------------------------------------------------- agents


class _Worker:
    """What the policies of others ask a worker for: tokens of its turns, and the size of its cache."""

    def __init__(self) -> None:
        self.context = 0
        self.cache = range(0)


POLICIES: dict[str, Callable[[list[Any]], RoutingPolicy]] = {
    "turnwire": lambda workers: TokenCost(),
    "round robin": lambda workers: RoundRobin(),
    "dynamo cost": BlockCost,
    "sglang cache-aware": CacheAware,
}


class _Agents:
    """Agents on one pool."""

    def __init__(self, pool: WorkerPool, seen: list[_Worker]) -> None:
        self.pool = pool
        self.told: list[Told] = []
        self.prompts = 0
        self._seen = seen
        self._waits: dict[str, list[float]] = {}

    async def run(self, agent: TracedAgent, at: float) -> None:
        await asyncio.sleep(at)
        subs: list[asyncio.Task[None]] = []
        for turn in agent.turns():
            ids = [1000 + one % 89_000 for one in turn.prompt]
            told = await self._turn(agent.name, ids)
            self.told.append(told)
            self.prompts += len(ids)
            self._waits.setdefault(agent.name, []).append(told.first)
            now = [asyncio.ensure_future(self.run(sub, 0.0)) for sub in turn.fan_out]  # type: ignore[arg-type]
            if turn.awaited:
                await asyncio.gather(*now)
            subs += now
            await asyncio.sleep(turn.wait)
        await asyncio.gather(*subs)

    async def _turn(self, name: str, ids: list[int]) -> Told:
        names = [worker.name for worker in self.pool.workers]
        for seen, worker in zip(self._seen, self.pool.workers, strict=True):
            seen.cache = range(self.pool.router.index.blocks(f"{worker.name}#0"))
        before = {name: worker.active for name, worker in zip(names, self.pool.workers, strict=True)}
        task = asyncio.ensure_future(take_turn(self.pool, name, ids, output=4))
        await asyncio.sleep(0)
        grown = [place for place, worker in enumerate(self.pool.workers) if worker.active > before[worker.name]]
        for place in grown:
            self._seen[place].context += len(ids)
        try:
            return await task
        finally:
            for place in grown:
                self._seen[place].context -= len(ids)

    def outcome(self, policy: str) -> AgentsOnWorkers:
        waits = sorted(told.first for told in self.told)
        means = sorted((statistics.fmean(those) for those in self._waits.values()), reverse=True)
        return AgentsOnWorkers(
            policy=policy,
            turns=len(self.told),
            hit_rate=sum(told.reported for told in self.told) / self.prompts,
            ttft_median=statistics.median(waits),
            ttft_p99=waits[int(len(waits) * 0.99)],
            slowest_tenth=statistics.fmean(means[: len(means) // 10 + 1]),
        )


def _smaller(trace: Trace, policy: str) -> Trace:
    """At a part of its lengths and waits, with tokens that no other policy's run had."""
    small = msgspec.json.decode(msgspec.json.encode(trace), type=Trace)
    small.source = f"{policy}/{trace.source}"
    for conversation in small.conversations:
        conversation.kind = f"{policy}/{conversation.kind}"
        conversation.shared //= SHORTER
        for turn in conversation.turns:
            turn.prompt //= SHORTER
            turn.kept //= SHORTER
            turn.output = max(turn.output // SHORTER, 1)
            turn.wait /= QUICKER
    return small


async def agents(running: list[Any], policy: str, count: int) -> AgentsOnWorkers:
    """All copies under one policy."""
    seen = [_Worker() for _ in running]
    pool = pool_of(running, POLICIES[policy](seen))
    await pool.start()
    try:
        await _published(pool, running)
        for server in running:
            await asyncio.to_thread(_post, f"{server.url}/reset_prefix_cache")
        subject = _Agents(pool, seen)
        dice = random.Random("arrivals")
        traces = [_smaller(trace, policy) for trace in shipped()]
        await asyncio.gather(*(subject.run(agent, dice.uniform(0, 10)) for agent in copies(traces, count)))
    finally:
        await pool.close()
    return subject.outcome(policy)


def _post(url: str, body: bytes = b"") -> None:
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(url, data=body, headers=headers, method="POST")
    with urllib.request.urlopen(request, timeout=60) as answer:
        answer.read()


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", type=int, default=3)
    parser.add_argument("--no-sglang", action="store_true")
    parser.add_argument("--copies", type=int, default=8)
    parser.add_argument("--only", choices=("beliefs", "agents"))
    parser.add_argument("--save", action="store_true")
    chosen = parser.parse_args(arguments)
    path = FOLDER / "routing_workers.json"
    run = WorkersRun(today(), machine(), chosen.vllm, chosen.copies, [], [])
    if chosen.only and path.exists():
        run = msgspec.json.decode(path.read_bytes(), type=WorkersRun)

    def keep() -> None:
        if chosen.save:
            path.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1) + b"\n")
            write_workers_page(Path(__file__).resolve().parents[2], run)

    with (
        tempfile.TemporaryDirectory() as folder,
        servers(Path(folder), chosen.vllm, BLOCKS, sglang=not chosen.no_sglang and chosen.only != "agents") as running,
    ):
        if chosen.only != "agents":
            run.beliefs = asyncio.run(beliefs(running))
            for row in run.beliefs:
                print(row)
            keep()
        vllm = [server for server in running if server.name == "vllm"]
        for server in running[len(vllm) :]:
            server.kill()
        if chosen.only != "beliefs":
            run.agents = []
            for policy in POLICIES:
                run.agents.append(asyncio.run(agents(vllm, policy, chosen.copies)))
                print(run.agents[-1], flush=True)
            keep()
