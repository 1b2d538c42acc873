"""The result files: results/routing.json of the simulation, results/routing_index.json of the index,
results/routing_workers.json of real workers."""

from __future__ import annotations

import msgspec

from benchmarks.routing.index_cost import IndexCost
from benchmarks.routing.simulation import Outcome


class FanOut(msgspec.Struct):
    """Eight sub-agents at once: how many workers read, and how often the shared prefix was read in all."""

    used: int
    prefix_reads: float


class Run(msgspec.Struct):
    """A result file. `outcomes` are those of conversations that were made up, by policy, `captured` those of copies of
    captured ones, whose `sources` are clients and their versions."""

    taken: str
    agents_per_worker: int
    sources: list[str]
    outcomes: dict[str, list[Outcome]]
    captured: dict[str, list[Outcome]]
    fan_out: dict[str, FanOut]


class IndexRun(msgspec.Struct):
    """A result file of the index."""

    taken: str
    machine: dict[str, str | int | float]
    sizes: list[IndexCost]


class Belief(msgspec.Struct):
    """Turns of one phase on the workers of one kind: tokens of their prompts, how many of them the workers `reported`
    as cached, turns of which something else was believed (`wrong`), and by how many tokens at most (`error`)."""

    phase: str
    engine: str
    turns: int = 0
    prompt: int = 0
    reported: int = 0
    wrong: int = 0
    error: int = 0


class AgentsOnWorkers(msgspec.Struct):
    """Agents under one policy, on real workers; see `Outcome`."""

    policy: str
    turns: int
    hit_rate: float
    ttft_median: float
    ttft_p99: float
    slowest_tenth: float


class WorkersRun(msgspec.Struct):
    """A result file of real workers."""

    taken: str
    machine: dict[str, str | int | float]
    vllm: int
    copies: int
    beliefs: list[Belief]
    agents: list[AgentsOnWorkers]
