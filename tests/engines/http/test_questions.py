"""Short questions: a whole answer, bounded, whatever the server does."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from turnwire.engines.http.connections import Address
from turnwire.engines.http.questions import Questions, Reply


@asynccontextmanager
async def server(*said: bytes, stays: bool = False) -> AsyncIterator[tuple[Questions, list[bytes]]]:
    """A server that says this, piece by piece, to whoever asks, and whoever asks it."""
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        for piece in said:
            writer.write(piece)
            await asyncio.sleep(0.01)
        if stays:
            await reader.read()
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    try:
        yield Questions(Address(f"http://127.0.0.1:{port}/base"), {"X-Own": "1"}), asked
    finally:
        listening.close()


@pytest.mark.parametrize(
    "said",
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nWhole",),
        (b"HTTP/1.1 200 OK\r\nContent-Le", b"ngth: 5\r\n\r\nWh", b"ole"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nWh\r\n", b"3\r\nole\r\n0\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\n\r\nWh", b"ole"),
    ],
)
async def test_the_whole_answer_comes_however_it_is_framed(said: tuple[bytes, ...]) -> None:
    async with server(*said) as (questions, asked):
        reply = await questions.ask("/v1/models", seconds=5)
    assert (reply.status, reply.body) == (200, b"Whole")
    assert asked[0].startswith(b"GET /base/v1/models HTTP/1.1\r\n")
    assert b"\r\nX-Own: 1\r\n" in asked[0]


async def test_an_answer_is_read_although_the_server_keeps_the_connection() -> None:
    async with server(b"HTTP/1.1 204 No Content\r\n\r\n", stays=True) as (questions, _):
        assert (await questions.ask("/health", seconds=5)).status == 204


async def test_a_body_is_posted() -> None:
    async with server(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") as (questions, asked):
        await questions.ask("/tokenize", b"{}", seconds=5)
    assert asked[0].startswith(b"POST /base/tokenize HTTP/1.1\r\n")
    assert b"Content-Type: application/json\r\nContent-Length: 2\r\n" in asked[0]


async def test_a_redirect_is_an_answer() -> None:
    async with server(b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n") as (ask, _):
        assert await ask.ask("/", seconds=5) == Reply(
            302, {"location": "http://elsewhere/", "content-length": "0"}, b""
        )


async def test_no_more_is_read_than_was_wanted() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n"
    async with server(head + b"x" * 50_000, b"x" * 200_000, stays=True) as (questions, _):
        reply = await questions.ask("/", seconds=5, most=100_000)
    assert 100_000 <= len(reply.body) < 200_000


@pytest.mark.parametrize(
    "said",
    [(), (b"SSH-2.0-server\r\n",), (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nHalf",)],
)
async def test_what_is_no_whole_answer_is_an_error_of_the_connection(said: tuple[bytes, ...]) -> None:
    async with server(*said) as (questions, _):
        with pytest.raises(ConnectionError):
            await questions.ask("/", seconds=5)


async def test_a_server_that_says_nothing_is_not_waited_for() -> None:
    async with server(stays=True) as (questions, _):
        with pytest.raises(TimeoutError):
            await questions.ask("/", seconds=0.05)


async def test_nobody_there_is_an_error_of_the_system() -> None:
    async with server() as (questions, _):
        pass
    with pytest.raises(OSError):
        await questions.ask("/", seconds=5)


def test_a_gateway_in_front_of_an_engine_carries_no_second_http_library() -> None:
    modules = "turnwire.gateway.server, turnwire.engines.vllm, turnwire.engines.vllm_core.engine"
    modules += ", turnwire.engines.upstream.chat, turnwire.engines.detection.probe"
    told = f"import sys, {modules}; print('aiohttp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
