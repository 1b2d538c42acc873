"""Servers that send without measure, never end, or send anything at all: bounded, and a word all the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwire.conformance.exchange import Exchange, Frame, Limits, Unreachable
from turnwire.conformance.rules.table import RULES
from turnwire.conformance.runner import CLIENTS, NoModel, run
from turnwire.conformance.words import APIS, ApiName

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
SMALL = Limits(seconds=0.2, size=50_000, frames=200)


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def endless(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await answer.prepare(request)
    while True:
        await answer.write(b"data: {}\n\n" * 20)
        await asyncio.sleep(0)


async def silent(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(60)
    return web.Response()


async def huge(request: web.Request) -> web.StreamResponse:
    return web.Response(text="x" * 200_000)


async def deep(request: web.Request) -> web.StreamResponse:
    return web.Response(text="[" * 20_000 + "]" * 20_000, content_type="application/json")


@pytest.mark.parametrize("handler", [endless, huge, deep])
async def test_every_cell_gets_a_word(handler: Handler) -> None:
    async with serving(handler) as url:
        report = await run(url, apis=["messages"], model="m", limits=SMALL)
    assert len(report.cells) == sum("messages" in rule.apis for rule in RULES)
    assert "preserved" not in {cell.word for cell in report.cells}


async def test_a_server_that_is_silent_costs_its_time_and_no_more() -> None:
    async with serving(silent) as url:
        report = await run(url, apis=["chat"], model="m", only=["wire.order"], limits=SMALL)
    assert [(cell.word, cell.reason) for cell in report.cells] == [
        ("broken", "the answer did not end: no end within 0.2 s")
    ]


async def test_no_server_and_no_model_are_said() -> None:
    with pytest.raises(Unreachable):
        await run("http://127.0.0.1:9", model="m")
    async with serving(deep) as url:
        with pytest.raises(NoModel, match="--model"):
            await run(url)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "id", "delta", "index"]), inner)
    ),
    max_leaves=8,
)
EVENTS = [
    {"id": "a", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [{"index": 0, "delta": {}}]},
    {"type": "message_start", "message": {"id": "a", "usage": {"input_tokens": 1}}},
    {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "tool_use", "id": "a", "name": "b", "input": {}},
    },
    {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{"}},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
    {"type": "response.created", "sequence_number": 0, "response": {"id": "r"}},
    {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "id": "m"}},
    {"type": "response.output_text.delta", "output_index": 0, "delta": "x"},
    {"type": "response.output_item.done", "output_index": 0, "item": {"type": "message", "content": [{"text": "y"}]}},
    {"type": "response.completed", "response": {"id": "r", "output": [{"type": "reasoning", "summary": [{}]}]}},
]


@pytest.mark.parametrize("api", APIS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_events_are_read(api: ApiName, data: st.DataObject) -> None:
    frames = []
    for _ in range(data.draw(st.integers(1, 6))):
        event: dict[str, Any] = dict(data.draw(st.sampled_from(EVENTS)))
        event[data.draw(st.sampled_from(sorted(event)))] = data.draw(VALUES)
        frames.append(Frame(0.0, data.draw(st.sampled_from([None, str(event.get("type"))])), json.dumps(event)))
    read = CLIENTS[api].read(Exchange(path="/", sent=None, status=200, kind="text/event-stream", frames=frames))
    assert all(problem.detail for problem in read.problems)
    whole = Exchange(path="/", sent=None, status=200, kind="application/json", body=frames[0].data.encode())
    assert CLIENTS[api].read(whole).problems
