"""A WebSocket as it is spoken on a client's connection, frame for frame, under both event loops."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from .conftest import GET, Run, echo, serving

UPGRADE = (
    b"GET /ws HTTP/1.1\r\nhost: localhost\r\nupgrade: WebSocket\r\nconnection: keep-alive, Upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


async def sockets(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await asyncio.sleep(0.05)
        await echo(scope, receive, send)
        return
    await receive()
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.send", "text": scope["path"]})
    await send({"type": "websocket.close"})


def test_a_connection_becomes_a_websocket_also_after_other_requests(run: Run) -> None:
    async def main() -> None:
        async with serving(sockets) as (_, talk):
            for before in ([], [GET]):
                answer = await talk(*before, UPGRADE, b"\x88\x80\x00\x00\x00\x00", pause=0.2)
                assert b"HTTP/1.1 101 " in answer
                assert b"\x81\x03/ws" in answer
            # Not in the midst of an answer.
            assert b"HTTP/1.1 101 " not in await talk(GET + UPGRADE)

    run(main())


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (UPGRADE.replace(b"GET", b"POST"), b"405"),
        (UPGRADE[:-2] + b"content-length: 5\r\n\r\nhello", b"400"),
        (UPGRADE[:-2] + b"cookie: " + b"x" * 9000 + b"\r\n\r\n", b"431"),
        (UPGRADE[:-2] + b"x: y\r\n" * 130 + b"\r\n", b"431"),
        (UPGRADE + b"nonsense", b"400"),
    ],
    ids=["post", "body", "line", "lines", "frame"],
)
def test_what_cannot_become_a_websocket_is_refused(run: Run, said: bytes, status: bytes) -> None:
    async def main() -> None:
        async with serving(sockets, head_bytes=20_000, headers=200) as (server, talk):
            assert (await talk(said)).startswith(b"HTTP/1.1 " + status)
            async with asyncio.timeout(5):
                while server.server_state.connections:
                    await asyncio.sleep(0.01)

    run(main())


def test_what_is_no_frame_ends_a_websocket_that_is_not_accepted_yet(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        told = asyncio.Event()

        async def undecided(scope: Scope, receive: Receive, send: Send) -> None:
            await receive()
            told.set()
            assert (await receive())["type"] == "websocket.disconnect"

        async with serving(undecided) as (server, _):
            reader, writer = await asyncio.open_connection(*server.servers[0].sockets[0].getsockname())
            writer.write(UPGRADE)
            await told.wait()
            writer.write(b"nonsense")
            async with asyncio.timeout(5):
                assert await reader.read() == b""
            writer.close()
        assert not [record for record in caplog.records if record.exc_info]

    run(main())


def frame(opcode: int, data: bytes) -> bytes:
    """A frame of a client, masked with zeros."""
    return bytes((opcode, 0x80 | len(data), 0, 0, 0, 0)) + data


def test_a_peer_that_reads_nothing_is_owed_the_answer_to_its_last_ping_only(run: Run) -> None:
    async def main() -> None:
        waiting = asyncio.Event()
        sizes: list[int] = []

        async def talking(scope: Scope, receive: Receive, send: Send) -> None:
            await receive()
            await send({"type": "websocket.accept"})
            for _ in range(20):
                waiting.set()
                await send({"type": "websocket.send", "bytes": bytes(1_000_000)})
            await send({"type": "websocket.close"})

        async with serving(talking) as (server, _):
            reader, writer = await asyncio.open_connection(*server.servers[0].sockets[0].getsockname(), limit=1)
            writer.write(UPGRADE)
            await waiting.wait()
            await asyncio.sleep(0.2)
            (connection,) = server.server_state.connections
            for _ in range(50):
                sizes.append(connection.transport.get_write_buffer_size())  # type: ignore[union-attr]
                writer.write(frame(0x89, b"p" * 100) * 1000)
                await writer.drain()
            writer.write(frame(0x89, b"the last"))
            await asyncio.sleep(0.2)
            sizes.append(connection.transport.get_write_buffer_size())  # type: ignore[union-attr]
            assert len(set(sizes)) == 1
            async with asyncio.timeout(10):
                told = bytearray()
                while data := await reader.read(1 << 20):
                    told += data
                    if told.endswith(b"\x88\x02\x03\xe8"):
                        writer.write(frame(0x88, b"\x03\xe8"))
            writer.close()
        assert told.count(b"\x8a\x08the last") == 1
        assert len(told) < 20_300_000

    run(main())


def test_a_message_in_too_many_pieces_is_refused_and_one_in_many_is_read(run: Run) -> None:
    async def main() -> None:
        heard: list[Any] = []

        async def hearing(scope: Scope, receive: Receive, send: Send) -> None:
            await receive()
            await send({"type": "websocket.accept"})
            while (message := await receive())["type"] == "websocket.receive":
                heard.append(message["bytes"])
            heard.append(message["code"])

        async with serving(hearing) as (_, talk):
            many = frame(0x02, b"a") + frame(0x00, b"") * 60_000 + frame(0x80, b"b")
            answer = await talk(UPGRADE, many, frame(0x02, b"c") + frame(0x00, b"") * 65_536, pause=0.1)
            assert b"\x88\x14\x03\xf1too many fragments" in answer
        assert heard == [b"ab", 1009]

    run(main())
