"""Responses over a WebSocket: one connection, one turn at a time, only new items sent by the client.

Promise: the events are those of the HTTP stream, one JSON text frame each, and a request passes the same admission.
What a turn continues lives with the connection (and in the store where it is stored); a client that goes away ends its
turn. What waits behind a turn is bounded in number and size; beyond that, messages are left with the client.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send

from turnwire.gateway.apis.api import Headers
from turnwire.gateway.apis.responses import Responses, response_facts
from turnwire.gateway.door.guard import headers_of
from turnwire.gateway.door.websocket import LEFT
from turnwire.gateway.hosted.beginning import begin_turn
from turnwire.gateway.transports.http import Serving
from turnwire.gateway.transports.sinks import Pump
from turnwire.gateway.turns.admission import admit
from turnwire.gateway.turns.arrival import Arrival
from turnwire.gateway.turns.endings import ClientGone
from turnwire.gateway.turns.record import TurnRecord
from turnwire.gateway.turns.sink import Reader
from turnwire.gateway.turns.watching import run_watched
from turnwire.protocols import responses
from turnwire.protocols.framing import LINES, SSE, Framing
from turnwire.protocols.responses import Echo, Stored, StreamEncoder, response_id
from turnwire.protocols.wire import Encoder, ErrorReply, Inbound, TurnFailure
from turnwire.turns import Finished, Usage

__all__ = ["NoSocket", "ResponsesSocket"]

_IDLE_S = 3600.0
_WAITING = 16
_REMEMBERED = 8


class NoSocket:
    """The answer to an upgrade that is not taken up: `status` 426 sends Codex to HTTP at once."""

    def __init__(self, status: int = 426) -> None:
        self._status = status

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if "websocket.http.response" in scope.get("extensions", {}):
            headers = [(b"content-length", b"0"), (b"connection", b"close")]
            await send({"type": "websocket.http.response.start", "status": self._status, "headers": headers})
            await send({"type": "websocket.http.response.body", "body": b""})
        else:
            await send({"type": "websocket.close", "code": 1000})


class _FrameSink:
    """Writes each line of JSON as one text frame."""

    def __init__(self, send: Send) -> None:
        self._pump = Pump(send)
        self._left = False
        self.reader: Reader | None = None

    @property
    def full(self) -> bool:
        return self._pump.full

    def attach(self, reader: Reader) -> None:
        self.reader = self._pump.reader = reader
        if self._left:
            reader.gone()

    def leave(self) -> None:
        """The client is gone."""
        self._left = True
        if self.reader is not None:
            self.reader.gone()

    def open(self) -> None:
        """The connection is already open."""

    def write(self, data: bytes) -> None:
        for line in data.splitlines():
            self._pump.put({"type": "websocket.send", "text": line.decode()}, len(line))

    write_last = write

    async def emptied(self) -> None:
        """Wait until all has been sent."""
        self.reader = self._pump.reader = None
        await self._pump.emptied()

    def stop(self) -> None:
        """Send nothing more."""
        self._pump.stop()


class _SocketResponses:
    """The Responses API of one connection: it remembers what its last responses were answered to."""

    name = Responses.name
    call_prefix = Responses.call_prefix
    large_bodies = False

    def __init__(self, api: Responses) -> None:
        self._api = api
        # All items up to and with the output of each response of this connection.
        self._remembered: OrderedDict[str, tuple[Mapping[str, Any], ...]] = OrderedDict()
        self._earlier: tuple[Mapping[str, Any], ...] = ()
        self.generates = True

    async def decode(self, arrival: Arrival) -> Sequence[Inbound[Echo]]:
        request = await self._api.read(arrival)
        if request.type != "response.create":
            raise TurnFailure(
                "invalid_request", f"type: '{request.type}' is not known here; send response.create", param="type"
            )
        self.generates = request.generate
        known = self._remembered.get(request.previous_response_id or "")
        store = self._api.store
        if known is None:
            stored = await store.resolve(arrival.tenant, request)
        else:
            items = await store.items(arrival.tenant, request.references) if request.references else {}
            stored = Stored(items=items, history=known)
        offer = await self._api.offer(arrival)
        self._earlier = stored.history if stored is not None and stored.history is not None else ()
        try:
            inbound = self._api.decoded(request, arrival, stored, offer)
        except TurnFailure:
            # As the vendor does: what a refused request went on from is no longer remembered by the connection.
            self._remembered.pop(request.previous_response_id or "", None)
            raise
        if inbound.background:
            raise TurnFailure("invalid_request", "background: not on a WebSocket; use POST", param="background")
        inbound.stream = True
        return [inbound]

    def begin(self, turns: Sequence[TurnRecord[Echo]], framing: Framing = SSE) -> Sequence[Encoder]:
        return self._api.begin(turns, framing)

    async def finished(self, turn: TurnRecord[Echo]) -> None:
        await self._api.finished(turn)

    async def end(self, turns: Sequence[TurnRecord[Echo]]) -> None:
        await self._api.end(turns)

    def refuse(self, failure: TurnFailure, turn: TurnRecord[Echo] | None = None) -> ErrorReply:
        return self._api.refuse(failure)

    def headers(self, turn: TurnRecord[Echo]) -> Headers:
        return self._api.headers(turn)

    def remember(self, turn: TurnRecord[Echo], encoder: StreamEncoder) -> None:
        """Keep what the connection's next turn may continue."""
        items = (*self._earlier, *turn.inbound.echo.input_items, *encoder.output_items)
        self._remembered[response_id(turn.turn_id)] = items
        while len(self._remembered) > _REMEMBERED:
            self._remembered.popitem(last=False)


