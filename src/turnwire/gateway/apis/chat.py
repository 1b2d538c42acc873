"""Chat Completions: one turn, or several choices of it side by side.

Promise: the choices of one request share its prompt, its connection and its end.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwire.gateway.apis.api import Headers, answer_headers, decoded, facts_of
from turnwire.gateway.turns.arrival import Arrival
from turnwire.gateway.turns.record import TurnRecord
from turnwire.protocols import chat
from turnwire.protocols.chat import Echo
from turnwire.protocols.fields.decoded import DecodedParts
from turnwire.protocols.framing import SSE, Framing
from turnwire.protocols.limits import Limits
from turnwire.protocols.wire import Encoder, ErrorReply, Inbound, TurnFailure

__all__ = ["Chat"]


class Chat:
    """`POST /v1/chat/completions`."""

    name = "chat"
    call_prefix = "call_"
    large_bodies = True

    def __init__(self, limits: Limits, decoded: DecodedParts | None = None) -> None:
        self._limits = limits
        self._decoded = decoded if decoded is not None else DecodedParts()

    async def decode(self, arrival: Arrival) -> Sequence[Inbound[Echo]]:
        inbound = await self._read(arrival)
        inbound.choices = inbound.echo.choices
        return [inbound]

    async def _read(self, arrival: Arrival) -> Inbound[Echo]:
        if arrival.large is not None and (inbound := await arrival.large.read("chat")) is not None:
            return inbound
        return await decoded(
            arrival.body,
            self._decoded,
            lambda cache: chat.decode(arrival.body, arrival.headers, limits=self._limits, cache=cache),
        )

    def begin(self, turns: Sequence[TurnRecord[Echo]], framing: Framing = SSE) -> Sequence[Encoder]:
        first = turns[0]
        facts, echo, shared = facts_of(first), first.inbound.echo, chat.SharedAnswer(len(turns))
        if first.inbound.stream:
            return [
                chat.StreamEncoder(facts, echo, choice=choice, shared=shared, framing=framing)
                for choice in range(len(turns))
            ]
        return [chat.DocumentEncoder(facts, echo, choice=choice, shared=shared) for choice in range(len(turns))]

    async def finished(self, turn: TurnRecord[Echo]) -> None:
        """Nothing is kept of a turn but what every API keeps."""

    async def end(self, turns: Sequence[TurnRecord[Echo]]) -> None:
        """Nothing of a turn lives on."""

    def refuse(self, failure: TurnFailure, turn: TurnRecord[Echo] | None = None) -> ErrorReply:
        return chat.error_reply(failure)

    def headers(self, turn: TurnRecord[Echo]) -> Headers:
        return answer_headers(turn)
