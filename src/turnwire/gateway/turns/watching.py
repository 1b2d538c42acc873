"""A turn under watch: the heartbeat keeps it alive or ends it, and whatever becomes of it is reported.

Promise: each turn that was begun is reported exactly once, with its outcome.
"""

from __future__ import annotations

from typing import Any, Protocol

from turnwire.gateway.turns.heartbeat import Heartbeat
from turnwire.gateway.turns.record import TurnOutcome, TurnRecord
from turnwire.gateway.turns.turn import Turn

__all__ = ["Reporting", "run_watched"]


class Reporting(Protocol):
    """What watching needs of the gateway."""

    heartbeat: Heartbeat

    def begun(self, turn: Turn) -> None:
        """A turn that is about to run."""
        ...

    def finished(self, turn: TurnRecord[Any]) -> None:
        """A turn that ran, whatever became of it."""
        ...


async def run_watched(gateway: Reporting, turn: Turn) -> TurnOutcome:
    """Run a turn and those that go on with its answer to their end; raises what `Turn.run` raises."""
    heartbeat = gateway.heartbeat
    first, following = turn, None
    gateway.begun(turn)
    heartbeat.watch(turn)
    while True:
        turn.sink.attach(turn)
        try:
            outcome = await turn.run()
            following = await turn.following()
            if following is not None:
                gateway.begun(following)
                heartbeat.watch(following)
        finally:
            turn.record.silence = heartbeat.forget(turn)
            gateway.finished(turn.record)
            first.opened, first.cut = turn.opened, turn.cut
        if following is None:
            return outcome
        turn = following