class ResponsesSocket:
    """The WebSocket side of `/v1/responses`, as an ASGI application."""

    def __init__(self, gateway: Serving, api: Responses) -> None:
        self._gateway = gateway
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._gateway.draining:
            await NoSocket(503)(scope, receive, send)
        else:
            await _Connection(self._gateway, self._api, scope, receive, send).run()


class _Waiting:
    """What the client sent behind the message that is being answered. `room`: another may be read."""

    def __init__(self, size: int) -> None:
        self._messages: deque[bytes] = deque()
        self._left = size
        self._some = asyncio.Event()
        self.room = asyncio.Event()
        self.room.set()

    def put(self, message: bytes) -> None:
        """Keep one more, however large it is."""
        self._messages.append(message)
        self._changed(-len(message))

    async def get(self) -> bytes:
        """The first of them, once there is one."""
        await self._some.wait()
        message = self._messages.popleft()
        self._changed(len(message))
        return message

    def _changed(self, freed: int) -> None:
        self._left += freed
        _set(self._some, bool(self._messages))
        _set(self.room, self._left > 0 and len(self._messages) < _WAITING)


def _set(event: asyncio.Event, to: bool) -> None:
    if to:
        event.set()
    else:
        event.clear()


class _Connection:
    """One client."""

    def __init__(self, gateway: Serving, api: Responses, scope: Scope, receive: Receive, send: Send) -> None:
        self._gateway = gateway
        self._api = _SocketResponses(api)
        self._headers = headers_of(scope)
        self._use = scope.get("state", {}).get("use")
        self._receive = receive
        self._send = send
        self._sink = _FrameSink(send)
        self._waiting = _Waiting(gateway.max_body)
        # Our own server tells of a client that leaves also while nothing is read from it.
        self._gone: asyncio.Event = scope.get("extensions", {}).get(LEFT) or asyncio.Event()

    async def run(self) -> None:
        """Serve until the client leaves or says nothing for long."""
        if (await self._receive())["type"] != "websocket.connect":
            return
        await self._send({"type": "websocket.accept"})
        reader = asyncio.create_task(self._read())
        leaving = asyncio.create_task(self._leave())
        try:
            while not self._gone.is_set() and (arrival := await self._next(leaving)) is not None:
                await self._serve(arrival)
            if not self._gone.is_set():
                await self._send({"type": "websocket.close", "code": 1000, "reason": "idle"})
        except ClientGone:
            pass
        finally:
            self._sink.stop()
            reader.cancel()
            leaving.cancel()

    async def _read(self) -> None:
        while await self._take():
            await self._waiting.room.wait()
        self._gone.set()

    async def _take(self) -> bool:
        """Read one message; False where there is none any more. It waits as bytes: as text it may be four times as
        large."""
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            return False
        text = message.get("text")
        self._waiting.put(text.encode() if text is not None else message.get("bytes") or b"")
        return True

    async def _leave(self) -> None:
        await self._gone.wait()
        self._sink.leave()

    async def _next(self, leaving: asyncio.Task[None]) -> Arrival | None:
        """The next message, which nobody else holds; None where the client leaves or says nothing for long."""
        message = asyncio.ensure_future(self._waiting.get())
        await asyncio.wait({message, leaving}, timeout=_IDLE_S, return_when=asyncio.FIRST_COMPLETED)
        if not message.done():
            message.cancel()
            return None
        return Arrival(headers=self._headers, body=message.result(), started=time.monotonic(), use=self._use)

    async def _serve(self, arrival: Arrival) -> None:
        try:
            await self._create(arrival)
        except TurnFailure as failure:
            self._gateway.refused(self._api.name, failure)
            error = self._api.refuse(failure)
            frame = {"type": "error", "status": error.status, **msgspec.json.decode(error.body)}
            self._sink.write(msgspec.json.encode(frame) + b"\n")
        await self._sink.emptied()

    async def _create(self, arrival: Arrival) -> None:
        if self._use is not None:
            # The connection itself holds a place of its key.
            self._use.ask(held=1)
        limit = self._gateway.max_body
        if len(arrival.body) > limit:
            raise TurnFailure("too_large", f"The message is larger than {limit} bytes; send less.")
        (record,) = await admit(self._gateway, self._api, arrival)
        if self._api.generates:
            await self._generate(record)
        else:
            self._prewarm(record)

    def _prewarm(self, record: TurnRecord[Echo]) -> None:
        """The prompt is rendered and tokenized by now, and the next turn will start with it; nothing is generated. A
        worker may read it ahead."""
        self._gateway.expected(record)
        usage = Usage(len(record.prompt.ids))
        encoder = responses.stream_encoder(response_facts(record), record.inbound.echo, now=time.time, framing=LINES)
        self._sink.write(encoder.start(usage) + encoder.feed((usage, Finished("stop"))))
        self._api.remember(record, encoder)

    async def _generate(self, record: TurnRecord[Echo]) -> None:
        api = self._api
        (encoder,) = api.begin([record], LINES)
        assert isinstance(encoder, StreamEncoder)
        turn = begin_turn(self._gateway, api, record, encoder, self._sink)
        try:
            await run_watched(self._gateway, turn)
        except TurnFailure as failure:
            self._gateway.refused(api.name, failure)
            self._sink.write(encoder.start(turn.usage) + encoder.fail(failure))
        finally:
            await api.end([record])
        api.remember(record, encoder)
