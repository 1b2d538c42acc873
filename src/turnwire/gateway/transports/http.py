"""HTTP: a POST becomes an arrival, and a turn's bytes become its answer.

Promise: this is the only place where bodies are read and expanded. A client that goes away ends its turn, streaming or
not, and the engine's work with it; a failure before the first byte is a status in the API's own error shape.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from starlette.types import Receive, Scope, Send

from turnwire.gateway.apis.api import Api
from turnwire.gateway.door.bodies import expand
from turnwire.gateway.door.guard import headers_of
from turnwire.gateway.hosted.beginning import Hosting, begin_turn
from turnwire.gateway.large_bodies.pool import LargeBodies
from turnwire.gateway.transports.sinks import http_sink
from turnwire.gateway.turns.admission import Admitting, admit, refuse_while_draining
from turnwire.gateway.turns.arrival import Arrival
from turnwire.gateway.turns.endings import ClientGone
from turnwire.gateway.turns.record import TurnRecord
from turnwire.gateway.turns.side_by_side import SharedSink, run_side_by_side
from turnwire.gateway.turns.sink import Sink
from turnwire.gateway.turns.watching import Reporting, run_watched
from turnwire.protocols.wire import ErrorReply, TurnFailure

__all__ = ["Detached", "Serving", "TurnEndpoint", "read_arrival", "reply", "send_error"]

log = logging.getLogger("turnwire.http")

E = TypeVar("E")


class Serving(Admitting, Reporting, Hosting, Protocol):
    """What a transport needs of the gateway."""

    max_body: int
    large_bodies: LargeBodies | None

    def refused(self, api: str, failure: TurnFailure) -> None:
        """A request that was refused before its turn began."""
        ...

    def expected(self, turn: TurnRecord[Any]) -> None:
        """A client says that it will go on from a conversation, and asks for nothing yet."""
        ...


class Detached(Protocol[E]):
    """Takes a request whose client does not wait for its turn."""

    async def answer(
        self, record: TurnRecord[E], arrival: Arrival, scope: Scope, receive: Receive, send: Send
    ) -> None: ...


async def read_arrival(scope: Scope, receive: Receive, limit: int, large_bodies: LargeBodies | None = None) -> Arrival:
    """The request with its whole body, expanded; TurnFailure once it is over the limit. Where `large_bodies` takes the
    body it is left to them."""
    headers = headers_of(scope)
    encoding = headers.get("content-encoding", "")
    chunks: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise TurnFailure("too_large", f"The request body is larger than {limit} bytes; send less.")
        chunks.append(chunk)
        more = message.get("more_body", False)
    use = scope.get("state", {}).get("use")
    if large_bodies is not None and large_bodies.takes(size, encoding):
        large = large_bodies.request(headers, chunks, size)
        return Arrival(headers=headers, body=b"", started=time.monotonic(), use=use, large=large)
    body = expand(b"".join(chunks), encoding, limit)
    return Arrival(headers=headers, body=body, started=time.monotonic(), use=use)


async def reply(
    send: Send,
    status: int,
    body: bytes,
    *,
    media_type: str = "application/json",
    headers: Sequence[tuple[bytes, bytes]] = (),
) -> None:
    """A whole answer in one go."""
    raw = [(b"content-type", media_type.encode()), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


async def send_error(send: Send, error: ErrorReply) -> None:
    """A refusal in one go."""
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in error.headers]
    await reply(send, error.status, error.body, media_type=error.media_type, headers=headers)


class TurnEndpoint(Generic[E]):
    """POST a request of one API, get its turn; `background` takes requests whose clients do not wait."""

    def __init__(self, gateway: Serving, api: Api[E], background: Detached[E] | None = None) -> None:
        self._gateway = gateway
        self._api = api
        self._background = background

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        turns: list[TurnRecord[E]] = []
        try:
            refuse_while_draining(self._gateway)
            gateway = self._gateway
            elsewhere = gateway.large_bodies if self._api.large_bodies else None
            arrival = await read_arrival(scope, receive, gateway.max_body, elsewhere)
            try:
                turns = await admit(gateway, self._api, arrival)
            finally:
                arrival.close()
            if turns[0].inbound.background and self._background is not None:
                await self._background.answer(turns[0], arrival, scope, receive, send)
            else:
                await self._answer(turns, scope, receive, send)
        except ClientGone:
            return
        except TurnFailure as failure:
            await self._refuse(failure, send, turns)
        except Exception:
            # A defect of ours is still answered in the API's shape; the trace goes to the log.
            log.exception("a defect while answering %s", self._api.name)
            await self._refuse(TurnFailure("internal", "The gateway failed to answer this request."), send, turns)

    async def _refuse(self, failure: TurnFailure, send: Send, turns: Sequence[TurnRecord[E]]) -> None:
        self._gateway.refused(self._api.name, failure)
        await send_error(send, self._api.refuse(failure, turns[0] if turns else None))

    async def _answer(self, records: Sequence[TurnRecord[E]], scope: Scope, receive: Receive, send: Send) -> None:
        api = self._api
        encoders = api.begin(records)
        answer = http_sink(scope, receive, send, encoders[0].media_type, partial(api.headers, records[0]))
        sink: Sink = answer if len(records) == 1 else SharedSink(answer)
        turns = [
            begin_turn(self._gateway, api, record, encoder, sink)
            for record, encoder in zip(records, encoders, strict=True)
        ]
        clean = False
        try:
            if len(turns) == 1:
                await run_watched(self._gateway, turns[0])
                clean = not turns[0].cut
            else:
                clean = await run_side_by_side(self._gateway, turns)
        except asyncio.CancelledError:
            if any(turn.opened for turn in turns):
                raise
            # The server stops without waiting: its client still gets the API's own error.
            raise TurnFailure("overloaded", "The gateway is shutting down; try again.", retry_after=1) from None
        finally:
            await api.end(records)
            if not clean:
                answer.stop()
        # A turn that died without a final event is cut, not ended: a clean end would look like a success.
        if clean:
            await answer.close()
            answer.stop()
