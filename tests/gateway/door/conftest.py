"""A bare server behind the door, and a way to talk to it byte for byte, under both event loops."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
import uvloop
from starlette.types import ASGIApp, Receive, Scope, Send

from turnwire.gateway.door.bounds import HttpBounds
from turnwire.gateway.door.connection import bounded_http
from turnwire.gateway.door.websocket import bounded_socket

Run = Callable[[Coroutine[Any, Any, None]], None]
Talk = Callable[..., Awaitable[bytes]]

GET = b"GET /a HTTP/1.1\r\nhost: localhost\r\n\r\n"
LAST = b"GET /b HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    play: Run = request.param
    return play


async def body_of(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        assert message["type"] == "http.request"
        body += message["body"]
        if not message["more_body"]:
            return body


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Says what it was asked, in a body of known length."""
    said = f"{scope['method']} {scope['path']} {scope['query_string'].decode()} ".encode() + await body_of(receive)
    head = [(b"content-length", b"%d" % len(said))]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": said})


@asynccontextmanager
async def serving(
    app: ASGIApp, keep_alive: int = 5, ping_s: float = 20.0, **over: Any
) -> AsyncIterator[tuple[uvicorn.Server, Talk]]:
    """A server, and a way to say something to it and hear all that it answers until it closes."""
    fields = {"head_bytes": 4096, "headers": 50, "request_s": 30.0, "stall_s": 0.5, "linger_s": 0.5} | over
    bounds = HttpBounds(**fields)
    config = uvicorn.Config(
        app,
        http=bounded_http(bounds),
        ws=bounded_socket(bounds),
        lifespan="off",
        access_log=False,
        log_config=None,
        timeout_keep_alive=keep_alive,
        # Later than any test waits: one that fails ends all the same.
        timeout_graceful_shutdown=15,
        ws_ping_interval=ping_s,
        ws_ping_timeout=ping_s,
    )
    server = uvicorn.Server(config)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        await asyncio.sleep(0.005)

    async def talk(*pieces: bytes, pause: float = 0.0) -> bytes:
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(pause)
            async with asyncio.timeout(10):
                return await reader.read()
        finally:
            writer.close()

    try:
        yield server, talk
    finally:
        server.should_exit = True
        await task


def bodies(answer: bytes) -> list[bytes]:
    """The bodies of answers of known length."""
    found = []
    while answer:
        head, _, answer = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
        found.append(answer[:length])
        answer = answer[length:]
    return found
