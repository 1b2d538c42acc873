"""What clients ask to know of their turns, on every API, and the salt that keeps a cache apart."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnwire.engines.interface import Capabilities, Hints
from turnwire.gateway.turns import asking
from turnwire.gateway.turns.runtime import ModelRuntime

from .conftest import Serve

EVERYTHING = ["worker_id", "timing", "stop_reason", "completion_token_ids", "notes", "routed_experts"]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
    "/v1/messages": {"max_tokens": 50, "messages": [{"role": "user", "content": "Hi"}]},
    "/v1/responses": {"input": "Hi", "store": False},
    "/v1/completions": {"prompt": "Hi"},
}


@pytest.mark.parametrize("path", BODIES)
async def test_what_was_asked_for_is_told_and_nothing_else(serve: Serve, path: str) -> None:
    client = await serve({"text": "Hello."})
    body = {"model": "test-model", **BODIES[path]}
    _, silent = await client.post(path, body)
    assert "nvext" not in silent
    _, answer = await client.post(path, {**body, "nvext": {"extra_fields": EVERYTHING}})
    asked = {**body, "stream": True, "nvext": {"extra_fields": EVERYTHING}}
    async with client.session.post(client.base + path, json=asked) as stream:
        lines = (await stream.text()).splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    (streamed,) = [told for event in events if (told := event.get("nvext") or event.get("response", {}).get("nvext"))]
    for told in (answer["nvext"], streamed):
        assert told["worker_id"]["decode_worker_id"] == answer["nvext"]["worker_id"]["decode_worker_id"]
        timing = told["timing"]
        assert timing["request_received_ms"] > 1_600_000_000_000
        assert 0 <= timing["ttft_ms"] <= timing["total_time_ms"]
        assert timing["prefill_wait_time_ms"] + timing["prefill_time_ms"] == pytest.approx(timing["ttft_ms"], abs=0.01)
        assert told["stop_reason"] is None
        assert told["completion_token_ids"]
        assert "request.field_ignored" in told["notes"]
        assert "routed_experts" not in told


@pytest.mark.parametrize("path", BODIES)
async def test_annotations_are_events_with_a_comment_before_the_stream(serve: Serve, path: str) -> None:
    client = await serve({"text": "Hello."})
    names = ["request_id", "formatted_prompt", "token_ids", "tomorrows"]
    body = {"model": "test-model", **BODIES[path], "stream": True, "nvext": {"annotations": names}}
    async with client.session.post(client.base + path, json=body) as stream:
        assert "request.field_ignored" in stream.headers["x-turnwire-notes"]
        request_id = stream.headers["request-id"].removeprefix("req_")
        text = await stream.text()
    heads = [frame.split("\n") for frame in text.split("\n\n")[:4]]
    assert [head[0] for head in heads[:3]] == [f"event: {name}" for name in names[:3]]
    told = [json.loads(head[1].removeprefix(": ")) for head in heads[:3]]
    (runtime,) = client.gateway.runtimes
    assert told[0] == request_id
    assert told[1] == runtime.tokenizer.decode(json.loads(told[2]))
    assert "Hi" in told[1]
    assert "data: {" in "\n".join(heads[3])
    # An event without data is none to a client that keeps to the format.
    assert all(len(head) == 2 for head in heads[:3])


async def test_annotations_of_a_document_are_noted(serve: Serve) -> None:
    client = await serve({"text": "Hello."})
    body = {"model": "test-model", **BODIES["/v1/messages"], "nvext": {"annotations": ["request_id"]}}
    async with client.session.post(client.base + "/v1/messages", json=body) as answer:
        assert answer.headers["x-turnwire-notes"] == "request.field_ignored"


@pytest.mark.parametrize("path", BODIES)
async def test_the_worker_that_was_told_can_be_named(serve: Serve, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    client = await serve({"text": "Hello."})
    body = {"model": "test-model", **BODIES[path]}
    _, answer = await client.post(path, {**body, "nvext": {"extra_fields": ["worker_id"]}})
    number = answer["nvext"]["worker_id"]["decode_worker_id"]
    named: list[int | None] = []
    monkeypatch.setattr(asking, "Hints", lambda **hints: named.append(hints["worker"]) or Hints(**hints))
    await client.post(path, {**body, "nvext": {"decode_worker_id": number}})
    await client.post(path, {**body, "nvext": {"decode_worker_id": 5, "backend_instance_id": number}})
    await client.post(path, body, **{"x-dynamo-worker-instance-id": str(number)})
    await client.post(path, body, **{"x-dynamo-worker-instance-id": "two"})
    assert named == [number, number, number, None]


async def test_a_wrong_list_is_refused(serve: Serve) -> None:
    client = await serve({"text": "Hello."})
    body = {"model": "test-model", **BODIES["/v1/messages"]}
    for wrong in ({"extra_fields": "timing"}, {"annotations": [1]}, {"cache_salt": 5}, {"cache_salt": "x" * 300}):
        status, answer = await client.post("/v1/messages", {**body, "nvext": wrong})
        assert status == 400
        assert next(iter(wrong)) in answer["error"]["message"]


@pytest.mark.parametrize("path", BODIES)
async def test_a_salt_is_taken_from_either_place(serve: Serve, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    client = await serve({"text": "Hello."})
    wanted: list[str | None] = []
    monkeypatch.setattr(ModelRuntime, "cache_salt", lambda _, __, salt: wanted.append(salt))
    for fields in ({"cache_salt": "a"}, {"cache_salt": "a", "nvext": {"cache_salt": "b"}}, {"nvext": {}}):
        await client.post(path, {"model": "test-model", **BODIES[path], **fields})
    assert wanted == ["a", "b", None]


async def test_a_salt_is_within_the_tenants(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await serve({"text": "Hello."})
    (runtime,) = client.gateway.runtimes
    assert runtime.cache_salt("default") is None
    assert runtime.cache_salt("default", "a") == "/a"
    assert runtime.cache_salt("b", "a") == "b/a"
    assert runtime.cache_salt("b") == "b"
    monkeypatch.setattr(type(runtime.engine), "capabilities", property(lambda _: Capabilities(yields="tokens")))
    assert runtime.cache_salt("default", "a") is None
