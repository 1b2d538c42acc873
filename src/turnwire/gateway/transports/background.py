"""Background: a turn without a client that waits; whoever asks later reads its log.

Promise: a background turn is stored before its request is answered, runs under the same watch as any other, counts
against its key while it runs, and is stored again when it ends, however it ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Protocol

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from turnwire.gateway.apis.api import Headers
from turnwire.gateway.apis.responses import Responses
from turnwire.gateway.hosted.beginning import Hosting, begin_turn
from turnwire.gateway.stores.responses import ResponseLog
from turnwire.gateway.stores.store import StoreError
from turnwire.gateway.turns.arrival import Arrival
from turnwire.gateway.turns.record import TurnRecord
from turnwire.gateway.turns.turn import Turn
from turnwire.gateway.turns.watching import Reporting, run_watched
from turnwire.protocols.responses import Echo, StreamEncoder
from turnwire.protocols.wire import TurnFailure

__all__ = ["Background", "follow"]

log = logging.getLogger("turnwire.background")

MAX_BACKGROUND = 64
"""Background turns of one tenant."""


class _Running(Reporting, Hosting, Protocol):
    """What a background turn needs of the gateway."""


class Background:
    """Runs background turns of the Responses API."""

    def __init__(self, gateway: _Running, api: Responses) -> None:
        self._gateway = gateway
        self._api = api

    async def answer(
        self, record: TurnRecord[Echo], arrival: Arrival, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Start the turn; answer with its document, or with its events for as long as the client stays."""
        store, headers = self._api.store, self._api.headers(record)
        if store.in_background(record.tenant) >= MAX_BACKGROUND:
            raise TurnFailure(
                "rate_limited", f"At most {MAX_BACKGROUND} responses may run in the background at a time."
            )
        (encoder,) = self._api.begin([record])
        running = self._api.running(record)
        assert running is not None
        assert isinstance(encoder, StreamEncoder)
        frames = ResponseLog()
        try:
            first = await store.begin_background(running)
        except BaseException:
            store.end(running)
            raise
        store.keep_log(running, frames)
        turn = begin_turn(self._gateway, self._api, record, encoder, frames)
        running.task = asyncio.create_task(self._run(turn, encoder, arrival))
        if record.inbound.stream:
            await follow(frames.frames(-1), headers)(scope, receive, send)
            return
        raw = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(first.document)), *headers]
        await send({"type": "http.response.start", "status": 200, "headers": raw})
        await send({"type": "http.response.body", "body": first.document})

    async def _run(self, turn: Turn, encoder: StreamEncoder, arrival: Arrival) -> None:
        if arrival.use is not None:
            arrival.use.running += 1
        try:
            await run_watched(self._gateway, turn)
        except TurnFailure as failure:
            turn.sink.write(encoder.start(turn.usage) + encoder.fail(failure))
        except asyncio.CancelledError:
            encoder.cancel()
            await self._keep(turn.record)
        except Exception:
            log.exception("a defect in background turn %s", turn.record.turn_id)
            turn.sink.write(encoder.fail(TurnFailure("internal", "The gateway failed to run this response.")))
        finally:
            if arrival.use is not None:
                arrival.use.running -= 1
            await self._api.end([turn.record])

    async def _keep(self, record: TurnRecord[Echo]) -> None:
        running = self._api.running(record)
        if running is None:
            return
        try:
            await self._api.store.keep(running)
        except StoreError as error:
            log.warning("background response %s could not be stored: %s", running.id, error)
        except Exception:
            log.exception("background response %s could not be stored", running.id)


def follow(frames: AsyncIterator[bytes], headers: Headers) -> StreamingResponse:
    """The events of a background response as they come; leaving does not end the turn."""
    kept = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
    kept["cache-control"] = "no-cache"
    return StreamingResponse(frames, headers=kept, media_type="text/event-stream")
