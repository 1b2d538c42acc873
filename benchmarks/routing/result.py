"""The result files: results/routing.json of the simulation, results/routing_index.json of the index."""

from __future__ import annotations

import msgspec

from benchmarks.routing.index_cost import IndexCost
from benchmarks.routing.simulation import Outcome


class FanOut(msgspec.Struct):
    """Eight sub-agents at once: how many workers read, and how often the shared prefix was read in all."""

    used: int
    prefix_reads: float


class Run(msgspec.Struct):
    """A result file."""

    taken: str
    agents_per_worker: int
    outcomes: dict[str, list[Outcome]]
    fan_out: dict[str, FanOut]


class IndexRun(msgspec.Struct):
    """A result file of the index."""

    taken: str
    machine: dict[str, str | int | float]
    sizes: list[IndexCost]
