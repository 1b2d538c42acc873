"""Captured requests sent to another gateway, and to a plain engine's server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from click.testing import CliRunner, Result

from turnwire.cli.main import main
from turnwire.gateway.door.keys import hash_key

from ..gateway.conftest import Client, Serve
from . import conversations
from .conversations import LINES

CHUNK = 'data: {"id": "c1", "choices": [{"index": 0, "delta": {"content": "Hi."}}]}\n\n'


async def captured(serve: Serve, folder: Path, session: Callable[..., Awaitable[None]], **headers: str) -> Client:
    """A gateway that has captured a session."""
    client = await serve(*LINES, capture=str(folder))
    await session(client, **headers)
    assert client.gateway.capturing is not None
    client.gateway.capturing.close()
    return client


async def sent(folder: Path, *line: str, **environment: str | None) -> Result:
    command = ["replay", str(folder), "--speed", "1000", *line]
    return await asyncio.to_thread(CliRunner().invoke, main, command, env={"TURNWIRE_API_KEY": None} | environment)


def outcome(ran: Result) -> tuple[int, str]:
    """The exit code, and what is said of failures."""
    (said,) = [line for line in ran.stdout.splitlines() if " requests in " in line]
    return ran.exit_code, said.partition(" s, ")[2]


@asynccontextmanager
async def engine(last: str = "data: [DONE]\n\n") -> AsyncIterator[tuple[str, list[tuple[dict[str, Any], Any]]]]:
    """A server as engines have it: chat completions of one model. What it was asked, and with which headers."""
    asked: list[tuple[dict[str, Any], Any]] = []

    async def chat(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        asked.append((body, request.headers))
        if body["model"] != "org/served":
            return web.json_response({"error": {"message": f"The model {body['model']} does not exist."}}, status=404)
        answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await answer.prepare(request)
        await answer.write(CHUNK.encode())
        await answer.write(last.encode())
        return answer

    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}", asked
    finally:
        await runner.cleanup()


async def test_requests_sent_again_say_how_they_failed(serve: Serve, tmp_path: Path) -> None:
    folder, keys = tmp_path / "captures", tmp_path / "keys.toml"
    await captured(serve, folder, conversations.messages)
    keys.write_text(f'[[key]]\nname = "k"\nhash = "{hash_key("right")}"\n')
    guarded = await serve(*LINES, keys=str(keys))
    assert outcome(await sent(folder, "--to", guarded.base, TURNWIRE_API_KEY="right")) == (0, "0 failed")
    refused = await sent(folder, "--to", guarded.base)
    assert outcome(refused) == (1, "3 failed: 3 x 401")
    assert "give one with --key or TURNWIRE_API_KEY" in refused.stderr
    assert outcome(await sent(folder, "--to", "http://127.0.0.1:9")) == (1, "3 failed: 3 x no answer")


async def test_a_plain_engine_is_asked_for_its_own_model_with_the_captured_headers(
    serve: Serve, tmp_path: Path
) -> None:
    folder = tmp_path / "captures"
    await captured(
        serve,
        folder,
        conversations.chat,
        **{"session-id": "s-7", "user-agent": "harness/1", "authorization": "Bearer sk-this-is-a-secret-key-of-mine"},
    )
    async with engine() as (base, asked):
        unknown = await sent(folder, "--to", base)
        assert outcome(unknown) == (1, "3 failed: 3 x 404 at /v1/chat/completions")
        assert "may not serve test-model" in unknown.stderr
        asked.clear()
        # The address may end as clients are given it.
        ran = await sent(folder, "--to", base + "/v1/", "--model", "org/served")
    assert outcome(ran) == (0, "0 failed")
    assert len(asked) == 3
    for body, headers in asked:
        assert body["model"] == "org/served"
        assert (headers["session-id"], headers["user-agent"]) == ("s-7", "harness/1")
        assert "authorization" not in headers
    assert asked[1][0]["messages"][-1]["role"] == "tool"
    assert [line.partition(":")[0] for line in ran.stdout.splitlines()[1:]] == ["captured", "replayed"]


@pytest.mark.parametrize(
    ("last", "words"), [("", "broken off"), ('data: {"error": {"message": "gone"}}\n\n', "error in the stream")]
)
async def test_a_stream_that_begins_well_can_fail(serve: Serve, tmp_path: Path, last: str, words: str) -> None:
    await captured(serve, tmp_path / "captures", conversations.chat)
    async with engine(last) as (base, _):
        ran = await sent(tmp_path / "captures", "--to", base, "--model", "org/served")
    assert outcome(ran) == (1, f"3 failed: 3 x {words}")


async def stored(client: Client, **headers: str) -> None:
    """Two responses, the second of which goes on from the first."""
    first: dict[str, Any] = {"model": "test-model", "input": "What is in /a?", "stream": True}
    async with client.session.post(client.base + "/v1/responses", json=first) as answer:
        name = (await answer.text()).split('"id":"')[1].split('"')[0]
    more = {"model": "test-model", "input": "And now?", "previous_response_id": name}
    assert (await client.post("/v1/responses", more))[0] == 200


async def test_a_request_that_goes_on_from_a_response_names_the_one_that_was_made_there(
    serve: Serve, tmp_path: Path
) -> None:
    await captured(serve, tmp_path / "captures", stored)
    other = await serve(*LINES)
    assert outcome(await sent(tmp_path / "captures", "--to", other.base)) == (0, "0 failed")
    assert [turn.prefix.split(";")[0] for turn in other.gateway.journal.last(9)] == ["held", "first"]
