"""The ASGI side of a turn: read the request within limits, watch the client, write the answer.

Promise: one endpoint class serves every API; a client that goes away ends the turn, streaming or not, and the engine's
work with it; a failure before the first byte is a status in the API's own error shape.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import string
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec
from starlette.types import Message as ASGIMessage
from starlette.types import Receive, Scope, Send

from turnwire.continuity import Verdict
from turnwire.continuity import header as prefix_header
from turnwire.gateway.door.bodies import expand
from turnwire.gateway.door.keys import ANONYMOUS, Key, ranked
from turnwire.gateway.door.limits import RequestLimits
from turnwire.gateway.turns.heartbeat import Heartbeat
from turnwire.gateway.turns.passage import Passage, TurnOutcome
from turnwire.gateway.turns.runtime import ModelRuntime
from turnwire.gateway.turns.turn import Sink, Turn
from turnwire.protocols.wire import Encoder, ErrorKind, ErrorReply, Inbound, TurnFacts, TurnFailure

__all__ = [
    "ASGISink",
    "Api",
    "ClientGone",
    "Host",
    "TurnEndpoint",
    "headers_of",
    "key_of",
    "mint",
    "read_body",
    "reply",
    "response_headers",
    "run_watched",
    "tenant_of",
]

log = logging.getLogger("turnwire.exchange")

# What a client is told when the gateway itself ends its turn.
_ENDINGS: dict[str, tuple[ErrorKind, str]] = {
    "idle": ("timeout", "The engine was silent for too long; try again."),
    "shutdown": ("overloaded", "The gateway is shutting down; try again."),
}
_LAST_WORDS_S = 5.0
_ALPHABET = string.ascii_letters + string.digits


def mint(prefix: str = "", length: int = 24) -> str:
    """A fresh id of letters and digits only, since some clients strip everything else."""
    return prefix + "".join(secrets.choice(_ALPHABET) for _ in range(length))


class Api(msgspec.Struct, frozen=True, kw_only=True):
    """A codec as the gateway sees it. `call_prefix` starts the ids of tool calls on this API."""

    name: str
    decode: Callable[..., Inbound[Any]]
    stream_encoder: Callable[[TurnFacts, Any], Encoder]
    document_encoder: Callable[[TurnFacts, Any], Encoder]
    error_reply: Callable[[TurnFailure], ErrorReply]
    call_prefix: str


class ClientGone(Exception):
    """The client closed the connection before its request was read."""


async def read_body(receive: Receive, limit: int) -> bytes:
    """The whole request body, or a TurnFailure once it is over the limit."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise TurnFailure("too_large", f"The request body is larger than {limit} bytes; send less.")
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


def headers_of(scope: Scope) -> dict[str, str]:
    """Lower-case header names to values; the last of a repeated header wins."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


async def reply(
    send: Send,
    status: int,
    body: bytes,
    *,
    media_type: str = "application/json",
    headers: tuple[tuple[str, str], ...] = (),
) -> None:
    """A whole answer in one go."""
    raw = [(b"content-type", media_type.encode()), (b"content-length", str(len(body)).encode())]
    raw += [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


class ASGISink:
    """Writes a turn's bytes as an ASGI response body."""

    def __init__(self, send: Send, media_type: str, headers: list[tuple[bytes, bytes]]) -> None:
        self._send = send
        self._start: ASGIMessage = {
            "type": "http.response.start",
            "status": 200,
            "headers": [
                (b"content-type", media_type.encode()),
                (b"cache-control", b"no-cache"),
                (b"x-accel-buffering", b"no"),
                *headers,
            ],
        }

    async def open(self) -> None:
        await self._send(self._start)

    def write(self, data: bytes) -> Awaitable[None]:
        # No coroutine of its own: this is called once per engine wake-up.
        return self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def close(self) -> None:
        await self._send({"type": "http.response.body", "body": b""})


