"""Routing policies over modelled agents and workers; and what a decision costs this machine.

    python -m benchmarks routing [--workers 1,4,16,64] [--agents 10] [--capture PLACE ...] [--jobs 1] [--save]
    python -m benchmarks routing --index 16384,1048576 [--save]

The decision is production's code (router, index, estimate, policy); the clock, the agents and the workers are models
(benchmarks/routing). `--agents` is how many conversations each worker has on average at the beginning. Conversations
are made up, and then copies of captured ones: those of routing/traces, or of your own `--capture` (a file or folder of
`turnwire serve --capture`). `--save` writes results/routing.json, the table in docs/routing.md and
docs/images/routing.svg.

`--index` measures on this machine what a decision costs and how much memory the index has, for 64 workers with so many
blocks each (about 10 GiB for 1048576); `--save` writes results/routing_index.json and its table.
"""

from __future__ import annotations

import argparse
import datetime
import multiprocessing
import random
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.measure.results import FOLDER, machine
from benchmarks.routing.agents import Agent
from benchmarks.routing.index_cost import measure
from benchmarks.routing.page import write_index_page, write_page
from benchmarks.routing.policies import POLICIES, Make
from benchmarks.routing.result import FanOut, IndexRun, Run
from benchmarks.routing.simulation import Outcome, Simulation
from benchmarks.routing.traces import Trace, copies, shipped, traced
from turnwire.engines.captured.files import load_capture

ESTIMATED = "turnwire, no events"
ROOT = Path(__file__).resolve().parents[2]
ARRIVALS = 60.0
"""Seconds over which conversations begin."""


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", default="1,4,16,64")
    parser.add_argument("--agents", type=int, default=10)
    parser.add_argument("--capture", metavar="PLACE", nargs="+", default=[])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--index", metavar="BLOCKS,...", default="")
    chosen = parser.parse_args(arguments)
    if chosen.index:
        index([int(each) for each in chosen.index.split(",")], save=chosen.save)
        return
    traces = [traced(load_capture(place).turns, Path(place).name) for place in chosen.capture] or shipped()
    cases = [
        Case(kind, workers, name, chosen.agents, traces if kind == "captured" else [])
        for kind in ("made up", "captured")
        for workers in map(int, chosen.workers.split(","))
        for name in (*POLICIES, ESTIMATED)
    ]
    outcomes: dict[str, dict[str, list[Outcome]]] = {}
    with multiprocessing.get_context("spawn").Pool(chosen.jobs) as pool:
        for case, (outcome, seconds) in zip(cases, pool.imap(played, cases), strict=True):
            outcomes.setdefault(case.kind, {}).setdefault(case.policy, []).append(outcome)
            print(
                f"{case.kind:8} {case.workers:3} workers  {case.policy:20} {outcome.turns:6} turns  "
                f"hit {outcome.hit_rate:6.1%}  ttft {outcome.ttft_median:6.2f} s, p99 {outcome.ttft_p99:6.2f} s, "
                f"slowest tenth {outcome.slowest_tenth:.2f} s  "
                f"belief error {outcome.belief_error}  ({seconds:.0f} s of CPU)",
                flush=True,
            )
    fans = {name: fan_out(make) for name, make in POLICIES.items()}
    for name, fan in fans.items():
        print(f"fan-out of 8 on 4 workers  {name:20} {fan.used} workers used, prefix read {fan.prefix_reads:.1f} times")
    if chosen.save:
        sources = [trace.source for trace in traces]
        run = Run(_now(), chosen.agents, sources, outcomes["made up"], outcomes["captured"], fans)
        path = FOLDER / "routing.json"
        path.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1) + b"\n")
        write_page(ROOT, run)


def index(sizes: list[int], *, save: bool, workers: int = 64) -> None:
    """What the index costs for each size."""
    costs = []
    for each in sizes:
        costs.append(measure(workers, each))
        print(f"{costs[-1]}  {costs[-1].per_block:.0f} bytes a block", flush=True)
    if save:
        run = IndexRun(_now(), machine(), costs)
        path = FOLDER / "routing_index.json"
        path.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1) + b"\n")
        write_index_page(ROOT, run)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


class Case(msgspec.Struct):
    """One run of the simulation."""

    kind: str
    workers: int
    policy: str
    agents: int
    traces: list[Trace]


def played(case: Case) -> tuple[Outcome, float]:
    """A case's outcome, and the seconds of CPU it took."""
    began = time.process_time()
    make = POLICIES["turnwire" if case.policy == ESTIMATED else case.policy]
    count = case.agents * case.workers
    agents = copies(case.traces, count) if case.traces else [Agent(f"agent-{n}", "run") for n in range(count)]
    outcome = simulated(case.workers, make, agents, events=case.policy != ESTIMATED)
    return outcome, time.process_time() - began


def simulated(workers: int, make: Make, agents: Sequence[Agent], *, events: bool = True) -> Outcome:
    """Agents that begin one after another on so many workers."""
    simulation = Simulation(workers, make, events=events)
    dice = random.Random("arrivals")
    for agent in agents:
        simulation.start(agent, dice.uniform(0, ARRIVALS))
    return simulation.run()


def fan_out(make: Make, agents: int = 8, workers: int = 4) -> FanOut:
    """Sub-agents that begin at once on idle workers."""
    simulation = Simulation(workers, make)
    for number in range(agents):
        simulation.start(Agent(f"sub-{number}", "fan", sub=True), 0.0)
    outcome = simulation.run()
    return FanOut(outcome.used, round(outcome.shared_reads, 2))
