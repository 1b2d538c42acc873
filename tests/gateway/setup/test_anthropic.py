"""A Messages server behind the gateway: keys, signatures, order, thinking and counts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from tests.gateway.conftest import running
from turnwire.gateway.settings import Settings
from turnwire.gateway.setup.assembly import AssemblyError, assemble

EVENTS: list[dict[str, Any]] = [
    {
        "type": "message_start",
        "message": {"usage": {"input_tokens": 5, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 7}},
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Look first."}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "EqRkSIGNED=="}},
    {"type": "content_block_stop", "index": 0},
    {"type": "ping"},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "redacted_thinking", "data": "HIDDEN=="}},
    {"type": "content_block_stop", "index": 1},
    {
        "type": "content_block_start",
        "index": 2,
        "content_block": {"type": "tool_use", "id": "toolu_01up", "name": "ls", "input": {}},
    },
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"path": '}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '"."}'}},
    {"type": "content_block_stop", "index": 2},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 21}},
    {"type": "message_stop"},
]


class Hosted:
    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.events = EVENTS

    def _refused(self, request: web.Request) -> web.Response | None:
        if request.headers.get("x-api-key") == "sk-ant-0123456789" and "anthropic-version" in request.headers:
            return None
        error = {"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}}
        return web.json_response(error, status=401)

    async def models(self, request: web.Request) -> web.Response:
        rows = [{"type": "model", "id": f"claude-{name}", "display_name": name} for name in ("x", "y")]
        return self._refused(request) or web.json_response({"data": rows})

    async def messages(self, request: web.Request) -> web.StreamResponse:
        if (refused := self._refused(request)) is not None:
            return refused
        self.asked.append(await request.json())
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        for event in self.events:
            await answer.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
        return answer


@asynccontextmanager
async def hosted() -> AsyncIterator[tuple[Hosted, str]]:
    server, app = Hosted(), web.Application()
    app.router.add_get("/v1/models", server.models)
    app.router.add_post("/v1/messages", server.messages)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield server, f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_KEY", "sk-ant-0123456789")


TOOL = {"name": "ls", "description": "List.", "input_schema": {"type": "object", "properties": {"path": {}}}}


async def test_a_turn_goes_there_and_back_with_its_signatures() -> None:
    async with hosted() as (server, url):
        settings = Settings(engine=url, model="claude-x", engine_key_env="CLAUDE_KEY", alias=("house",))
        async with running(settings) as client:
            question = {"role": "user", "content": "What is here?"}
            body: dict[str, Any] = {"model": "house", "max_tokens": 9000, "system": "Be brief.", "tools": [TOOL]}
            body |= {"thinking": {"type": "enabled", "budget_tokens": 2048}, "messages": [question]}
            status, first = await client.post("/v1/messages", body)
            assert status == 200, first
            thinking, hidden, call = first["content"]
            assert (thinking["thinking"], thinking["signature"]) == ("Look first.", "EqRkSIGNED==")
            assert (call["id"], call["name"], call["input"]) == ("toolu_01up", "ls", {"path": "."})
            assert hidden["type"] in ("thinking", "redacted_thinking")
            assert first["stop_reason"] == "tool_use"
            usage = first["usage"]
            assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["output_tokens"]) == (12, 100, 21)
            result = {"type": "tool_result", "tool_use_id": "toolu_01up", "content": "a.txt"}
            body["messages"] = [
                question,
                {"role": "assistant", "content": first["content"]},
                {"role": "user", "content": [result]},
            ]
            assert (await client.post("/v1/messages", body))[0] == 200
    sent = server.asked[0]
    assert (sent["model"], sent["max_tokens"]) == ("claude-x", 9000)
    assert sent["thinking"] == {"type": "enabled", "budget_tokens": 2048}
    assert sent["system"][0]["text"] == "Be brief."
    assert server.asked[1]["messages"][1] == {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Look first.", "signature": "EqRkSIGNED=="},
            {"type": "redacted_thinking", "data": "HIDDEN=="},
            {"type": "tool_use", "id": "toolu_01up", "name": "ls", "input": {"path": "."}},
        ],
    }
    assert server.asked[1]["messages"][2]["content"][0]["tool_use_id"] == "toolu_01up"


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"reasoning_effort": "none"}, {"thinking": {"type": "disabled"}}),
        ({"reasoning_effort": "high"}, {"output_config": {"effort": "high"}}),
        ({}, {}),
    ],
)
async def test_thinking_in_its_words(wish: dict[str, Any], said: dict[str, Any]) -> None:
    async with hosted() as (server, url):
        settings = Settings(engine=f"anthropic:{url}", model="claude-y", engine_key_env="CLAUDE_KEY")
        async with running(settings) as client:
            body = {"model": "claude-y", "messages": [{"role": "user", "content": "Hi"}], **wish}
            assert (await client.post("/v1/chat/completions", body))[0] == 200
    assert {name: server.asked[0][name] for name in ("thinking", "output_config") if name in server.asked[0]} == said


async def test_a_thought_that_the_server_did_not_sign_is_left_out_with_a_note() -> None:
    async with hosted() as (server, url):
        settings = Settings(engine=f"anthropic:{url}", model="claude-x", engine_key_env="CLAUDE_KEY")
        async with running(settings) as client:
            history = [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "reasoning_content": "Hm.", "content": "Hello."},
                {"role": "user", "content": "And?"},
            ]
            async with client.session.post(
                f"{client.base}/v1/chat/completions", json={"model": "claude-x", "messages": history}
            ) as answer:
                assert answer.status == 200
        summary = client.gateway.journal
    assert server.asked[0]["messages"][1]["content"] == [{"type": "text", "text": "Hello."}]
    assert "upstream.unsigned_thought" in str(list(summary.last(10)))


async def test_a_wrong_key_and_no_model_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async with hosted() as (_, url):
        with pytest.raises(AssemblyError, match="--model: claude-x, claude-y"):
            await assemble(Settings(engine=url, engine_key_env="CLAUDE_KEY"))
        monkeypatch.setenv("CLAUDE_KEY", "wrong-key")
        for spec in (url, f"anthropic:{url}"):
            with pytest.raises(AssemblyError, match="--engine-key-env"):
                await assemble(Settings(engine=spec, model="claude-x", engine_key_env="CLAUDE_KEY"))


async def test_an_error_in_the_stream_ends_the_turn() -> None:
    async with hosted() as (server, url):
        server.events = [EVENTS[0], {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}]
        settings = Settings(engine=f"anthropic:{url}", model="claude-x", engine_key_env="CLAUDE_KEY")
        async with running(settings) as client:
            body = {"model": "claude-x", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
            status, answer = await client.post("/v1/messages", body)
    assert (status, answer["error"]["type"]) == (529, "overloaded_error")
