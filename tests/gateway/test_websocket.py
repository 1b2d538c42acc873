"""Responses over a WebSocket: prewarm, turns that send only what is new, errors as frames, 426 when it is off."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from tests.protocols.responses.conformance import check_events

from .conftest import Client, Serve

TOOLS = [{"type": "function", "name": "ls", "parameters": {"type": "object", "properties": {}}}]
CALL = "Look.\n</think>\n\n<tool_call>\n<function=ls>\n</function>\n</tool_call>"
USER = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "How many?"}]}
ENDS = ("response.completed", "response.failed", "response.incomplete", "error")


def create(**over: Any) -> dict[str, Any]:
    return {"type": "response.create", "model": "test-model", "store": False, "tools": TOOLS, "input": [USER]} | over


class Socket:
    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def ask(self, message: Any) -> list[dict[str, Any]]:
        """Send one message and read to the end of its answer."""
        await self.socket.send_str(message if isinstance(message, str) else json.dumps(message))
        events: list[dict[str, Any]] = []
        while not events or events[-1]["type"] not in ENDS:
            events.append(json.loads(await self.socket.receive_str(timeout=10)))
        return events


def connect(client: Client) -> Any:
    headers = {"openai-beta": "responses_websockets=2026-02-06", "session-id": "s1", "thread-id": "s1"}
    return client.session.ws_connect(client.base + "/v1/responses", headers=headers)


async def test_prewarm_then_turns_with_only_new_items(serve: Serve) -> None:
    client = await serve({"text": CALL}, {"text": "Done.\n</think>\n\nTwo."})
    async with connect(client) as opened:
        socket = Socket(opened)
        warm = await socket.ask(create(generate=False))
        assert [event["type"] for event in warm] == ["response.created", "response.in_progress", "response.completed"]
        assert check_events(warm) == []
        first = await socket.ask(create(previous_response_id=warm[-1]["response"]["id"], input=[]))
        assert check_events(first) == []
        output = first[-1]["response"]["output"]
        call = next(item for item in output if item["type"] == "function_call")
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "a b"}
        second = await socket.ask(create(previous_response_id=first[-1]["response"]["id"], input=[result]))
        assert check_events(second) == []
        usage = second[-1]["response"]["usage"]
    whole = create(input=[USER, *output, result])
    del whole["type"]
    _, same = await client.post("/v1/responses", whole)
    assert usage["input_tokens"] == same["usage"]["input_tokens"]
    assert usage["input_tokens"] > first[-1]["response"]["usage"]["total_tokens"]


@pytest.mark.parametrize(
    ("message", "status", "code"),
    [
        (create(previous_response_id="resp_none"), 400, "previous_response_not_found"),
        (create(model="nope"), 400, "model_not_found"),
        ({"type": "response.dance"}, 400, None),
        ("{", 400, None),
        (create(background=True), 400, None),
    ],
)
async def test_a_refusal_is_a_frame_and_the_connection_lives_on(
    serve: Serve, message: Any, status: int, code: str | None
) -> None:
    client = await serve({"text": "x\n</think>\n\nHi."})
    async with connect(client) as opened:
        socket = Socket(opened)
        events = await socket.ask(message)
        assert [event["type"] for event in events] == ["error"]
        assert (events[0]["status"], events[0]["error"]["code"]) == (status, code)
        assert (await socket.ask(create()))[-1]["type"] == "response.completed"


async def test_an_overflow_is_a_failed_response(serve: Serve) -> None:
    client = await serve({"text": "Hi."}, window=64)
    async with connect(client) as opened:
        events = await Socket(opened).ask(create(input=[{"role": "user", "content": "word " * 200}]))
    assert check_events(events) == []
    assert events[-1]["response"]["error"]["code"] == "context_length_exceeded"


async def test_a_stored_turn_is_found_by_the_next_connection(serve: Serve) -> None:
    client = await serve({"text": "x\n</think>\n\nHi."})
    async with connect(client) as opened:
        first = (await Socket(opened).ask(create(store=True)))[-1]["response"]
        hidden = (await Socket(opened).ask(create()))[-1]["response"]
    async with connect(client) as opened:
        socket = Socket(opened)
        again = await socket.ask(create(previous_response_id=first["id"], input="more"))
        assert again[-1]["type"] == "response.completed"
        lost = await socket.ask(create(previous_response_id=hidden["id"], input="more"))
        assert lost[-1]["error"]["code"] == "previous_response_not_found"


async def test_a_client_that_leaves_ends_its_turn(serve: Serve) -> None:
    client = await serve({"text": "word " * 2000, "delay_ms": 10})
    async with connect(client) as opened:
        await opened.send_str(json.dumps(create()))
        while json.loads(await opened.receive_str(timeout=10))["type"] != "response.output_item.added":
            pass
        assert len(client.gateway.heartbeat) == 1
    for _ in range(100):
        if not len(client.gateway.heartbeat):
            break
        await asyncio.sleep(0.02)
    assert len(client.gateway.heartbeat) == 0


async def test_426_when_it_is_off(serve: Serve) -> None:
    client = await serve({"text": "Hi."}, websocket=False)
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        await connect(client)
    assert caught.value.status == 426


async def test_a_refused_turn_is_forgotten_by_its_connection(serve: Serve) -> None:
    client = await serve({"text": CALL})
    async with connect(client) as opened:
        socket = Socket(opened)
        first = (await socket.ask(create(store=False)))[-1]["response"]
        orphan = {"type": "function_call_output", "call_id": "call_9", "output": "x"}
        (error,) = await socket.ask(create(store=False, previous_response_id=first["id"], input=[orphan]))
        assert (error["type"], error["status"]) == ("error", 400)
        call = next(item for item in first["output"] if item["type"] == "function_call")
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "a"}
        (gone,) = await socket.ask(create(store=False, previous_response_id=first["id"], input=[result]))
        assert gone["error"]["code"] == "previous_response_not_found"
