"""What a client sends over a Responses WebSocket behind a long turn: bounded in bytes, kept in its order, no hiding
place for a client that left."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from typing import Any

import aiohttp
import pytest

from .conftest import Client, Serve
from .door.test_websocket_unread import frame
from .test_websocket import ENDS, connect, create

LARGE = 2_000_000


def padded(number: int, size: int) -> str:
    """A message that is refused in words of its own."""
    text = json.dumps({"type": f"response.dance-{number}", "padding": ""})
    return text[:-2] + "x" * (size - len(text)) + text[-2:]


async def answers(socket: aiohttp.ClientWebSocketResponse, count: int) -> list[dict[str, Any]]:
    """The last events of so many answers."""
    ends: list[dict[str, Any]] = []
    while len(ends) < count:
        event = json.loads(await socket.receive_str(timeout=20))
        if event["type"] in ENDS:
            ends.append(event)
    return ends


async def begin(socket: aiohttp.ClientWebSocketResponse, client: Client) -> None:
    """A turn that runs."""
    await socket.send_str(json.dumps(create()))
    async with asyncio.timeout(10):
        while not len(client.gateway.heartbeat):
            await asyncio.sleep(0.01)


async def ended(client: Client) -> None:
    async with asyncio.timeout(5):
        while len(client.gateway.heartbeat):
            await asyncio.sleep(0.02)


async def test_large_messages_behind_a_turn_are_left_with_their_client_and_answered_in_their_order(
    serve: Serve,
) -> None:
    client = await serve({"text": "x\n</think>\n\nHi.", "first_delay_ms": 2000}, max_body=LARGE)
    wire = [frame(0x81, padded(number, LARGE).encode()) for number in range(24)]
    async with connect(client) as opened:
        await begin(opened, client)
        # Past the client, which would hold them too.
        peer = opened._response.connection.transport.get_extra_info("socket").dup()

        async def send() -> None:
            for message in wire:
                await asyncio.get_running_loop().sock_sendall(peer, message)

        tracemalloc.start()
        try:
            sends = asyncio.ensure_future(send())
            await asyncio.sleep(1)
            assert len(client.gateway.heartbeat) == 1
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        first, *others = await answers(opened, 25)
        await sends
        peer.close()
    assert first["type"] == "response.completed"
    for number, event in enumerate(others):
        assert f"response.dance-{number}'" in event["error"]["message"]
    assert held < 4 * LARGE


async def test_small_messages_behind_a_turn_are_answered_in_their_order(serve: Serve) -> None:
    client = await serve({"text": "x\n</think>\n\nHi.", "first_delay_ms": 600})
    async with connect(client) as opened:
        await begin(opened, client)
        for number in range(40):
            await opened.send_str(padded(number, 200))
        first, *others = await answers(opened, 41)
        assert first["type"] == "response.completed"
        for number, event in enumerate(others):
            assert f"response.dance-{number}'" in event["error"]["message"]


@pytest.mark.parametrize("line", [{"first_delay_ms": 60_000}, {"delay_ms": 20}], ids=["silent", "speaking"])
@pytest.mark.parametrize(("size", "count"), [(LARGE, 1), (200, 30)], ids=["large", "many"])
async def test_a_client_that_leaves_ends_its_turn_whatever_waits_behind_it(
    serve: Serve, line: dict[str, Any], size: int, count: int
) -> None:
    client = await serve({"text": "word " * 5000} | line, max_body=LARGE)
    opened = await connect(client)
    await begin(opened, client)
    for number in range(count):
        await opened.send_str(padded(number, size))
    await opened.send_str(padded(count, 200))
    await asyncio.sleep(0.3)
    assert len(client.gateway.heartbeat) == 1
    opened._response.connection.transport.abort()
    await ended(client)


async def test_a_body_is_let_go_while_its_turn_runs(serve: Serve) -> None:
    client = await serve({"text": "x\n</think>\n\nHi.", "first_delay_ms": 1500}, max_body=2 * LARGE, window=1000)
    async with connect(client) as opened:
        # What is not part of the conversation is not kept either.
        request = json.dumps(create(metadata={"a": "b"}))
        message = request[:-1] + " " * LARGE + request[-1:]
        await opened.send_str(json.dumps(create(generate=False)))
        await answers(opened, 1)
        tracemalloc.start()
        try:
            await opened.send_str(message)
            async with asyncio.timeout(10):
                while not len(client.gateway.heartbeat):
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        (end,) = await answers(opened, 1)
    assert end["type"] == "response.completed"
    assert held < LARGE
