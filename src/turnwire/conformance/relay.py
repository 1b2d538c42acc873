"""A relay between a client and a server that counts what passes: requests, calls, tokens, and keeps request bodies.

Promise: bytes go on untouched and at once; only a copy is read, after the answer or the client's wish for it has ended,
and within limits. `before` is called with each request of an API before it goes on.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web

from turnwire.conformance.apis.chat import Chat
from turnwire.conformance.apis.interface import Api
from turnwire.conformance.apis.messages import Messages
from turnwire.conformance.apis.responses import Responses
from turnwire.conformance.exchange import Exchange, frames_of
from turnwire.conformance.turn import Turn
from turnwire.conformance.values import parsed
from turnwire.conformance.words import clipped

__all__ = ["Relay", "relayed"]

_MOST = 32 * 1024 * 1024
_APIS: dict[str, Api] = {api.path: api for api in (Chat(), Messages(), Responses())}
# Headers that belong to one connection.
_HOPS = {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "accept-encoding"}


class Relay:
    """What passed since the last `reset`. `refused` has every answer that was an error."""

    def __init__(self, before: Callable[[str, dict[str, Any]], None]) -> None:
        self.url = ""
        self._before = before
        self.reset()

    def reset(self) -> None:
        """Begin a new run."""
        self.bodies: list[dict[str, Any]] = []
        self.turns: list[Turn] = []
        self.refused: list[tuple[int, str]] = []

    def arrived(self, path: str, sent: bytes) -> None:
        """A request that has not gone on yet."""
        body = parsed(sent) if path in _APIS else None
        if isinstance(body, dict):
            self._before(path, body)

    @property
    def calls(self) -> int:
        return sum(len(turn.of("call")) for turn in self.turns)

    @property
    def prompt_tokens(self) -> int:
        return sum(turn.counts.prompt or 0 for turn in self.turns)

    @property
    def output_tokens(self) -> int:
        return sum(turn.counts.output or 0 for turn in self.turns)

    def note(self, path: str, sent: bytes, status: int, kind: str, answer: bytes) -> None:
        """Count one exchange."""
        api, body = _APIS.get(path), parsed(sent)
        if api is None or not isinstance(body, dict):
            return
        self.bodies.append(body)
        exchange = Exchange(path=path, sent=None, status=status, kind=kind, body=answer, ended=time.monotonic())
        if exchange.streamed:
            exchange.frames = frames_of(answer)
        turn = api.read(exchange)
        if status == 200 and turn.error is None:
            self.turns.append(turn)
        else:
            said = turn.error if turn.error is not None else answer.decode("utf-8", "replace")
            self.refused.append((status, clipped(said, 300)))


@asynccontextmanager
async def relayed(
    upstream: str, before: Callable[[str, dict[str, Any]], None] = lambda path, body: None
) -> AsyncIterator[Relay]:
    """A relay in front of `upstream`, on a port of its own."""
    relay = Relay(before)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None), auto_decompress=False) as session:

        async def carry(request: web.Request) -> web.StreamResponse:
            return await _carried(session, upstream.rstrip("/"), relay, request)

        app = web.Application(client_max_size=_MOST)
        app.router.add_route("*", "/{path:.*}", carry)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        relay.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield relay
        finally:
            await runner.cleanup()


async def _carried(
    session: aiohttp.ClientSession, upstream: str, relay: Relay, request: web.Request
) -> web.StreamResponse:
    sent = await request.read()
    relay.arrived(request.path, sent)
    headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOPS}
    try:
        async with session.request(request.method, upstream + request.path_qs, data=sent, headers=headers) as answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOPS}
            made = web.StreamResponse(status=answer.status, headers=kept)
            await made.prepare(request)
            copy = bytearray()
            try:
                async for piece in answer.content.iter_any():
                    if len(copy) < _MOST:
                        copy += piece
                    await made.write(piece)
            finally:
                # Some clients leave at the last event, before the server has closed the stream.
                relay.note(request.path, sent, answer.status, answer.content_type, bytes(copy))
            return made
    except aiohttp.ClientConnectionError as error:
        return web.json_response({"error": {"message": f"the relay cannot reach {upstream}: {error}"}}, status=502)
