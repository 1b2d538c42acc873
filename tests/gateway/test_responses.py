"""The Responses routes over a real socket: turns, stored responses, background, compaction, refusals."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.protocols.responses.conformance import check_document, check_events
from turnwire.gateway.door.keys import hash_key
from turnwire.protocols.codex_catalog import catalog_problems
from turnwire.protocols.responses import read_summary

from .conftest import Client, Serve


def call(name: str, argument: str, value: str) -> str:
    return f"<tool_call>\n<function={name}>\n<parameter={argument}>\n{value}\n</parameter>\n</function>\n</tool_call>"


PATCH = '*** Begin Patch\n*** Add File: a.txt\n+"hello"\n*** End Patch'
MIXED = (
    "First I look.\n</think>\n\n"
    + call("exec_command", "cmd", "ls")
    + "\n<think>\nThen I patch.\n</think>\n"
    + call("apply_patch", "input", PATCH)
    + call("mcp__mail__send", "to", "you")
)
TOOLS = [
    {
        "type": "function",
        "name": "exec_command",
        "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}},
    },
    {"type": "custom", "name": "apply_patch", "description": "Edit files."},
    {
        "type": "namespace",
        "name": "mcp__mail",
        "tools": [
            {
                "type": "function",
                "name": "send",
                "parameters": {"type": "object", "properties": {"to": {"type": "string"}}},
            }
        ],
    },
    {"type": "web_search"},
]
CODEX = {"originator": "codex_exec", "session-id": "s1", "thread-id": "s1", "x-codex-window-id": "s1:0"}


def request(**over: Any) -> dict[str, Any]:
    return {
        "model": "test-model",
        "stream": True,
        "input": [{"role": "user", "content": "How many lines?"}],
        "tools": TOOLS,
        "reasoning": {"effort": "medium", "summary": "auto"},
    } | over


async def events_of(client: Client, body: dict[str, Any], **headers: str) -> list[dict[str, Any]]:
    events = [data for _, _, data in await client.stream("/v1/responses", body, **headers)]
    assert check_events(events) == []
    return events


async def get(client: Client, path: str) -> tuple[int, Any]:
    async with client.session.get(client.base + path) as answer:
        return answer.status, await answer.json(content_type=None)


async def test_a_turn_in_the_clients_own_words(serve: Serve) -> None:
    client = await serve({"text": MIXED})
    events = await events_of(client, request())
    items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    shown = [item["type"] for item in items if item.get("summary") != []]
    assert shown == ["reasoning", "function_call", "reasoning", "custom_tool_call", "function_call"]
    calls = [item for item in items if "call_id" in item]
    assert json.loads(calls[0]["arguments"]) == {"cmd": "ls"}
    assert (calls[1]["name"], calls[1]["input"].strip()) == ("apply_patch", PATCH)
    assert (calls[2]["name"], calls[2]["namespace"]) == ("send", "mcp__mail")
    assert all(item["encrypted_content"] for item in items if item["type"] == "reasoning")
    deltas = [event["delta"] for event in events if event["type"] == "response.custom_tool_call_input.delta"]
    assert len(deltas) > 3
    assert "".join(deltas) == calls[1]["input"]


async def test_the_whole_answer_says_the_same_as_the_stream(serve: Serve) -> None:
    client = await serve({"text": MIXED})
    streamed = (await events_of(client, request()))[-1]["response"]
    status, whole = await client.post("/v1/responses", request(stream=False))
    assert status == 200
    assert check_document(whole) == []
    kinds = [[item["type"] for item in document["output"]] for document in (streamed, whole)]
    assert kinds[0] == kinds[1]
    assert whole["completed_at"] >= whole["created_at"]


async def test_the_first_call_is_done_long_before_the_end(serve: Serve) -> None:
    client = await serve({"text": MIXED, "delay_ms": 5})
    arrivals = await client.stream("/v1/responses", request())
    done = [at for at, name, _ in arrivals if name == "response.output_item.done"]
    assert arrivals[-1][0] - done[1] > 5 * 0.005


async def test_headers_of_an_answer(serve: Serve) -> None:
    client = await serve({"text": "Hi."})
    async with client.session.get(client.base + "/v1/models") as models:
        etag = models.headers["etag"]
        body = await models.json()
    assert catalog_problems(body) == []
    async with client.session.post(client.base + "/v1/responses", json=request()) as answer:
        await answer.read()
        assert answer.headers["x-models-etag"] == etag
        assert answer.headers["x-reasoning-included"] == "true"
        assert "openai-model" not in answer.headers
        assert "tools.hosted_ignored" in answer.headers["x-turnwire-notes"]


async def test_the_model_list_serves_every_client(serve: Serve) -> None:
    client = await serve({"text": "Hi."}, alias=("openai/openai/gpt-5.5",), window=4096)
    _, body = await get(client, "/v1/models?client_version=0.166.0")
    assert body["object"] == "list"
    assert (body["data"][0]["id"], body["data"][0]["object"]) == ("test-model", "model")
    assert body["data"][0]["max_model_len"] == 4096
    slugs = {entry["slug"]: entry for entry in body["models"]}
    assert list(slugs) == ["test-model", "openai/openai/gpt-5.5"]
    assert slugs["openai/openai/gpt-5.5"]["context_window"] == 4096
    assert (await get(client, "/v1/models?limit=x"))[0] == 400
    assert (await get(client, "/v1/models/openai/openai/gpt-5.5"))[1]["object"] == "model"
    status, _ = await client.post("/v1/responses", request(model="openai/openai/gpt-5.5", stream=False))
    assert status == 200


@pytest.mark.parametrize("stored", ["memory", "sqlite"])
async def test_a_response_is_kept_continued_listed_and_deleted(serve: Serve, tmp_path: Path, stored: str) -> None:
    store = f"sqlite:{tmp_path}/r.db" if stored == "sqlite" else "memory"
    client = await serve({"text": "One.\n</think>\n\nFirst."}, {"text": "Two.\n</think>\n\nSecond."}, store=store)
    first = (await events_of(client, request()))[-1]["response"]
    assert await get(client, f"/v1/responses/{first['id']}") == (200, first)
    status, second = await client.post(
        "/v1/responses", request(stream=False, input="And now?", previous_response_id=first["id"])
    )
    assert status == 200
    assert second["previous_response_id"] == first["id"]
    whole = request(
        stream=False,
        input=[*request()["input"], *first["output"], {"role": "user", "content": "And now?"}],
    )
    _, same = await client.post("/v1/responses", whole)
    assert same["usage"]["input_tokens"] == second["usage"]["input_tokens"]
    _, counted = await client.post("/v1/responses/input_tokens", whole)
    assert counted == {"object": "response.input_tokens", "input_tokens": same["usage"]["input_tokens"]}
    status, page = await get(client, f"/v1/responses/{second['id']}/input_items?order=asc&limit=1")
    assert (status, page["data"][0]["content"][0]["text"]) == (200, "And now?")
    async with client.session.delete(f"{client.base}/v1/responses/{first['id']}") as answer:
        assert (await answer.json())["deleted"] is True
    status, error = await client.post("/v1/responses", request(stream=False, previous_response_id=second["id"]))
    assert (status, error["error"]["code"]) == (400, "previous_response_not_found")
    assert (await get(client, f"/v1/responses/{first['id']}"))[0] == 404


async def test_what_is_not_to_be_stored_is_not(serve: Serve) -> None:
    client = await serve({"text": "Hi."})
    response = (await events_of(client, request(store=False)))[-1]["response"]
    assert (await get(client, f"/v1/responses/{response['id']}"))[0] == 404


async def test_item_references_stand_for_items(serve: Serve) -> None:
    """What the Vercel AI SDK replays by default: reasoning by reference, calls in full."""
    client = await serve({"text": MIXED})
    first = (await events_of(client, request()))[-1]["response"]
    output = [
        {"type": "item_reference", "id": item["id"]} if item["type"] == "reasoning" else item
        for item in first["output"]
    ]
    results = [
        {
            "type": "custom_tool_call_output" if item["type"] == "custom_tool_call" else "function_call_output",
            "call_id": item["call_id"],
            "output": "ok",
        }
        for item in first["output"]
        if "call_id" in item
    ]
    by_reference = request(stream=False, input=[*request()["input"], *output, *results])
    in_full = request(stream=False, input=[*request()["input"], *first["output"], *results])
    _, one = await client.post("/v1/responses", by_reference)
    _, other = await client.post("/v1/responses", in_full)
    assert one["usage"]["input_tokens"] == other["usage"]["input_tokens"]


async def test_the_next_prompt_holds_this_turn(serve: Serve) -> None:
    """Replayed items give a prompt that starts with this prompt and this output."""
    client = await serve({"text": MIXED})
    first = (await events_of(client, request(store=False), **CODEX))[-1]["response"]
    results = [
        {
            "type": "custom_tool_call_output" if i["type"] == "custom_tool_call" else "function_call_output",
            "call_id": i["call_id"],
            "output": "ok",
        }
        for i in first["output"]
        if "call_id" in i
    ]
    body = request(store=False, stream=False, input=[*request()["input"], *first["output"], *results])
    _, second = await client.post("/v1/responses", body, **CODEX)
    used = first["usage"]["total_tokens"]
    assert second["usage"]["input_tokens"] > used
    # The scripted engine caches whole blocks of 16 tokens.
    assert used - second["usage"]["input_tokens_details"]["cached_tokens"] < 16


async def test_a_background_response_is_polled_and_followed(serve: Serve) -> None:
    client = await serve({"text": "Hm.\n</think>\n\nDone at last.", "delay_ms": 15})
    status, begun = await client.post("/v1/responses", request(stream=False, background=True))
    assert (status, begun["status"], begun["background"]) == (200, "queued", True)
    path = f"/v1/responses/{begun['id']}"
    async with client.session.get(f"{client.base}{path}?stream=true&starting_after=1") as answer:
        text = (await answer.read()).decode()
    frames = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    assert [frame["sequence_number"] for frame in frames] == list(range(2, 2 + len(frames)))
    assert frames[-1]["type"] == "response.completed"
    status, finished = await get(client, path)
    assert finished == frames[-1]["response"]
    assert check_document(finished) == []
    async with client.session.get(f"{client.base}{path}?stream=true&starting_after={len(frames)}") as answer:
        assert (await answer.text()).count("event: ") == 1


async def test_a_background_stream_outlives_its_reader(serve: Serve) -> None:
    client = await serve({"text": "Hm.\n</think>\n\nDone at last.", "delay_ms": 15})
    async with client.session.post(client.base + "/v1/responses", json=request(background=True)) as answer:
        line = b""
        while not line.startswith(b"data: "):
            line = await answer.content.readline()
        begun = json.loads(line[6:])["response"]["id"]
    for _ in range(200):
        _, response = await get(client, f"/v1/responses/{begun}")
        if response["status"] not in ("queued", "in_progress"):
            break
        await asyncio.sleep(0.02)
    assert response["status"] == "completed"


async def test_a_background_response_is_cancelled(serve: Serve) -> None:
    client = await serve({"text": "word " * 500, "delay_ms": 20})
    _, begun = await client.post("/v1/responses", request(stream=False, background=True))
    status, cancelled = await client.post(f"/v1/responses/{begun['id']}/cancel", {})
    assert (status, cancelled["status"]) == (200, "cancelled")
    assert (await get(client, f"/v1/responses/{begun['id']}"))[1]["status"] == "cancelled"
    assert (await client.post("/v1/responses/resp_none/cancel", {}))[0] == 404
    status, error = await client.post("/v1/responses", request(background=True, store=False))
    assert (status, error["error"]["param"]) == (400, "background")


async def test_background_turns_are_counted(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwire.gateway.transports.background.MAX_BACKGROUND", 2)
    client = await serve({"text": "word " * 500, "delay_ms": 20})
    body = request(stream=False, background=True)
    begun = [(await client.post("/v1/responses", body))[1]["id"] for _ in range(2)]
    assert (await client.post("/v1/responses", body))[0] == 429
    await client.post(f"/v1/responses/{begun[0]}/cancel", {})
    assert (await client.post("/v1/responses", body))[0] == 200


async def test_a_background_failure_is_a_failed_response(serve: Serve) -> None:
    client = await serve({"text": "Hi."}, window=64)
    long = [{"role": "user", "content": "word " * 200}]
    _, begun = await client.post("/v1/responses", request(stream=False, background=True, input=long))
    for _ in range(100):
        _, response = await get(client, f"/v1/responses/{begun['id']}")
        if response["status"] not in ("queued", "in_progress"):
            break
        await asyncio.sleep(0.02)
    assert (response["status"], response["error"]["code"]) == ("failed", "context_length_exceeded")


async def test_overflow_is_the_event_that_makes_codex_compact(serve: Serve) -> None:
    client = await serve({"text": "Hi."}, window=64)
    long = request(input=[{"role": "user", "content": "word " * 200}], tools=[])
    events = await events_of(client, long)
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["response"]["error"]["code"] == "context_length_exceeded"
    assert "maximum context length is 64 tokens" in events[-1]["response"]["error"]["message"]
    status, error = await client.post("/v1/responses", long | {"stream": False})
    assert (status, error["error"]["code"]) == (400, "context_length_exceeded")


async def test_an_unknown_model_is_a_400_that_is_not_tried_again(serve: Serve) -> None:
    client = await serve({"text": "Hi."})
    status, error = await client.post("/v1/responses", request(model="nope"))
    assert (status, error["error"]["code"]) == (400, "model_not_found")


async def test_an_engine_that_dies_is_never_a_success(serve: Serve) -> None:
    client = await serve({"text": "I was about to say", "finish": "error", "delay_ms": 10})
    events = await events_of(client, request(reasoning={"effort": "none"}))
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["response"]["error"]["code"] == "server_error"


async def test_a_rate_limit_reaches_codex_as_a_wait_and_others_as_a_429(serve: Serve, tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text(f'[[key]]\nname = "k"\nhash = "{hash_key("secret")}"\nrequests_per_minute = 1\n')
    client = await serve({"text": "Hi."}, keys=str(keys))
    bearer = {"Authorization": "Bearer secret"}
    assert (await client.post("/v1/responses", request(stream=False), **bearer))[0] == 200
    events = [data for _, _, data in await client.stream("/v1/responses", request(), **bearer, **CODEX)]
    assert events[-1]["response"]["error"]["code"] == "rate_limit_exceeded"
    assert "try again in" in events[-1]["response"]["error"]["message"]
    async with client.session.post(client.base + "/v1/responses", json=request(), headers=bearer) as answer:
        assert answer.status == 429
        assert int(answer.headers["retry-after"]) > 0
    status, error = await client.post("/v1/responses", request())
    assert (status, error["error"]["code"]) == (401, "invalid_api_key")


async def test_a_zstd_body_without_content_size(serve: Serve) -> None:
    client = await serve({"text": "Hi."})
    packer = zstandard.ZstdCompressor(level=3, write_content_size=False).compressobj()
    data = packer.compress(json.dumps(request(stream=False)).encode()) + packer.flush()
    headers = {"content-encoding": "zstd", "content-type": "application/json"}
    status, response = await client.post("/v1/responses", data, **headers)
    assert (status, response["status"]) == (200, "completed")


async def test_compaction_by_trigger_and_by_route(serve: Serve) -> None:
    client = await serve({"text": "Let me see.\n</think>\n\nWe counted the lines."})
    asked = request(input=[*request()["input"], {"type": "compaction_trigger"}])
    events = await events_of(client, asked, **CODEX)
    items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert [item["type"] for item in items] == ["compaction"]
    assert read_summary(items[0]["encrypted_content"]) == "We counted the lines."
    status, whole = await client.post("/v1/responses", asked | {"stream": False}, **CODEX)
    assert (status, [item["type"] for item in whole["output"]]) == (200, ["compaction"])
    status, compacted = await client.post("/v1/responses/compact", {"model": "test-model", "input": request()["input"]})
    assert (status, compacted["object"]) == (200, "response.compaction")
    assert [item["type"] for item in compacted["output"]] == ["message", "compaction"]
    status, after = await client.post(
        "/v1/responses", request(stream=False, input=[*compacted["output"], {"role": "user", "content": "Go on."}])
    )
    assert (status, after["status"]) == (200, "completed")


async def test_a_get_is_an_upgrade_that_was_not_taken(serve: Serve) -> None:
    client = await serve({"text": "Hi."})
    assert (await get(client, "/v1/responses"))[0] == 426


async def test_a_namespaced_tool_called_by_its_bare_name_is_typed_and_replayed_as_said(serve: Serve) -> None:
    numbers = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}
    tools = [
        {
            "type": "namespace",
            "name": "mcp__calc",
            "tools": [{"type": "function", "name": "add", "parameters": numbers}],
        }
    ]
    said = (
        "Sum.\n</think>\n\n<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n"
        "<parameter=b>\n2\n</parameter>\n</function>\n</tool_call>"
    )
    client = await serve({"text": said}, {"text": "Hm.\n</think>\n\nThree."})
    body = request(tools=tools, stream=False, store=False, include=["reasoning.encrypted_content"])
    _, first = await client.post("/v1/responses", body)
    call = next(item for item in first["output"] if item["type"] == "function_call")
    assert (call["name"], call["namespace"], json.loads(call["arguments"])) == ("add", "mcp__calc", {"a": 1, "b": 2})
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "3"}
    again = {**body, "input": [*body["input"], *first["output"], result]}
    async with client.session.post(client.base + "/v1/responses", json=again) as answer:
        assert answer.headers["x-turnwire-prefix"].partition(";")[0] == "held"


async def test_a_deleted_parent_is_named_and_its_child_is_still_readable(serve: Serve) -> None:
    client = await serve({"text": "Hm.\n</think>\n\nOne."}, {"text": "Hm.\n</think>\n\nTwo."})
    _, first = await client.post("/v1/responses", request(stream=False))
    _, second = await client.post("/v1/responses", request(stream=False, previous_response_id=first["id"]))
    async with client.session.delete(f"{client.base}/v1/responses/{first['id']}") as answer:
        assert answer.status == 200
    assert (await get(client, f"/v1/responses/{second['id']}"))[0] == 200
    status, error = await client.post("/v1/responses", request(stream=False, previous_response_id=second["id"]))
    assert (status, error["error"]["code"]) == (400, "previous_response_not_found")
    assert first["id"] in error["error"]["message"]


async def test_a_cancelled_response_is_not_continued(serve: Serve) -> None:
    client = await serve({"text": "Hm.\n</think>\n\nDone at last.", "delay_ms": 200})
    _, begun = await client.post("/v1/responses", request(stream=False, background=True))
    await client.post(f"/v1/responses/{begun['id']}/cancel", {})
    status, error = await client.post("/v1/responses", request(stream=False, previous_response_id=begun["id"]))
    assert (status, error["error"]["code"]) == (400, "previous_response_not_finished")


async def test_an_orphan_output_is_refused(serve: Serve) -> None:
    client = await serve({"text": "Hm.\n</think>\n\nOne."})
    orphan = {"type": "function_call_output", "call_id": "call_9", "output": "x"}
    status, error = await client.post("/v1/responses", request(stream=False, input=[orphan]))
    assert (status, error["error"]["param"]) == (400, "input")
