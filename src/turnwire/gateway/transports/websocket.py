"""Responses over a WebSocket: one connection, one turn at a time, only new items sent by the client.

Promise: the events are those of the HTTP stream, one JSON text frame each. What a turn continues lives with the
connection (and on the shelf when it is stored); a client that goes away ends its turn.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.types import Message as ASGIMessage
from starlette.types import Receive, Scope, Send

from turnwire.continuity import Verdict, responses_diagnostics
from turnwire.gateway.apis.responses import RESPONSES, post_failure
from turnwire.gateway.door.keys import ranked
from turnwire.gateway.stores.responses import LiveResponse, ResponseShelf
from turnwire.gateway.transports.http import ClientGone, Host, headers_of, key_of, mint, run_watched
from turnwire.gateway.turns.passage import Passage
from turnwire.gateway.turns.turn import Turn
from turnwire.protocols import responses
from turnwire.protocols.framing import LINES
from turnwire.protocols.responses import Echo, RequestBody, Stored, response_id, with_ids
from turnwire.protocols.wire import Encoder, Inbound, TurnFacts, TurnFailure
from turnwire.turns import Finished, Usage

__all__ = ["NoSocket", "ResponsesSocket"]

_IDLE_S = 3600.0
_WAITING = 16
_REMEMBERED = 8


class NoSocket:
    """The answer to an upgrade where WebSockets are off: 426 sends Codex to HTTP at once."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if "websocket.http.response" in scope.get("extensions", {}):
            headers = [(b"content-length", b"0"), (b"connection", b"close")]
            await send({"type": "websocket.http.response.start", "status": 426, "headers": headers})
            await send({"type": "websocket.http.response.body", "body": b""})
        else:
            await send({"type": "websocket.close", "code": 1000})


