"""A server that nobody asks anything sleeps, and ends when it is told to."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import aiohttp
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from turnwire.gateway.sleeping_server import SleepingServer


async def hello(request: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


async def timers_of(server: uvicorn.Server, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many timers were set by a server that was left alone for half a second, after one request."""
    loop = asyncio.get_running_loop()
    count, call_at = 0, loop.call_at

    def counted(*arguments: Any, **named: Any) -> asyncio.TimerHandle:
        nonlocal count
        count += 1
        return call_at(*arguments, **named)

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        task = asyncio.create_task(server.serve(sockets=[listener]))
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        async with aiohttp.ClientSession() as session, session.get(address) as answer:
            assert await answer.text() == "hello"
            assert "date" not in answer.headers
        await asyncio.sleep(0.2)
        with monkeypatch.context() as patched:
            patched.setattr(loop, "call_at", counted)
            quiet = asyncio.Event()
            call_at(loop.time() + 0.5, quiet.set)
            await quiet.wait()
        assert not task.done()
        server.should_exit = True
        async with asyncio.timeout(5):
            await task
    return count


def config() -> uvicorn.Config:
    app = Starlette(routes=[Route("/", hello)])
    return uvicorn.Config(app, lifespan="off", log_config=None, date_header=False, timeout_keep_alive=0)


async def test_a_server_without_requests_sets_no_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await timers_of(SleepingServer(config()), monkeypatch) == 0


async def test_the_count_sees_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await timers_of(uvicorn.Server(config()), monkeypatch) > 0


async def test_the_end_is_asked_for_once_and_for_all() -> None:
    server = SleepingServer(config())
    assert not server.should_exit
    server.should_exit = True
    assert server.should_exit
