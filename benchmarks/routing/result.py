"""The result file of a run: results/routing.json."""

from __future__ import annotations

import msgspec

from benchmarks.routing.simulation import Outcome


class FanOut(msgspec.Struct):
    """Eight sub-agents at once: how many workers read, and how often the shared prefix was read in all."""

    used: int
    prefix_reads: float


class Decisions(msgspec.Struct):
    """What a decision costs: 64 workers whose caches hold so many blocks in all, a prompt of so many tokens."""

    workers: int
    blocks: int
    prompt: int
    hash_ms: float
    walk_ms: float
    choose_ms: float
    index_mib: float


class Run(msgspec.Struct):
    """A result file."""

    taken: str
    agents_per_worker: int
    outcomes: dict[str, list[Outcome]]
    fan_out: dict[str, FanOut]
    decisions: Decisions
