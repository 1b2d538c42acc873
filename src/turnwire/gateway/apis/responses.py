"""Responses: turns that can be stored, continued, polled, followed, cancelled and compacted.

Promise: a response can be asked for while it runs, and a stored one is written before its client learns that it is
complete; an overflow reaches Codex as the one event that makes it compact.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from turnwire.gateway.apis.api import Headers, Offering, answer_headers, decoded, facts_of
from turnwire.gateway.stores.responses import ResponseStore, RunningResponse
from turnwire.gateway.stores.store import StoreError
from turnwire.gateway.turns.arrival import Arrival
from turnwire.gateway.turns.record import TurnRecord
from turnwire.protocols import responses
from turnwire.protocols.fields.decoded import DecodedParts
from turnwire.protocols.framing import SSE, Framing
from turnwire.protocols.hosted.offer import NOTHING, HostedOffer
from turnwire.protocols.limits import Limits
from turnwire.protocols.responses import Echo, RequestBody, Stored, response_id
from turnwire.protocols.responses.answer.diagnostics import diagnostics
from turnwire.protocols.wire import Encoder, ErrorReply, Inbound, TurnFacts, TurnFailure

__all__ = ["Compact", "Responses", "response_facts"]

log = logging.getLogger("turnwire.responses")


def response_facts(turn: TurnRecord[Echo]) -> TurnFacts:
    """What is fixed before a turn of this API starts."""
    return facts_of(turn, diagnostics)


def _post_failure(failure: TurnFailure) -> TurnFailure:
    """On POST, what is not found is the model: a 400 with its own code, which Codex does not send again and again."""
    if failure.kind == "not_found" and failure.code is None:
        return TurnFailure("not_found", failure.message, param="model", code="model_not_found")
    return failure


class Responses:
    """`POST /v1/responses`, and the same over a WebSocket or in the background."""

    name = "responses"
    # Letters and digits only: some clients strip everything else from an id.
    call_prefix = "call"
    large_bodies = True
    _needs_messages = False

    def __init__(
        self,
        store: ResponseStore,
        limits: Limits,
        etag: Callable[[], str | None],
        hosted: Offering | None = None,
        *,
        now: Callable[[], float] = time.time,
        decoded: DecodedParts | None = None,
    ) -> None:
        self.store = store
        self._hosted = hosted
        self._now = now
        self._limits = limits
        self._etag = etag
        self._decoded = decoded if decoded is not None else DecodedParts()
        self._told_codex = False

    async def decode(self, arrival: Arrival) -> Sequence[Inbound[Echo]]:
        if arrival.large is not None:
            inbound: Inbound[Echo] | None = await arrival.large.read("responses", await self.offer(arrival))
            if inbound is not None:
                if self._needs_messages:
                    await arrival.large.complete(inbound)
                return [self._understood(inbound)]
            # What it refers to is stored, and has to be fetched from here.
            arrival.body = await asyncio.to_thread(arrival.large.body)
            arrival.close()
        request = await self.read(arrival)
        stored = await self.store.resolve(arrival.tenant, request)
        return [self.decoded(request, arrival, stored, await self.offer(arrival))]

    async def offer(self, arrival: Arrival) -> HostedOffer:
        """The hosted tools that are run for a request."""
        return await self._hosted.offer(arrival.key) if self._hosted is not None else NOTHING

    async def read(self, arrival: Arrival) -> RequestBody:
        """The request before anything that it refers to is known."""
        return await decoded(
            arrival.body,
            self._decoded,
            lambda cache: responses.read_request(arrival.body, self._limits, cache=cache),
        )

    def decoded(
        self, request: RequestBody, arrival: Arrival, stored: Stored | None, offer: HostedOffer = NOTHING
    ) -> Inbound[Echo]:
        """The request with what it refers to."""
        return self._understood(responses.decode_request(request, arrival.headers, stored=stored, offer=offer))

    def _understood(self, inbound: Inbound[Echo]) -> Inbound[Echo]:
        inbound.background = inbound.echo.background
        if not self._told_codex and any(note.code == "codex.generic_metadata" for note in inbound.notes):
            self._told_codex = True
            log.warning(
                "Codex uses a generic record of %s: start it with `turnwire launch codex`, or set model_catalog_json "
                "to a file of `turnwire codex-catalog`",
                inbound.conversation.model,
            )
        if inbound.background and not inbound.echo.store:
            raise TurnFailure("invalid_request", "background: needs `store` to be true", param="background")
        return inbound

    def begin(self, turns: Sequence[TurnRecord[Echo]], framing: Framing = SSE) -> Sequence[Encoder]:
        return [self._begun(turn, framing) for turn in turns]

    def _begun(self, turn: TurnRecord[Echo], framing: Framing) -> Encoder:
        echo, facts = turn.inbound.echo, response_facts(turn)
        encoder: responses.StreamEncoder | responses.DocumentEncoder
        if turn.inbound.stream or turn.inbound.background:
            encoder = responses.stream_encoder(facts, echo, now=self._now, framing=framing)
        else:
            encoder = responses.document_encoder(facts, echo, now=self._now)
        self.store.begin(
            RunningResponse(
                id=response_id(turn.turn_id),
                tenant=turn.tenant,
                created=facts.created,
                input_items=tuple(echo.input_items),
                writer=encoder,
                previous=echo.previous_response_id,
            )
        )
        return encoder

    def running(self, turn: TurnRecord[Echo]) -> RunningResponse | None:
        """The turn as a response that can be asked for."""
        return self.store.running(turn.tenant, response_id(turn.turn_id))

    async def finished(self, turn: TurnRecord[Echo]) -> None:
        running = self.running(turn)
        if running is not None and turn.inbound.echo.store:
            await self.store.keep(running)

    async def end(self, turns: Sequence[TurnRecord[Echo]]) -> None:
        for turn in turns:
            running = self.running(turn)
            if running is None:
                continue
            try:
                if turn.inbound.echo.store and _failed_openly(running):
                    await self.store.keep(running)
            except StoreError as error:
                log.warning("response %s: its failure could not be stored: %s", running.id, error)
            except Exception:
                log.exception("response %s: its failure could not be stored", running.id)
            finally:
                self.store.end(running)

    def refuse(self, failure: TurnFailure, turn: TurnRecord[Echo] | None = None) -> ErrorReply:
        failure = _post_failure(failure)
        if turn is None:
            return responses.error_reply(failure)
        return responses.refusal(failure, turn.inbound, response_facts(turn))

    def headers(self, turn: TurnRecord[Echo]) -> Headers:
        # Our counts hold every replayed thought, so Codex need not guess at them from the size of the seals.
        headers = [*answer_headers(turn), (b"x-reasoning-included", b"true")]
        etag = self._etag()
        return [*headers, (b"x-models-etag", etag.encode())] if etag is not None else headers


def _failed_openly(running: RunningResponse) -> bool:
    """Whether a failure was sent to the client in its stream, so that the response exists for it."""
    return isinstance(running.writer, responses.StreamEncoder) and running.writer.failed


class Compact(Responses):
    """`POST /v1/responses/compact`: the conversation summed up by its own model, as items to go on with."""

    _needs_messages = True

    def _understood(self, inbound: Inbound[Echo]) -> Inbound[Echo]:
        inbound = super()._understood(inbound)
        inbound.hosted = {}
        echo = inbound.echo
        if not echo.compaction:
            inbound.conversation = responses.summary_request(inbound.conversation)
        inbound.stream, inbound.background, echo.store, echo.background = False, False, False, False
        return inbound

    def begin(self, turns: Sequence[TurnRecord[Echo]], framing: Framing = SSE) -> Sequence[Encoder]:
        return [responses.CompactedEncoder(response_facts(turn), turn.inbound.echo) for turn in turns]
