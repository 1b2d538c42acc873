"""Routing policies over modelled agents and workers; and what a decision costs this machine.

    python -m benchmarks routing [--workers 1,4,16,64] [--agents 10] [--save]

The decision is production's code (router, index, estimate, policy); the clock, the agents and the workers are models
(benchmarks/routing). `--agents` is how many conversations each worker has on average at the beginning. Costs of a
decision and memory of the index are measured on this machine. `--save` writes results/routing.json, the table in
docs/routing.md and docs/images/routing.svg.
"""

from __future__ import annotations

import argparse
import datetime
import random
import time
import tracemalloc
from pathlib import Path

import msgspec

from benchmarks.measure.results import FOLDER
from benchmarks.routing.agents import Agent
from benchmarks.routing.page import write_page
from benchmarks.routing.policies import POLICIES, Make
from benchmarks.routing.result import Decisions, FanOut, Run
from benchmarks.routing.simulation import Outcome, Simulation
from turnwire.engines.pool.kv_blocks import PromptBlocks
from turnwire.engines.pool.kv_events import BlocksStored
from turnwire.engines.pool.kv_index import KVIndex
from turnwire.engines.pool.routing.policy import TokenCost, TurnView, WorkerView

ESTIMATED = "turnwire, no events"
ARRIVALS = 60.0
"""Seconds over which conversations begin."""


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", default="1,4,16,64")
    parser.add_argument("--agents", type=int, default=10)
    parser.add_argument("--save", action="store_true")
    chosen = parser.parse_args(arguments)
    outcomes: dict[str, list[Outcome]] = {}
    for workers in map(int, chosen.workers.split(",")):
        for name, make in (*POLICIES.items(), (ESTIMATED, POLICIES["turnwire"])):
            began = time.process_time()
            outcome = simulated(workers, make, chosen.agents * workers, events=name != ESTIMATED)
            outcomes.setdefault(name, []).append(outcome)
            print(
                f"{workers:3} workers  {name:20} {outcome.turns:6} turns  hit {outcome.hit_rate:6.1%}  "
                f"ttft {outcome.ttft_median:6.2f} s, p99 {outcome.ttft_p99:6.2f} s, "
                f"slowest tenth {outcome.slowest_tenth:.2f} s  "
                f"belief error {outcome.belief_error}  ({time.process_time() - began:.0f} s of CPU)",
                flush=True,
            )
    fans = {name: fan_out(make) for name, make in POLICIES.items()}
    for name, fan in fans.items():
        print(f"fan-out of 8 on 4 workers  {name:20} {fan.used} workers used, prefix read {fan.prefix_reads:.1f} times")
    cost = decisions()
    print(cost)
    if chosen.save:
        taken = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        run = Run(taken, chosen.agents, outcomes, fans, cost)
        path = FOLDER / "routing.json"
        path.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1) + b"\n")
        write_page(Path(__file__).resolve().parents[2], run)


def simulated(workers: int, make: Make, agents: int, *, events: bool = True) -> Outcome:
    """Agents that begin one after another on so many workers."""
    simulation = Simulation(workers, make, events=events)
    dice = random.Random("arrivals")
    for number in range(agents):
        simulation.start(Agent(f"agent-{number}", "run"), dice.uniform(0, ARRIVALS))
    return simulation.run()


def fan_out(make: Make, agents: int = 8, workers: int = 4) -> FanOut:
    """Sub-agents that begin at once on idle workers."""
    simulation = Simulation(workers, make)
    for number in range(agents):
        simulation.start(Agent(f"sub-{number}", "fan", sub=True), 0.0)
    outcome = simulation.run()
    return FanOut(outcome.used, round(outcome.shared_reads, 2))


def decisions(workers: int = 64, blocks: int = 1 << 20, size: int = 16, prompt: int = 50_000) -> Decisions:
    """What it costs to decide, measured here."""
    tracemalloc.start()
    index = KVIndex()
    each = blocks // workers
    scaffold = list(range(prompt - 10_000))
    for number in range(workers):
        name = f"w{number}"
        index.join(name)
        index.apply(name, [_stored(scaffold, size, 1)])
        start = 1_000_000 * (number + 1)
        for part in range(0, each - len(scaffold) // size, 1024):
            ids = list(range(start + part * size, start + (part + 1024) * size))
            index.apply(name, [_stored(ids, size, start + part)])
    held = sum(index.blocks(f"w{number}") for number in range(workers))
    memory = tracemalloc.get_traced_memory()[0] / (1 << 20)
    tracemalloc.stop()
    ids = [*scaffold, *range(5_000_000, 5_010_000)]
    views = [WorkerView(index=number, cached=float(prompt), prefilling=number) for number in range(workers)]
    turn, policy = TurnView(prompt=prompt), TokenCost()
    rounds = 20
    times = [0.0, 0.0, 0.0]
    for _ in range(rounds):
        marks = [time.process_time()]
        asked = PromptBlocks(ids, None)
        asked.of(size)
        marks.append(time.process_time())
        index.overlap(asked)
        marks.append(time.process_time())
        policy.choose(turn, views)
        marks.append(time.process_time())
        times = [total + after - before for total, before, after in zip(times, marks, marks[1:], strict=False)]
    hashing, walking, choosing = (round(total / rounds * 1e3, 3) for total in times)
    return Decisions(workers, held, prompt, hashing, walking, choosing, round(memory, 1))


def _stored(ids: list[int], size: int, first: int) -> BlocksStored:
    whole = len(ids) // size
    return BlocksStored([first * 4096 + place for place in range(whole)], None, ids[: whole * size], size)