class _LiveTurn:
    """A running turn as the heartbeat and the disconnect watcher see it."""

    def __init__(self, turn: Turn, sink: Sink, task: asyncio.Task[TurnOutcome]) -> None:
        self._turn = turn
        self._sink = sink
        self._task = task
        self.ended_by: str | None = None

    @property
    def silent(self) -> bool:
        return self._turn.silent

    @silent.setter
    def silent(self, value: bool) -> None:
        self._turn.silent = value

    @property
    def writing(self) -> bool:
        return self._turn.writing

    @writing.setter
    def writing(self, value: bool) -> None:
        self._turn.writing = value

    async def beat(self) -> None:
        if self._turn.opened:
            data = self._turn.encoder.keepalive()
            if data:
                await self._sink.write(data)

    def expire(self, reason: str) -> None:
        if self.ended_by is None:
            self.ended_by = reason
            self._task.cancel()


class Host(Protocol):
    """What an endpoint needs of the application."""

    heartbeat: Heartbeat
    max_body: int
    dispatch: bool
    draining: bool
    runtimes: list[ModelRuntime]
    limits: RequestLimits

    def runtime_for(self, model: str) -> ModelRuntime: ...

    def serving(self, inbound: Inbound[Any]) -> ModelRuntime: ...

    def failed(self, api: str, failure: TurnFailure) -> None:
        """A request that was refused before its turn began."""
        ...

    def passed(self, passage: Passage) -> None:
        """A turn that ran, whatever became of it."""
        ...


def key_of(scope: Scope) -> Key:
    """The key of a request; the guard has left it in the scope's state."""
    use = scope.get("state", {}).get("use")
    return use.key if use is not None else ANONYMOUS


def tenant_of(scope: Scope) -> str:
    """Whose request it is."""
    return key_of(scope).owner


class TurnEndpoint:
    """POST a request, get a turn."""

    def __init__(self, host: Host, api: Api) -> None:
        self._host = host
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._serve(scope, receive, send)
        except ClientGone:
            return
        except TurnFailure as failure:
            await self.refuse(failure, send)
        except Exception:
            # A defect of ours is still answered in the API's shape; the trace goes to the log.
            log.exception("a defect while answering %s", self._api.name)
            await self.refuse(TurnFailure("internal", "The gateway failed to answer this request."), send)

    async def refuse(self, failure: TurnFailure, send: Send) -> None:
        """Answer with a failure, before any byte of the turn."""
        self._host.failed(self._api.name, failure)
        error = self._api.error_reply(failure)
        await reply(send, error.status, error.body, media_type=error.media_type, headers=error.headers)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = headers_of(scope)
        body = await self.body(headers, receive)
        tenant = tenant_of(scope)
        inbound = await self.decode(body, headers, tenant)
        inbound.conversation = ranked(inbound.conversation, key_of(scope))
        runtime = self._host.serving(inbound)
        self._host.limits.check(inbound.conversation, len(body), fetches=runtime.fetches)
        prompt, continuity = await runtime.prepare(inbound, tenant)
        passage = Passage(
            api=self._api.name,
            turn_id=mint(),
            tenant=tenant,
            started=time.monotonic(),
            headers=headers,
            body=body,
            inbound=inbound,
            runtime=runtime,
            prompt=prompt,
            continuity=continuity,
        )
        await self.answer(passage, receive, send)

    async def body(self, headers: Mapping[str, str], receive: Receive) -> bytes:
        """The request's body, read and expanded within the limit; none is read while draining."""
        if self._host.draining:
            raise TurnFailure("overloaded", "The gateway is shutting down; try again.", retry_after=1)
        body = await read_body(receive, self._host.max_body)
        return expand(body, headers.get("content-encoding", ""), self._host.max_body)

    async def decode(self, body: bytes, headers: Mapping[str, str], tenant: str) -> Inbound[Any]:
        """The request; an API whose requests refer to stored things fetches them here."""
        return self._api.decode(body, headers, limits=self._host.limits.wire)

    def facts(self, passage: Passage) -> TurnFacts:
        """What is fixed before the turn starts."""
        inbound = passage.inbound
        return TurnFacts(
            turn_id=passage.turn_id,
            model=inbound.conversation.model,
            created=int(time.time()),
            dispatch=self._host.dispatch if inbound.dispatch is None else inbound.dispatch,
            diagnostics=self.diagnostics(passage.continuity) if inbound.previous_turn else None,
        )

    def diagnostics(self, verdict: Verdict) -> Mapping[str, object] | None:
        """What the API says of prefix reuse where it has words for it."""
        return None

    def encoder(self, passage: Passage) -> Encoder:
        """The encoder of this answer, streamed or whole."""
        make = self._api.stream_encoder if passage.inbound.stream else self._api.document_encoder
        return make(self.facts(passage), passage.inbound.echo)

    def headers(self, passage: Passage) -> list[tuple[bytes, bytes]]:
        """What the answer says about itself before its first byte."""
        return response_headers(passage)

    async def settle(self, passage: Passage) -> None:
        """What must be kept of a finished turn before its client hears the end."""

    async def answer(self, passage: Passage, receive: Receive, send: Send) -> None:
        """Run the turn and write it, streamed or whole."""
        encoder = self.encoder(passage)
        turn = Turn(passage, encoder, mint=lambda: mint(self._api.call_prefix), settle=self.settle)
        sink = ASGISink(send, encoder.media_type, self.headers(passage))
        await run_watched(self._host, turn, sink, receive)
        # A turn that died without a word of its own is cut, not ended: a clean end would look like a success.
        if not turn.cut:
            await sink.close()