class _FrameSink:
    """Writes each line of JSON as one text frame."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def open(self) -> None:
        """The connection is already open."""

    async def write(self, data: bytes) -> None:
        for line in data.splitlines():
            await self._send({"type": "websocket.send", "text": line.decode()})


class ResponsesSocket:
    """The WebSocket side of `/v1/responses`, as an ASGI application."""

    def __init__(self, host: Host, shelf: ResponseShelf) -> None:
        self._host = host
        self._shelf = shelf

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await _Connection(self._host, self._shelf, scope, receive, send).run()


class _Connection:
    """One client."""

    def __init__(self, host: Host, shelf: ResponseShelf, scope: Scope, receive: Receive, send: Send) -> None:
        self._host = host
        self._shelf = shelf
        self._headers = headers_of(scope)
        self._key = key_of(scope)
        self._tenant = self._key.owner
        self._use = scope.get("state", {}).get("use")
        self._receive = receive
        self._send = send
        self._sink = _FrameSink(send)
        self._waiting: asyncio.Queue[str | bytes] = asyncio.Queue(_WAITING)
        self._gone = asyncio.Event()
        # What each response of this connection was answered to: all items up to and with its output.
        self._remembered: OrderedDict[str, tuple[Mapping[str, Any], ...]] = OrderedDict()

    async def run(self) -> None:
        """Serve until the client leaves or says nothing for long."""
        if (await self._receive())["type"] != "websocket.connect":
            return
        await self._send({"type": "websocket.accept"})
        reader = asyncio.create_task(self._read())
        leaving = asyncio.create_task(self._gone.wait())
        try:
            while not self._gone.is_set():
                message = asyncio.ensure_future(self._waiting.get())
                await asyncio.wait({message, leaving}, timeout=_IDLE_S, return_when=asyncio.FIRST_COMPLETED)
                if not message.done():
                    message.cancel()
                    break
                await self._serve(message.result())
            if not self._gone.is_set():
                await self._send({"type": "websocket.close", "code": 1000, "reason": "idle"})
        except ClientGone:
            pass
        finally:
            reader.cancel()
            leaving.cancel()

    async def _read(self) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                self._gone.set()
                return
            await self._waiting.put(message.get("text") or message.get("bytes") or b"")

    async def _departure(self) -> ASGIMessage:
        """A `receive` for the turn's watcher: nothing, until the client has left."""
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _serve(self, message: str | bytes) -> None:
        try:
            await self._create(message)
        except TurnFailure as failure:
            self._host.failed(RESPONSES.name, failure)
            error = RESPONSES.error_reply(failure)
            frame = {"type": "error", "status": error.status, **msgspec.json.decode(error.body)}
            await self._send({"type": "websocket.send", "text": msgspec.json.encode(frame).decode()})

    async def _create(self, message: str | bytes) -> None:
        if self._use is not None:
            # The connection itself holds a place of its key.
            self._use.ask(held=1)
        data = message.encode() if isinstance(message, str) else message
        if len(data) > self._host.max_body:
            raise TurnFailure("too_large", f"The message is larger than {self._host.max_body} bytes; send less.")
        limits = self._host.limits
        request = responses.read_request(data, limits.wire)
        kind = request.fields.pop("type", None)
        if kind != "response.create":
            raise TurnFailure(
                "invalid_request", f"type: '{kind}' is not known here; send response.create", param="type"
            )
        generate = request.fields.get("generate") is not False
        stored = await self._resolve(request)
        inbound = responses.decode_request(request, self._headers, stored=stored, limits=limits.wire)
        fetches = self._host.runtime_for(inbound.conversation.model).fetches
        limits.check(inbound.conversation, len(data), fetches=fetches)
        inbound.conversation = ranked(inbound.conversation, self._key)
        inbound.stream = True
        echo = inbound.echo
        assert isinstance(echo, Echo)
        if echo.background:
            raise TurnFailure("invalid_request", "background: not on a WebSocket; use POST", param="background")
        earlier = stored.history if stored is not None and stored.history is not None else ()
        turn_id = mint()
        encoder = await (self._generate if generate else self._prewarm)(inbound, turn_id)
        output = encoder.output_items  # type: ignore[attr-defined]
        self._remember(response_id(turn_id), (*earlier, *echo.input_items, *output))

    async def _resolve(self, request: RequestBody) -> Stored | None:
        known = self._remembered.get(request.previous_response_id or "")
        if known is None:
            return await self._shelf.resolve(self._tenant, request)
        items = await self._shelf.items(self._tenant, request.references) if request.references else {}
        return Stored(items=items, history=known)

    async def _prewarm(self, inbound: Inbound[Echo], turn_id: str) -> Encoder:
        """Render and tokenize what the next turn will start with; nothing is generated."""
        runtime = self._host.runtime_for(inbound.conversation.model)
        prompt = await runtime.build(inbound.conversation, self._tenant)
        usage = Usage(len(prompt.ids))
        encoder = responses.stream_encoder(_facts(inbound, turn_id), inbound.echo, now=time.time, framing=LINES)
        await self._sink.write(encoder.start(usage) + encoder.feed((usage, Finished("stop"))))
        return encoder

    async def _generate(self, inbound: Inbound[Echo], turn_id: str) -> Encoder:
        started = time.monotonic()
        runtime = self._host.serving(inbound)
        prompt, continuity = await runtime.prepare(inbound, self._tenant)
        facts = _facts(inbound, turn_id, continuity)
        encoder = responses.stream_encoder(facts, inbound.echo, now=time.time, framing=LINES)
        passage = Passage(
            api=RESPONSES.name,
            turn_id=turn_id,
            tenant=self._tenant,
            started=started,
            headers=self._headers,
            body=b"",
            inbound=inbound,
            runtime=runtime,
            prompt=prompt,
            continuity=continuity,
        )
        turn = Turn(passage, encoder, mint=lambda: mint(RESPONSES.call_prefix))
        live = self._begin(inbound.echo, facts, encoder)
        try:
            await run_watched(self._host, turn, self._sink, self._departure)
            live.kept = bool(getattr(inbound.echo, "store", False))
        except TurnFailure as failure:
            self._host.failed(RESPONSES.name, failure)
            opening = b"" if turn.opened else encoder.start(turn.usage)
            await self._sink.write(opening + encoder.fail(post_failure(failure)))
        finally:
            await self._shelf.end(live)
        return encoder

    def _begin(self, echo: object, facts: TurnFacts, encoder: Encoder) -> LiveResponse:
        assert isinstance(echo, Echo)
        items = with_ids(echo.input_items, facts.turn_id)
        live = LiveResponse(response_id(facts.turn_id), self._tenant, facts.created, items)
        live.previous = echo.previous_response_id
        live.writer = encoder  # type: ignore[assignment]
        self._shelf.begin(live)
        return live

    def _remember(self, name: str, items: tuple[Mapping[str, Any], ...]) -> None:
        self._remembered[name] = items
        while len(self._remembered) > _REMEMBERED:
            self._remembered.popitem(last=False)


def _facts(inbound: Inbound[Echo], turn_id: str, continuity: Verdict | None = None) -> TurnFacts:
    return TurnFacts(
        turn_id=turn_id,
        model=inbound.conversation.model,
        created=int(time.time()),
        diagnostics=responses_diagnostics(continuity) if continuity and inbound.previous_turn else None,
    )
