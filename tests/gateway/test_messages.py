"""One turn through all rooms, over a real socket: order, early closing, counts, failures."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from turnwire.gateway.door.keys import hash_key

from .conftest import Serve

CALL = "<tool_call>\n<function=Bash>\n<parameter=command>\n{}\n</parameter>\n</function>\n</tool_call>"
MIXED = (
    "First I look.\n</think>\n\n"
    + CALL.format("ls")
    + "\n<think>\nThen I count.\n</think>\n"
    + CALL.format("wc -l *.py")
    + "\nBoth are running."
)
TOOLS = [
    {
        "name": "Bash",
        "description": "Run a command.",
        "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    }
]


def request(**over: Any) -> dict[str, Any]:
    return {
        "model": "test-model",
        "max_tokens": 4096,
        "stream": True,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "messages": [{"role": "user", "content": "How many lines?"}],
        "tools": TOOLS,
    } | over


def blocks(events: list[tuple[float, str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """The content blocks as a client assembles them."""
    found: dict[int, dict[str, Any]] = {}
    for _, _, data in events:
        if data["type"] == "content_block_start":
            found[data["index"]] = dict(data["content_block"], pieces="")
        elif data["type"] == "content_block_delta":
            delta = data["delta"]
            for key in ("text", "thinking", "partial_json"):
                found[data["index"]]["pieces"] += delta.get(key, "")
    return [found[index] for index in sorted(found)]


async def test_blocks_arrive_in_the_order_the_model_wrote_them(serve: Serve) -> None:
    client = await serve({"text": MIXED})
    events = await client.stream("/v1/messages", request())
    shown = [(block["type"], block["pieces"]) for block in blocks(events)]
    assert [kind for kind, _ in shown][:5] == ["thinking", "tool_use", "thinking", "tool_use", "text"]
    assert shown[0][1].strip() == "First I look."
    assert json.loads(shown[1][1]) == {"command": "ls"}
    assert shown[2][1].strip() == "Then I count."
    assert json.loads(shown[3][1]) == {"command": "wc -l *.py"}
    assert shown[4][1].strip() == "Both are running."
    assert events[0][1] == "message_start"
    assert [name for _, name, _ in events][-2:] == ["message_delta", "message_stop"]
    assert events[-2][2]["delta"]["stop_reason"] == "tool_use"


async def test_each_block_closes_when_its_last_token_arrives(serve: Serve) -> None:
    client = await serve({"text": MIXED, "delay_ms": 5})
    events = await client.stream("/v1/messages", request())
    stops = [at for at, name, _ in events if name == "content_block_stop"]
    starts = [at for at, name, _ in events if name == "content_block_start"]
    end = events[-1][0]
    # Every block is over before the next begins, and the first call long before the end of the turn.
    assert all(stop <= start for stop, start in zip(stops, starts[1:], strict=False))
    assert end - stops[1] > 5 * 0.005
    order = [name for _, name, _ in events if name.startswith("content_block_st")]
    assert order[:4] == ["content_block_start", "content_block_stop"] * 2


async def test_the_prompt_count_at_the_start_is_the_true_one(serve: Serve) -> None:
    client = await serve({"text": "Hello.", "finish": "stop"})
    events = await client.stream("/v1/messages", request())
    start = events[0][2]["message"]["usage"]
    final = events[-2][2]["usage"]
    total = start["input_tokens"] + start["cache_read_input_tokens"]
    assert total == final["input_tokens"] + final["cache_read_input_tokens"]
    status, counted = await client.post("/v1/messages/count_tokens", request(stream=False))
    assert (status, counted) == (200, {"input_tokens": total})


async def test_the_whole_answer_says_the_same_as_the_stream(serve: Serve) -> None:
    client = await serve({"text": MIXED})
    events = await client.stream("/v1/messages", request())
    status, message = await client.post("/v1/messages", request(stream=False))
    assert status == 200
    streamed = [(b["type"], b["pieces"]) for b in blocks(events) if b["type"] in ("thinking", "tool_use", "text")]
    whole = []
    for block in message["content"]:
        if block["type"] == "tool_use":
            whole.append(("tool_use", block["input"]))
        elif block["type"] in ("thinking", "text"):
            whole.append((block["type"], block[block["type"]]))
    shown = [(kind, json.loads(p) if kind == "tool_use" else p) for kind, p in streamed if p]
    assert shown == [entry for entry in whole if entry[1]]
    assert message["stop_reason"] == "tool_use"


@pytest.mark.parametrize(
    ("said", "kinds"),
    [
        ("Hello.", ["text"]),
        ("Let me see.\n</think>\n\nHello.", ["thinking", "text"]),
        ("<think>\nLet me see.\n</think>\n\nHello.", ["thinking", "text"]),
        ("<think>\nLet me see", ["thinking"]),
        (CALL.format("ls"), ["tool_use"]),
    ],
)
async def test_a_scripted_answer_is_no_thought_unless_it_says_so(serve: Serve, said: str, kinds: list[str]) -> None:
    client = await serve({"text": said})
    _, message = await client.post("/v1/messages", request(stream=False))
    shown = [block for block in message["content"] if block.get("thinking") or "thinking" not in block["type"]]
    assert [block["type"] for block in shown] == kinds


async def test_an_engine_that_dies_is_never_a_success(serve: Serve) -> None:
    client = await serve({"text": "I was about to say", "finish": "error"})
    async with client.session.post(client.base + "/v1/messages", json=request(thinking={"type": "disabled"})) as answer:
        seen = await answer.content.readany()
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()
    assert b"message_start" in seen
    assert b"message_stop" not in seen


async def test_an_unknown_model_is_named_and_a_claude_one_means_the_default(serve: Serve) -> None:
    client = await serve({"text": "Hi."})
    status, error = await client.post("/v1/messages", request(model="nope", stream=False))
    assert status == 404
    assert error["error"]["type"] == "not_found_error"
    assert "test-model" in error["error"]["message"]
    status, message = await client.post("/v1/messages", request(model="claude-haiku-4-5-20251001", stream=False))
    assert (status, message["model"]) == (200, "claude-haiku-4-5-20251001")


async def test_a_prompt_that_does_not_fit_is_told_in_the_words_that_make_clients_compact(serve: Serve) -> None:
    client = await serve({"text": "Hi."}, window=64)
    status, error = await client.post("/v1/messages", request(messages=[{"role": "user", "content": "word " * 200}]))
    assert status == 400
    assert error["error"]["message"].startswith("prompt is too long: ")
    assert error["error"]["message"].endswith("> 64 maximum")


async def test_a_client_that_leaves_stops_the_engine(serve: Serve) -> None:
    client = await serve({"text": "word " * 5000, "delay_ms": 2})
    pool = client.gateway.runtimes[0].engine
    async with client.session.post(client.base + "/v1/messages", json=request()) as answer:
        await answer.content.readany()
        assert pool.active == 1  # type: ignore[attr-defined]
        answer.close()
    async with asyncio.timeout(5):
        while pool.active:  # type: ignore[attr-defined]
            await asyncio.sleep(0.005)
    assert pool.statistics.aborts == 1  # type: ignore[attr-defined]


async def test_a_silent_engine_gets_pings_and_then_an_error(serve: Serve) -> None:
    client = await serve({"text": "well", "finish": "hang"}, keepalive=0.5, idle_timeout=2.0)
    seen = b""
    async with client.session.post(client.base + "/v1/messages", json=request()) as answer:
        with contextlib.suppress(aiohttp.ClientPayloadError):
            async for chunk in answer.content.iter_any():
                seen += chunk
    assert b"event: ping" in seen
    assert b"message_stop" not in seen


async def test_keys_are_asked_for_once_any_is_set(serve: Serve, tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text(f'[[key]]\nname = "a"\nhash = "{hash_key("secret")}"\nconcurrency = 1\n')
    client = await serve({"text": "Hi."}, keys=str(keys))
    for headers in ({}, {"authorization": "Bearer wrong"}, {"x-api-key": "wrong"}):
        status, error = await client.post("/v1/messages", request(stream=False), **headers)
        assert (status, error["error"]["type"]) == (401, "authentication_error")
    for headers in ({"authorization": "Bearer secret"}, {"x-api-key": "secret"}):
        status, _ = await client.post("/v1/messages", request(stream=False), **headers)
        assert status == 200
    async with client.session.get(client.base + "/metrics", headers={"x-api-key": "secret"}) as answer:
        assert answer.status == 403
    async with client.session.get(client.base + "/health") as answer:
        assert answer.status == 200


def next_request(message: dict[str, Any], result: str = "ok") -> dict[str, Any]:
    """The request that a harness sends after running the calls of `message`."""
    results = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": result}
        for block in message["content"]
        if block["type"] == "tool_use"
    ]
    first = request()["messages"]
    return request(
        stream=False,
        messages=[*first, {"role": "assistant", "content": message["content"]}, {"role": "user", "content": results}],
    )


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "turns.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("carrier", ["seals and store", "seals alone", "store alone"])
async def test_the_next_prompt_starts_with_this_prompt_and_output(serve: Serve, tmp_path: Path, carrier: str) -> None:
    folder = tmp_path / "records"
    settings = {"record": str(folder), "seal_key": "a key for tests only"}
    lines = ({"text": MIXED.replace("wc", '  wc "\\t" é')}, {"text": "Done.\n</think>\n\nSeven."})
    client = await serve(*lines, **settings)
    status, message = await client.post("/v1/messages", request(stream=False))
    assert status == 200
    if carrier == "seals alone":
        client = await serve(*lines, **settings)
        for block in message["content"]:
            if block["type"] == "tool_use":
                block["input"] = dict(reversed(block["input"].items()))
    elif carrier == "store alone":
        message["content"] = [block for block in message["content"] if "thinking" not in block["type"]]
    status, _ = await client.post("/v1/messages", next_request(message))
    assert status == 200
    first, second = records(folder)
    assert second["prompt_text"].startswith(first["prompt_text"] + first["output_text"])


async def test_a_thread_goes_on_from_its_last_answer(serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "records"
    client = await serve({"text": MIXED}, {"text": "Done.\n</think>\n\nSeven."}, record=str(folder))
    body = request(stream=False, thread={"type": "create"})
    status, message = await client.post("/v1/messages", body)
    assert status == 200
    results = next_request(message)["messages"][-1:]
    link = {"type": "continue", "previous_message_id": message["id"]}
    follow = {"model": "test-model", "max_tokens": 100, "messages": results, "thread": link}
    follow["thinking"] = body["thinking"]
    status, answer = await client.post("/v1/messages", follow)
    assert status == 200
    assert answer["content"][-1]["text"] == "Seven."
    first, second = records(folder)
    assert second["prompt_text"].startswith(first["prompt_text"] + first["output_text"])
    follow["thread"] = {"type": "continue", "previous_message_id": "msg_unknown"}
    status, error = await client.post("/v1/messages", follow)
    assert status == 404
    assert error["error"]["details"]["error_code"] == "thread_not_found"


async def test_a_script_that_disconnects_is_told_once_no_worker_gets_further(serve: Serve) -> None:
    client = await serve({"text": "word " * 200, "finish": "disconnect", "after": 40})
    async with client.session.post(client.base + "/v1/messages", json=request()) as answer:
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()
    pool = client.gateway.runtimes[0].engine
    assert pool.statistics.migrations <= 4  # type: ignore[attr-defined]
    assert pool.active == 0  # type: ignore[attr-defined]


async def test_a_search_that_nothing_here_runs_is_answered_by_no_model(serve: Serve) -> None:
    client = await serve({"text": "The winner was invented."})
    ask = {"role": "user", "content": "Perform a web search for the query: who won"}
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
    events = await client.stream("/v1/messages", request(messages=[ask], tools=[search]))
    shown = blocks(events)
    assert [block["type"] for block in shown] == ["server_tool_use", "web_search_tool_result", "text"]
    assert shown[1]["content"] == {"type": "web_search_tool_result_error", "error_code": "unavailable"}
    assert "invented" not in json.dumps(shown)
    status, whole = await client.post("/v1/messages", request(messages=[ask], tools=[search], stream=False))
    assert (status, [block["type"] for block in whole["content"]]) == (200, [block["type"] for block in shown])