async def run_watched(host: Host, turn: Turn, sink: Sink, receive: Receive | None) -> TurnOutcome:
    """Run a turn under the heartbeat, and end it when the client goes away (no `receive`: there is no client to watch).
    Whatever becomes of it, the host hears of it."""
    passage = turn.passage
    task: asyncio.Task[TurnOutcome] = asyncio.ensure_future(turn.run(sink))
    live = _LiveTurn(turn, sink, task)
    watcher = asyncio.ensure_future(_gone(receive, live)) if receive is not None else None
    host.heartbeat.watch(live)
    try:
        return await task
    except asyncio.CancelledError:
        if live.ended_by in _ENDINGS:
            await _last_words(turn, TurnFailure(*_ENDINGS[live.ended_by], retry_after=1), sink)
            return turn.outcome
        if live.ended_by is not None:
            raise ClientGone from None
        task.cancel()
        raise
    finally:
        passage.ended_by = live.ended_by
        passage.silence = host.heartbeat.forget(live)
        if watcher is not None:
            watcher.cancel()
        passage.outcome = turn.outcome
        host.passed(passage)


async def _last_words(turn: Turn, failure: TurnFailure, sink: Sink) -> None:
    """Tell the client why its turn is ended; one that does not read is not waited for."""
    try:
        async with asyncio.timeout(_LAST_WORDS_S):
            await turn.fail(failure, sink)
    except TimeoutError:
        turn.cut = True


def response_headers(passage: Passage) -> list[tuple[bytes, bytes]]:
    """What the answer says about itself: its id, whether the prefix held, and the codes of its notes so far."""
    codes = sorted({note.code for note in (*passage.inbound.notes, *passage.prompt.notes)})
    headers = [
        (b"request-id", f"req_{passage.turn_id}".encode()),
        (b"x-turnwire-prefix", prefix_header(passage.continuity).encode("latin-1", "replace")),
    ]
    if codes:
        headers.append((b"x-turnwire-notes", ",".join(codes)[:1024].encode("latin-1", "replace")))
    return headers


async def _gone(receive: Receive, live: _LiveTurn) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    live.expire("gone")
