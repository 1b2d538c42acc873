"""Turns as transports begin them: alone, or as the first round of an answer in which the gateway runs tools.

Promise: a request without hosted tools pays nothing for them.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol, TypeVar

from turnwire.gateway.apis.api import Api
from turnwire.gateway.hosted.rounds import Rounds
from turnwire.gateway.hosted.tools import HostedTools
from turnwire.gateway.turns.ids import mint
from turnwire.gateway.turns.record import TurnRecord
from turnwire.gateway.turns.sink import Sink
from turnwire.gateway.turns.turn import Turn
from turnwire.protocols.wire import Encoder

__all__ = ["Hosting", "begin_turn"]

E = TypeVar("E")


class Hosting(Protocol):
    """What beginning a turn needs of the gateway."""

    hosted: HostedTools


def begin_turn(gateway: Hosting, api: Api[E], record: TurnRecord[E], encoder: Encoder, sink: Sink) -> Turn:
    """The turn of an admitted request."""

    call_id = partial(mint, api.call_prefix)
    if not record.inbound.hosted:
        return Turn(record, encoder, sink, mint=call_id, finished=api.finished)
    rounds = Rounds(record, encoder, gateway.hosted, api.finished)
    return Turn(record, rounds.encoder, sink, mint=call_id, finished=rounds.finished, rounds=rounds)
