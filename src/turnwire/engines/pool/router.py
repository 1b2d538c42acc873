"""Where the turns of a pool go: what is known of its workers, put before the policy.

Promise: a turn goes only to a worker that takes turns and can do what it asks for, to none in doubt while
another has room, whatever the policy says; a policy that fails is replaced by the house's own for that turn.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from turnwire.engines.interface import GenerateRequest, Route, worker_number
from turnwire.engines.pool.kv_blocks import PromptBlocks
from turnwire.engines.pool.kv_index import KVIndex
from turnwire.engines.pool.routing.affinity import Bindings
from turnwire.engines.pool.routing.load import ExpectedOutput, TurnLoad
from turnwire.engines.pool.routing.policy import Decision, RoutingPolicy, TokenCost, TurnView, WorkerView
from turnwire.engines.pool.worker import Worker

__all__ = ["Placement", "Router", "RoutingStatistics"]

log = logging.getLogger("turnwire.workers")

_ONLY = Decision(0, "only")
_HOST, _DISK = 0.75, 0.25
"""What a token is worth that is held in the host's memory, or further away, beside one on the device."""


class Placement(msgspec.Struct, frozen=True):
    """A worker that takes a turn, with what is known of it. `cached` is what it is believed to hold of the prompt,
    `pending` what it is reading of it for others, `waiting` the work before it, in tokens."""

    worker: Worker
    decision: Decision
    cached: int
    pending: int
    waiting: int

    def route(self, prompt: int, queued: float) -> Route:
        """The same, for receivers."""
        return Route(
            worker=self.worker.name,
            label=self.worker.label,
            why=self.decision.why,
            prompt=prompt,
            cached=self.cached,
            pending=self.pending,
            waiting=self.waiting,
            queued=queued,
        )


class RoutingStatistics(msgspec.Struct):
    """Counters for the metrics page: decisions by what spoke for them, and policies that failed."""

    only: int = 0
    session: int = 0
    prefix: int = 0
    load: int = 0
    named: int = 0
    policy_failures: int = 0


class Router:
    """Everything that a choice among workers is made from. `patient`: the policy may let a turn wait although a worker
    has room."""

    def __init__(self, policy: RoutingPolicy | None = None, *, life: float = 900.0) -> None:
        self.index = KVIndex()
        self.bindings = Bindings(life)
        self.expected = ExpectedOutput()
        self.statistics = RoutingStatistics()
        self._policy = policy if policy is not None else TokenCost()
        self.patient = not isinstance(self._policy, TokenCost) or self._policy.affinity == "hard"

    def choose(
        self,
        request: GenerateRequest,
        blocks: PromptBlocks,
        workers: Sequence[Worker],
        tried: set[Worker],
        limit: int,
        now: float,
    ) -> Placement | None:
        """The worker of those that are `able` which takes a turn now; None if it has to wait. Those it was `tried` on
        come last; each runs at most `limit` turns. One that the client names is waited for while it takes turns."""
        if len(workers) == 1 and not self.patient:
            # Who is alone and has room takes the turn, whatever it costs there.
            (worker,) = workers
            if not worker.admits(now) or worker.active >= limit:
                return None
            return Placement(worker, _ONLY, 0, 0, int(worker.load.prefilling + worker.load.decoding))
        admitting = [worker for worker in workers if worker.admits(now)]
        named = request.hints.worker
        wanted = [] if named is None else [worker for worker in admitting if worker_number(worker.name) == named]
        shown = _least_doubted(wanted or admitting, tried, limit)
        if not any(worker.active < limit for worker in shown):
            return None
        hints = request.hints
        several = len(workers) > 1
        told = self.index.overlap(blocks) if several else {}
        home = self.bindings.worker(hints.session, now) if hints.session else None
        held = [worker.holds(blocks, told, now) for worker in shown] if several else []
        pending = [worker.reads(blocks) for worker in shown] if several else []
        views = [
            WorkerView(
                index=index,
                cached=held[index].device + _HOST * held[index].host + _DISK * held[index].disk if several else 0.0,
                pending=pending[index] if several else 0,
                prefilling=worker.load.prefilling,
                decoding=worker.load.decoding,
                resident=self.bindings.resident(worker.name),
                active=worker.active,
                bound=worker.name == home,
                room=worker.active < limit,
            )
            for index, worker in enumerate(shown)
        ]
        view = TurnView(
            prompt=len(request.prompt_ids),
            output=self.expected.of(hints.session, hints.expected_output, request.sampling.max_tokens),
            urgency=hints.urgency,
            fresh=home is None,
        )
        decision = self._decide(view, views)
        if decision is None:
            return None
        if not several:
            decision = _ONLY
        elif wanted:
            decision = Decision(decision.index, "named", decision.cost)
        worker = shown[decision.index]
        place = decision.index
        return Placement(
            worker,
            decision,
            held[place].tokens if several else 0,
            pending[place] if several else 0,
            int(worker.load.prefilling + worker.load.decoding),
        )

    def _decide(self, turn: TurnView, views: Sequence[WorkerView]) -> Decision | None:
        try:
            decision = self._policy.choose(turn, views)
            if decision is None or (0 <= decision.index < len(views) and views[decision.index].room):
                return decision
            log.error("the routing policy chose %r, which has no room or does not exist", decision)
        except Exception:
            log.exception("the routing policy failed")
        self.statistics.policy_failures += 1
        return TokenCost().choose(turn, views)

    def sent(
        self, placement: Placement, request: GenerateRequest, blocks: PromptBlocks, turn: int, now: float
    ) -> TurnLoad:
        """A worker takes a turn: what comes right after it finds its prompt and its session there."""
        worker, hints, prompt = placement.worker, request.hints, len(request.prompt_ids)
        why = placement.decision.why
        setattr(self.statistics, why, getattr(self.statistics, why) + 1)
        if why != "only":
            worker.takes(blocks, turn, now)
        if hints.session:
            self.bindings.bind(hints.session, worker.name, prompt, now)
        expected = self.expected.of(hints.session, hints.expected_output, request.sampling.max_tokens)
        return worker.load.begin(prompt - max(placement.cached, placement.pending), prompt, expected)

    def served(
        self, worker: Worker, request: GenerateRequest, blocks: PromptBlocks, said: Sequence[int], now: float
    ) -> None:
        """A worker has served a turn: its cache holds the prompt and what was written."""
        if blocks.asked:
            worker.served(blocks, said, now)
        self.expected.learn(request.hints.session, len(said))
        if request.hints.final and request.hints.session:
            self.bindings.release(request.hints.session)


def _least_doubted(workers: Sequence[Worker], tried: set[Worker], limit: int) -> list[Worker]:
    """The workers nobody has less reason to doubt than, of those that have room; the others of that kind with them."""
    if len(workers) == 1:
        return list(workers) if workers[0].active < limit else []
    doubts = [(worker.state != "healthy") + 2 * (worker in tried) for worker in workers]
    least = min((doubt for worker, doubt in zip(workers, doubts, strict=True) if worker.active < limit), default=None)
    return [worker for worker, doubt in zip(workers, doubts, strict=True) if doubt == least]
