"""Messages: threads are resumed before the turn and kept after it.

Promise: a request that continues a thread is answered from the whole conversation or refused with `thread_not_found`;
nothing is kept of a turn that did not finish.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwire.gateway.apis.api import Headers, Offering, answer_headers, decoded, facts_of
from turnwire.gateway.stores.store import Store
from turnwire.gateway.turns.arrival import Arrival
from turnwire.gateway.turns.ids import mint
from turnwire.gateway.turns.record import TurnRecord
from turnwire.protocols import anthropic
from turnwire.protocols.anthropic import Echo
from turnwire.protocols.anthropic.answer.diagnostics import diagnostics
from turnwire.protocols.fields.decoded import DecodedParts
from turnwire.protocols.framing import SSE, Framing
from turnwire.protocols.hosted.offer import NOTHING, HostedOffer
from turnwire.protocols.limits import Limits
from turnwire.protocols.reply import Reply
from turnwire.protocols.wire import Encoder, ErrorReply, Inbound, TurnFailure

__all__ = ["Messages"]


class Messages:
    """`POST /v1/messages`."""

    name = "messages"
    call_prefix = "toolu_"
    large_bodies = True

    def __init__(
        self, store: Store, limits: Limits, hosted: Offering | None = None, decoded: DecodedParts | None = None
    ) -> None:
        self._store = store
        self._hosted = hosted
        self._limits = limits
        self._decoded = decoded if decoded is not None else DecodedParts()

    async def decode(self, arrival: Arrival) -> Sequence[Inbound[Echo]]:
        offer = await self._hosted.offer(arrival.key) if self._hosted is not None else NOTHING
        inbound = await self._read(arrival, offer)
        key = anthropic.thread_key(inbound)
        if key is None:
            return [inbound]
        if arrival.large is not None:
            await arrival.large.complete(inbound)
        record = anthropic.read_record(await self._store.get(_space(arrival.tenant), key))
        return [anthropic.continue_thread(inbound, record)]

    async def _read(self, arrival: Arrival, offer: HostedOffer) -> Inbound[Echo]:
        if arrival.large is not None and (inbound := await arrival.large.read("messages", offer)) is not None:
            return inbound
        return await decoded(
            arrival.body,
            self._decoded,
            lambda cache: anthropic.decode(
                arrival.body, arrival.headers, limits=self._limits, cache=cache, offer=offer
            ),
        )

    def begin(self, turns: Sequence[TurnRecord[Echo]], framing: Framing = SSE) -> Sequence[Encoder]:
        return [self._encoder(turn, framing) for turn in turns]

    def _encoder(self, turn: TurnRecord[Echo], framing: Framing) -> Encoder:
        echo = turn.inbound.echo
        facts = facts_of(turn, diagnostics)
        if echo.thread is not None:
            turn.reply = Reply()
        if turn.inbound.stream:
            return anthropic.StreamEncoder(facts, echo, framing=framing)
        return anthropic.DocumentEncoder(facts, echo)

    async def finished(self, turn: TurnRecord[Echo]) -> None:
        if turn.reply is None:
            return
        kept = anthropic.kept_thread(turn.inbound, turn.turn_id, turn.reply.message(), turn.rounds)
        if kept is not None:
            space = _space(turn.tenant)
            await self._store.put(space, kept.key, kept.value)
            if kept.replaces is not None:
                await self._store.delete(space, kept.replaces)

    async def end(self, turns: Sequence[TurnRecord[Echo]]) -> None:
        """Nothing of a turn lives on beside its thread."""

    def refuse(self, failure: TurnFailure, turn: TurnRecord[Echo] | None = None) -> ErrorReply:
        if isinstance(failure, anthropic.HostedToolUnavailable):
            return anthropic.unavailable_reply(failure, mint())
        return anthropic.error_reply(failure)

    def headers(self, turn: TurnRecord[Echo]) -> Headers:
        return answer_headers(turn)


def _space(tenant: str) -> str:
    return f"{tenant}/threads"
