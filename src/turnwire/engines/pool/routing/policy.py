"""The choice among workers: each costs what it would have to do before and during the turn, in tokens of prompt.

Promise: pure. A policy sees values and answers with one; it keeps nothing, and whatever has its one method can take its
place. Workers that are gone, in doubt while others are not, or that cannot do what the turn asks for are not shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec

__all__ = ["Affinity", "Decision", "RoutingPolicy", "TokenCost", "TurnView", "WorkerView", "reason"]

Affinity: TypeAlias = Literal["soft", "hard", "off"]
Why: TypeAlias = Literal["only", "session", "prefix", "load", "named"]


class TurnView(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A turn as a policy sees it. `output` is how many tokens it will probably write; `urgency` (0 to 1) is what
    waiting weighs against reading again; `fresh`: no worker has had a turn of its conversation lately."""

    prompt: int
    output: int = 256
    urgency: float = 0.7
    fresh: bool = False


class WorkerView(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A worker as a policy sees it, in tokens. `cached` is what it holds of the prompt (less for what is not on the
    device), `pending` what turns on it are reading of the same prompt now; `prefilling` is what they have to read in
    all, `decoding` what their output costs beside a token of prompt; `resident` is what conversations that live there
    hold. `bound`: the conversation's last turn ran there. Without `room` it can only be waited for."""

    index: int
    cached: float = 0.0
    pending: int = 0
    prefilling: int = 0
    decoding: float = 0.0
    resident: int = 0
    active: int = 0
    bound: bool = False
    room: bool = True


class Decision(msgspec.Struct, frozen=True, gc=False):
    """The `index` of the worker that takes the turn, what spoke for it, and what it costs by the policy's measure."""

    index: int
    why: Why
    cost: float = 0.0


class RoutingPolicy(Protocol):
    """Decides where turns go."""

    def choose(self, turn: TurnView, workers: Sequence[WorkerView]) -> Decision | None:
        """The worker that takes a turn now, or None if it is to wait. At least one worker is shown."""
        ...


class TokenCost(msgspec.Struct, frozen=True, kw_only=True):
    """The policy of the house. A worker costs the tokens it has to read for the turn, plus what the turn waits for:
    tokens that other turns have to read there, and what their output slows it down. A conversation that has no worker
    yet also counts `crowding` of what lives on each: a scaffold that everybody shares is worth no more than that, so it
    does not pull everybody to one place. The conversation's worker is kept while it costs at most `slack` tokens more
    than the best (`soft`), always (`hard`), or not for its own sake (`off`)."""

    affinity: Affinity = "soft"
    slack: float = 1024.0
    crowding: float = 0.1

    def choose(self, turn: TurnView, workers: Sequence[WorkerView]) -> Decision | None:
        if self.affinity == "hard":
            for worker in workers:
                if worker.bound:
                    cost = self.cost(turn, worker)
                    return Decision(worker.index, reason(worker, workers), cost) if worker.room else None
        keeps = self.slack if self.affinity == "soft" else 0.0
        best: WorkerView | None = None
        least = least_active = 0.0
        for worker in workers:
            if not worker.room:
                continue
            cost = self.cost(turn, worker) - (keeps if worker.bound else 0.0)
            if best is None or cost < least or (cost == least and worker.active < least_active):
                best, least, least_active = worker, cost, worker.active
        if best is None:
            return None
        return Decision(best.index, reason(best, workers), least + (keeps if best.bound else 0.0))

    def cost(self, turn: TurnView, worker: WorkerView) -> float:
        """What a turn costs on a worker."""
        known = max(worker.cached, worker.pending)
        cost = max(turn.prompt - known, 0.0) + turn.urgency * (worker.prefilling + worker.decoding)
        return cost + self.crowding * worker.resident if turn.fresh else cost


def reason(chosen: WorkerView, workers: Sequence[WorkerView]) -> Why:
    """What spoke for a worker: it is the `only` one, its `session` is there, it holds more of the `prefix` than some
    other, or it has the least `load`."""
    if len(workers) == 1:
        return "only"
    if chosen.bound:
        return "session"
    known = max(chosen.cached, chosen.pending)
    return "prefix" if known and any(max(one.cached, one.pending) < known for one in workers) else "load"
