"""One way in: what holds for a request holds on every transport and for every API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from turnwire.engines.interface import GenerateRequest, Generation, Receiver
from turnwire.gateway.door.keys import hash_key
from turnwire.gateway.turns.record import TurnRecord
from turnwire.protocols.context import PRIORITY_SPAN

from .conftest import Client, Serve

SAID = "Hm.\n</think>\n\n<tool_call>\n<function=ls>\n</function>\n</tool_call>"
MESSAGES = [{"role": "user", "content": "List."}]
TOOL = {"name": "ls", "parameters": {"type": "object", "properties": {}}}
HTTP: dict[str, tuple[str, dict[str, Any]]] = {
    "messages": (
        "/v1/messages",
        {"max_tokens": 900, "messages": MESSAGES, "tools": [{"name": "ls", "input_schema": {"type": "object"}}]},
    ),
    "chat": ("/v1/chat/completions", {"messages": MESSAGES, "tools": [{"type": "function", "function": TOOL}]}),
    "responses": ("/v1/responses", {"input": "List.", "store": False, "tools": [{"type": "function", **TOOL}]}),
    "completions": ("/v1/completions", {"prompt": "List.", "max_tokens": 900}),
}
STOPS = {"messages": "stop_sequences", "chat": "stop", "responses": "stop", "completions": "stop"}
DOORS = [
    *(("http", api, stream) for api in HTTP for stream in (True, False)),
    ("websocket", "responses", True),
    ("background", "responses", False),
]
EVERY_DOOR = pytest.mark.parametrize(("transport", "api", "stream"), DOORS, ids=["-".join(map(str, d)) for d in DOORS])

Ask = Callable[..., Awaitable[dict[str, Any]]]


@asynccontextmanager
async def door(client: Client, transport: str, api: str, stream: bool, **headers: str) -> AsyncIterator[Ask]:
    """A way to send a request of the API; what comes back is the error, or an empty object once the turn is over."""
    path, base = HTTP[api]
    body = {"model": "test-model", "stream": stream, **base}
    if transport == "background":
        body |= {"background": True, "store": True}

    async def over_http(**over: Any) -> dict[str, Any]:
        data = json.dumps(body | over)
        async with client.session.post(client.base + path, data=data, headers=headers) as answer:
            text = await answer.text()
            if answer.status != 200:
                error: dict[str, Any] = json.loads(text)["error"]
                return {"status": answer.status, **error}
        if transport == "background":
            await until_stored(client, json.loads(text)["id"], headers)
        return {}

    if transport != "websocket":
        yield over_http
        return
    async with client.session.ws_connect(client.base + path, headers=headers) as socket:

        async def over_socket(**over: Any) -> dict[str, Any]:
            await socket.send_str(json.dumps(body | over | {"type": "response.create"}))
            while True:
                event = json.loads(await socket.receive_str(timeout=10))
                if event["type"] == "error":
                    return {"status": event["status"], **event["error"]}
                if event["type"] == "response.completed":
                    return {}

        yield over_socket


async def until_stored(client: Client, response: str, headers: dict[str, str]) -> None:
    async with asyncio.timeout(10):
        while True:
            async with client.session.get(f"{client.base}/v1/responses/{response}", headers=headers) as answer:
                if (await answer.json())["status"] not in ("queued", "in_progress"):
                    return
            await asyncio.sleep(0.01)


def reported(client: Client) -> list[TurnRecord[Any]]:
    """Every turn that the gateway reports from now on."""
    seen: list[TurnRecord[Any]] = []
    report = client.gateway.finished

    def finished(turn: TurnRecord[Any]) -> None:
        seen.append(turn)
        report(turn)

    client.gateway.finished = finished  # type: ignore[method-assign]
    return seen


@EVERY_DOOR
async def test_a_gateway_that_stops_takes_no_new_turn(serve: Serve, transport: str, api: str, stream: bool) -> None:
    client = await serve({"text": SAID})
    async with door(client, transport, api, stream) as ask:
        assert await ask() == {}
        client.gateway.draining = True
        error = await ask()
        assert error["status"] in (503, 529)
        assert "shutting down" in error["message"]


async def test_a_gateway_that_stops_takes_no_new_websocket(serve: Serve) -> None:
    client = await serve({"text": SAID})
    client.gateway.draining = True
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await client.session.ws_connect(client.base + "/v1/responses")
    assert refused.value.status == 503


@EVERY_DOOR
async def test_limits_hold(serve: Serve, transport: str, api: str, stream: bool) -> None:
    client = await serve({"text": SAID}, max_stop_chars=8, max_body=20_000)
    async with door(client, transport, api, stream) as ask:
        if api != "responses":
            error = await ask(**{STOPS[api]: ["123456789"]})
            assert error["status"] == 400
            assert "max_stop_chars" in error["message"]
        if transport != "websocket":
            # A WebSocket message over the limit never gets past the server: the connection is closed with 1009.
            error = await ask(metadata={"long": "x" * 20_000})
            assert error["status"] in (400, 413)
            assert "20000 bytes" in error["message"]
        assert await ask() == {}


@EVERY_DOOR
async def test_a_keys_rank_reaches_the_engine_and_its_tenant_the_record(
    serve: Serve, tmp_path: Path, transport: str, api: str, stream: bool
) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text(f'[[key]]\nname = "a"\nhash = "{hash_key("secret")}"\ntenant = "team"\npriority = 2\n')
    client = await serve({"text": SAID}, keys=str(keys))
    engine = client.gateway.runtimes[0].engine
    submit, asked = engine.submit, []

    def spied(request: GenerateRequest, receiver: Receiver) -> Generation:
        asked.append(request)
        return submit(request, receiver)

    engine.submit = spied  # type: ignore[method-assign]
    seen = reported(client)
    async with door(client, transport, api, stream, authorization="Bearer secret") as ask:
        assert await ask() == {}
    assert [request.hints.priority for request in asked] == [2 * PRIORITY_SPAN]
    assert [(request.hints.rank, request.hints.tenant) for request in asked] == [(2, "team")]
    assert [(request.hints.rank, request.hints.tenant) for request in asked] == [(2, "team")]
    assert [turn.tenant for turn in seen] == ["team"]


@EVERY_DOOR
async def test_the_clock_starts_when_the_request_is_read(serve: Serve, transport: str, api: str, stream: bool) -> None:
    client = await serve({"text": SAID})
    seen = reported(client)
    runtime = client.gateway.runtimes[0]
    build, raw = runtime.prepare, runtime.raw_prompt
    built: list[float] = []

    async def prepare(*given: Any) -> Any:
        built.append(asyncio.get_running_loop().time())
        return await build(*given)

    def raw_prompt(prompt: Any) -> Any:
        built.append(asyncio.get_running_loop().time())
        return raw(prompt)

    runtime.prepare, runtime.raw_prompt = prepare, raw_prompt  # type: ignore[method-assign]
    async with door(client, transport, api, stream) as ask:
        assert await ask() == {}
    (turn,) = seen
    assert turn.first_token is not None
    assert turn.started <= built[0] <= turn.first_token


@EVERY_DOOR
async def test_dispatch_is_the_operators_choice_where_a_request_says_nothing(
    serve: Serve, transport: str, api: str, stream: bool
) -> None:
    client = await serve({"text": SAID}, enable_streaming_tool_dispatch=True)
    seen = reported(client)
    async with door(client, transport, api, stream) as ask:
        assert await ask() == {}
    assert [turn.inbound.dispatch for turn in seen] == [True]
    if api != "completions":
        assert [len(turn.dispatches) for turn in seen] == [1]


@pytest.mark.parametrize("choices", [1, 3])
async def test_each_choice_counts_its_own_dispatches(serve: Serve, choices: int) -> None:
    client = await serve({"text": SAID})
    seen = reported(client)
    path, body = HTTP["chat"]
    asked = {"model": "test-model", "n": choices, "stream": True, **body}
    async with client.session.post(client.base + path, json=asked) as answer:
        assert b"[DONE]" in await answer.read()
    assert [len(turn.dispatches) for turn in seen] == [1] * choices
    assert len({turn.turn_id for turn in seen}) == choices


@pytest.mark.parametrize("api", list(HTTP))
async def test_what_a_client_left_in_the_middle_is_counted(serve: Serve, api: str) -> None:
    client = await serve({"text": "word " * 400, "delay_ms": 5})
    seen = reported(client)
    path, body = HTTP[api]
    async with client.session.post(client.base + path, json={"model": "test-model", "stream": True, **body}) as answer:
        got = b""
        while b"word word" not in got and b"word" not in got:
            got += await answer.content.readany()
    async with asyncio.timeout(10):
        while not seen:
            await asyncio.sleep(0.01)
    (turn,) = seen
    assert turn.finish == "gone"
    assert turn.outcome is not None
    assert turn.outcome.usage.output > 0
    assert turn.outcome.usage.output == len(turn.outcome.output_ids)
