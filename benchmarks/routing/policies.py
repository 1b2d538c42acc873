"""The policies that are compared: the house's own, and three others stated as policies of the same interface.

Promise: all see the same workers through production's router. What a policy needs beyond that (the context of running
turns, the size of a cache) is what its own documents say it uses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.routing.worker_model import BLOCK, WorkerModel
from turnwire.engines.pool.routing.policy import Decision, RoutingPolicy, TokenCost, TurnView, WorkerView

Make = Callable[[Sequence[WorkerModel]], RoutingPolicy]


class RoundRobin:
    """One after another."""

    def __init__(self) -> None:
        self._next = 0

    def choose(self, turn: TurnView, workers: Sequence[WorkerView]) -> Decision | None:
        self._next += 1
        return Decision((self._next - 1) % len(workers), "load")


class BlockCost:
    """Dynamo's cost as its documents state it, in blocks: tokens to read there, this prompt's less what is held, plus
    the blocks of running turns and of this one. Neither sessions nor prompts in flight count by default."""

    def __init__(self, models: Sequence[WorkerModel]) -> None:
        self._models = models

    def choose(self, turn: TurnView, workers: Sequence[WorkerView]) -> Decision | None:
        def cost(worker: WorkerView) -> tuple[float, int]:
            prefill = max(0.0, worker.prefilling + turn.prompt - worker.cached) / BLOCK
            return prefill + self._models[worker.index].context / BLOCK + turn.prompt / BLOCK, worker.active

        return Decision(min(workers, key=cost).index, "prefix")


class CacheAware:
    """SGLang's router: the best match if it is good enough, else the smallest cache; the shortest queue once queues
    differ too much."""

    THRESHOLD, ABSOLUTE, RELATIVE = 0.5, 32, 1.1

    def __init__(self, models: Sequence[WorkerModel]) -> None:
        self._models = models

    def choose(self, turn: TurnView, workers: Sequence[WorkerView]) -> Decision | None:
        longest, shortest = max(worker.active for worker in workers), min(worker.active for worker in workers)
        if longest - shortest > self.ABSOLUTE and longest > shortest * self.RELATIVE:
            return Decision(min(workers, key=lambda worker: worker.active).index, "load")
        best = max(workers, key=_known)
        if _known(best) > self.THRESHOLD * turn.prompt:
            return Decision(best.index, "prefix")
        return Decision(min(workers, key=lambda worker: len(self._models[worker.index].cache)).index, "load")


def _known(worker: WorkerView) -> float:
    # Its tree learns at dispatch.
    return max(worker.cached, worker.pending)


POLICIES: dict[str, Make] = {
    "turnwire": lambda models: TokenCost(),
    "round robin": lambda models: RoundRobin(),
    "dynamo cost": BlockCost,
    "sglang cache-aware": CacheAware,
}
