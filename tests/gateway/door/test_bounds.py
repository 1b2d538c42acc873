"""A connection that is being closed, and the peer that takes nothing more of it, under both event loops."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from turnwire.gateway.door.bounds import HttpBounds
from turnwire.gateway.door.connection import bounded_http

from .conftest import Run, echo, serving


@pytest.mark.parametrize(("sizes", "aborted"), [((3, 2, 1, 0), False), ((3, 2, 2), True)])
def test_who_reads_slowly_gets_all_of_an_answer_before_its_connection_is_closed(
    run: Run, sizes: tuple[int, ...], aborted: bool
) -> None:
    left, heard = list(sizes), list[str]()

    class Slow(asyncio.Transport):
        def get_write_buffer_size(self) -> int:
            return left.pop(0)

        def close(self) -> None:
            heard.append("close")

        def abort(self) -> None:
            heard.append("abort")

    async def main() -> None:
        bounds = HttpBounds(head_bytes=4096, headers=50, request_s=30.0, stall_s=30.0, linger_s=0.0)
        connection: Any = bounded_http(bounds)(uvicorn.Config(echo), ServerState(), {})  # type: ignore[call-arg]
        connection.connection_made(Slow())
        connection.close()
        while left:
            await asyncio.sleep(0)
        assert heard == ["close", "abort"][: 1 + aborted]
        # What is encrypted and not sent cannot be seen; there the loop has a bound.
        connection.transport = Slow({"sslcontext": object()})
        connection.close()
        assert heard[1 + aborted :] == ["close"]

    run(main())


@pytest.mark.parametrize(
    ("kind", "half"),
    [
        ("http", False),
        ("http", True),
        ("closed by the peer", False),
        ("closed by the server", False),
        ("socket", True),
    ],
)
def test_an_application_does_not_wait_for_ever_for_a_peer_that_reads_nothing(run: Run, kind: str, half: bool) -> None:
    """Nor where it has closed its `half` of the connection."""
    over: list[BaseException | None] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["type"] == "http":
                await send({"type": "http.response.start", "status": 200, "headers": []})
                for _ in range(40):
                    await send({"type": "http.response.body", "body": bytes(500_000), "more_body": True})
            else:
                await receive()
                await send({"type": "websocket.accept"})
                for _ in range(40):
                    await send({"type": "websocket.send", "bytes": bytes(500_000)})
        except BaseException as error:
            over.append(error)
            raise
        over.append(None)

    async def main() -> None:
        async with serving(app) as (server, _):
            with socket.create_connection(server.servers[0].sockets[0].getsockname()) as peer:
                upgrade = b"upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
                upgrade += b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
                peer.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n" + (b"" if kind == "http" else upgrade) + b"\r\n")
                await asyncio.sleep(0.2)
                if kind == "closed by the peer":
                    peer.sendall(b"\x88\x80mask")
                if half:
                    peer.shutdown(socket.SHUT_WR)
                server.should_exit = kind == "closed by the server"
                async with asyncio.timeout(10):
                    while server.server_state.connections or server.server_state.tasks:
                        await asyncio.sleep(0.01)
        assert len(over) == 1

    run(main())
