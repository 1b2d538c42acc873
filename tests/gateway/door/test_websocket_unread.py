"""What a WebSocket's peer sends while the application asks for nothing stays with the peer, who may leave or wait."""

from __future__ import annotations

import asyncio
import socket
import struct
import tracemalloc
import zlib
from contextlib import suppress
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from turnwire.gateway.door.websocket import LEFT

from .conftest import Run, serving

BODY = 16 << 20
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)
DEFLATE = b"sec-websocket-extensions: permessage-deflate; client_max_window_bits\r\n"


def frame(opcode: int, data: bytes) -> bytes:
    """A frame of a client, masked with zeros."""
    size = len(data)
    if size < 126:
        return struct.pack("!BB4x", opcode, 0x80 | size) + data
    if size < 65_536:
        return struct.pack("!BBH4x", opcode, 0xFE, size) + data
    return struct.pack("!BBQ4x", opcode, 0xFF, size) + data


class Patient:
    """An application that asks for messages when it is told to."""

    def __init__(self) -> None:
        self.asks = asyncio.Event()
        self.accepted = asyncio.Event()
        self.left: asyncio.Event | None = None
        self.heard: list[Any] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        self.left = scope["extensions"][LEFT]
        await send({"type": "websocket.accept"})
        self.accepted.set()
        await self.asks.wait()
        while await self._hear(receive):
            pass

    async def _hear(self, receive: Receive) -> bool:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            return False
        self.heard.append(message["bytes"])
        return True


async def open_socket(server: Any, app: Patient, extension: bytes = b"") -> socket.socket:
    """A connection of a client that has read the answer to its handshake."""
    peer = socket.create_connection(server.servers[0].sockets[0].getsockname())
    peer.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(peer, UPGRADE + extension + b"\r\n")
    await app.accepted.wait()
    assert (await loop.sock_recv(peer, 65_536)).startswith(b"HTTP/1.1 101 ")
    return peer


async def fill(peer: socket.socket, data: bytes) -> None:
    """Send until nothing more is taken for a while."""
    with suppress(TimeoutError):
        async with asyncio.timeout(0.5):
            while True:
                await asyncio.get_running_loop().sock_sendall(peer, data)


def test_messages_that_are_small_only_on_the_wire_are_unpacked_when_they_are_asked_for(run: Run) -> None:
    async def main() -> None:
        app = Patient()
        async with serving(app) as (server, _):
            packer = zlib.compressobj(wbits=-12)
            wire = b""
            for number in range(8):
                data = b"%d" % number + bytes(BODY - 1)
                packed = packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)
                wire += frame(0xC2, packed[:-4])
            assert len(wire) < 200_000
            del data
            peer = await open_socket(server, app, DEFLATE)
            tracemalloc.start()
            try:
                await asyncio.get_running_loop().sock_sendall(peer, wire)
                await asyncio.sleep(0.5)
                held, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            app.asks.set()
            async with asyncio.timeout(20):
                while len(app.heard) < 8:
                    await asyncio.sleep(0.01)
            assert [message[:1] for message in app.heard] == [b"%d" % number for number in range(8)]
            assert {len(message) for message in app.heard} == {BODY}
            peer.close()
        assert held < 2 * BODY

    run(main())


def test_a_message_that_was_taken_is_not_kept(run: Run) -> None:
    async def main() -> None:
        app = Patient()
        app.asks.set()
        async with serving(app) as (server, _):
            wire = frame(0x82, bytes(BODY - 1)) + frame(0x02, bytes(1000)) + frame(0x80, bytes(BODY - 2000))
            peer = await open_socket(server, app)
            tracemalloc.start()
            try:
                await asyncio.get_running_loop().sock_sendall(peer, wire)
                async with asyncio.timeout(20):
                    while len(app.heard) < 2:
                        await asyncio.sleep(0.01)
                app.heard.clear()
                held, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            peer.close()
        assert held < 1_000_000

    run(main())


@pytest.mark.parametrize("unread", ["little", "more than is taken"])
def test_a_peer_that_leaves_is_missed_though_what_it_sent_is_not_read(run: Run, unread: str) -> None:
    async def main() -> None:
        app = Patient()
        async with serving(app, ping_s=0.3) as (server, _):
            peer = await open_socket(server, app)
            if unread == "little":
                await asyncio.get_running_loop().sock_sendall(peer, frame(0x82, b"a") * 3)
                await asyncio.sleep(0.1)
            else:
                await fill(peer, frame(0x82, bytes(1_000_000)))
            assert app.left is not None
            assert not app.left.is_set()
            peer.close()
            async with asyncio.timeout(10):
                await app.left.wait()
            app.asks.set()

    run(main())


def test_a_peer_whose_answers_to_pings_lie_behind_what_is_not_read_is_not_taken_for_gone(run: Run) -> None:
    async def main() -> None:
        app = Patient()
        async with serving(app, ping_s=0.2) as (server, _):
            peer = await open_socket(server, app)
            sends = asyncio.ensure_future(
                asyncio.get_running_loop().sock_sendall(peer, frame(0x82, b"a") + frame(0x82, bytes(9_000_000)))
            )
            await asyncio.sleep(1.5)
            assert app.left is not None
            assert not app.left.is_set()
            app.asks.set()
            async with asyncio.timeout(10):
                await sends
                while len(app.heard) < 2:
                    await asyncio.sleep(0.01)
                assert [len(message) for message in app.heard] == [1, 9_000_000]
                # Now it would be heard, and has nothing more to say.
                await app.left.wait()
            peer.close()

    run(main())


def test_a_peer_that_neither_reads_nor_is_read_is_cut_off(run: Run) -> None:
    over: list[BaseException] = []

    async def main() -> None:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await receive()
            await send({"type": "websocket.accept"})
            try:
                for _ in range(100):
                    await send({"type": "websocket.send", "bytes": bytes(1_000_000)})
            except BaseException as error:
                over.append(error)
                raise

        async with serving(app, ping_s=0.2) as (server, _):
            with socket.create_connection(server.servers[0].sockets[0].getsockname()) as peer:
                peer.sendall(UPGRADE + b"\r\n" + frame(0x82, b"a"))
                async with asyncio.timeout(10):
                    while not over:
                        await asyncio.sleep(0.01)

    run(main())


def test_messages_that_nobody_asks_for_any_more_do_not_hide_the_end_of_a_closed_connection(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await receive()
            await send({"type": "websocket.accept"})
            await asyncio.sleep(0.2)
            await send({"type": "websocket.close"})

        async with serving(app) as (server, talk):
            began = loop.time()
            closes = frame(0x82, bytes(30_000)) * 3 + frame(0x88, b"\x03\xe8")
            assert (await talk(UPGRADE + b"\r\n" + closes)).endswith(b"\x88\x02\x03\xe8")
            assert loop.time() - began < 3
            assert not server.server_state.connections

    run(main())
