"""Servers to talk to: our gateway on a script, and a plain server that streams chunks as they are given."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import web

from tests.gateway.conftest import serve

__all__ = ["serve"]


def call_text(name: str, /, **arguments: Any) -> str:
    """A call as the scripted model writes it."""
    parts = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{parts}</function>\n</tool_call>\n"


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def fragment(index: int, arguments: str = "", name: str | None = None) -> dict[str, Any]:
    wire: dict[str, Any] = {"index": index, "function": {"arguments": arguments}}
    if name is not None:
        wire |= {"id": f"id{index}", "type": "function"}
        wire["function"]["name"] = name
    return delta(tool_calls=[wire])


class PlainServer:
    """Answers request k with the k-th list of chunks (the last repeats) and keeps what it was asked. A number among the
    chunks is a pause in seconds, a string is sent as it is."""

    def __init__(self, answers: Sequence[Sequence[Any]]) -> None:
        self.answers = answers
        self.asked: list[dict[str, Any]] = []
        self.left = 0
        self.base = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(await request.json())
        chunks = self.answers[min(len(self.asked), len(self.answers)) - 1]
        if chunks and isinstance(chunks[0], web.Response):
            return web.Response(status=chunks[0].status, text=chunks[0].text, headers=chunks[0].headers)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        try:
            for chunk in chunks:
                if isinstance(chunk, (int, float)):
                    await asyncio.sleep(chunk)
                else:
                    text = chunk if isinstance(chunk, str) else f"data: {json.dumps(chunk)}\n\n"
                    await response.write(text.encode())
        except (asyncio.CancelledError, ConnectionError):
            self.left += 1
            raise
        return response


Plain = Callable[..., Awaitable[PlainServer]]


@pytest.fixture
async def plain() -> AsyncIterator[Plain]:
    """Start a plain server; stops with the test."""
    async with AsyncExitStack() as stack:

        async def start(*answers: Sequence[Any]) -> PlainServer:
            server = PlainServer(answers)
            app = web.Application()
            app.router.add_post("/v1/chat/completions", server.answer)
            runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            server.base = f"http://127.0.0.1:{runner.addresses[0][1]}"
            return server

        yield start
