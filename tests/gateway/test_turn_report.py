"""What clients ask to know of their turns, on every API, and the salt that keeps a cache apart."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnwire.engines.interface import Capabilities

from .conftest import Serve

EVERYTHING = ["worker_id", "timing", "stop_reason", "completion_token_ids", "notes", "routed_experts"]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
    "/v1/messages": {"max_tokens": 50, "messages": [{"role": "user", "content": "Hi"}]},
    "/v1/responses": {"input": "Hi", "store": False},
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


async def test_a_wrong_list_is_refused(serve: Serve) -> None:
    client = await serve({"text": "Hello."})
    body = {"model": "test-model", **BODIES["/v1/messages"]}
    for wrong in ({"extra_fields": "timing"}, {"extra_fields": [1]}, {"cache_salt": 5}, {"cache_salt": "x" * 300}):
        status, answer = await client.post("/v1/messages", {**body, "nvext": wrong})
        assert status == 400
        assert next(iter(wrong)) in answer["error"]["message"]


async def test_a_salt_is_within_the_tenants(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await serve({"text": "Hello."})
    (runtime,) = client.gateway.runtimes
    assert runtime.cache_salt("default") is None
    assert runtime.cache_salt("default", "a") == "/a"
    assert runtime.cache_salt("b", "a") == "b/a"
    assert runtime.cache_salt("b") == "b"
    monkeypatch.setattr(type(runtime.engine), "capabilities", property(lambda _: Capabilities(yields="tokens")))
    assert runtime.cache_salt("default", "a") is None
