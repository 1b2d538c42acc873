"""`turnwire top` and `turnwire explain` against a real gateway."""

from __future__ import annotations

import asyncio

from click.testing import CliRunner, Result

from tests.gateway.conftest import Serve, serve  # noqa: F401 - a fixture
from turnwire.cli.main import main

BODY = {"model": "test-model", "max_tokens": 500, "messages": [{"role": "user", "content": "Hi."}]}


async def run(*arguments: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, main, list(arguments), env={"COLUMNS": "160"})


async def test_the_last_turn_is_explained(serve: Serve) -> None:  # noqa: F811
    client = await serve({"text": "Secret.\n</think>\n\n<tool_call>\n<function=ls>\n</function>\n</tool_call>"})
    tools = [{"name": "ls", "input_schema": {"type": "object"}}]
    await client.post("/v1/messages", BODY | {"tools": tools}, **{"x-claude-code-session-id": "s-1"})
    (turn,) = client.gateway.journal.last(1)
    for arguments in ((), (turn.turn_id,), (f"req_{turn.turn_id}",), ("--session", "s-1")):
        told = await run("explain", "--url", client.base, *arguments)
        assert told.exit_code == 0, told.output
        assert f"turn {turn.turn_id}" in told.output
        assert "calling ls" in told.output
        assert "The first turn of its session" in told.output
        assert "Secret" not in told.output


async def test_top_shows_what_ended(serve: Serve) -> None:  # noqa: F811
    client = await serve({"text": "Hm.\n</think>\n\nHi."})
    await client.post("/v1/messages", BODY, **{"x-claude-code-session-id": "s-1"})
    told = await run("top", "--once", "--url", client.base)
    assert told.exit_code == 0, told.output
    assert "0 live" in told.output
    assert "s-1" in told.output


async def test_what_cannot_be_shown_is_said(serve: Serve) -> None:  # noqa: F811
    client = await serve({"text": "Hi."})
    told = await run("explain", "--url", client.base)
    assert (told.exit_code, told.output) == (1, "Error: No turn has ended yet.\n")
    told = await run("explain", "--url", "http://127.0.0.1:9", "x")
    assert told.exit_code == 1
    assert "turnwire serve" in told.output
    told = await run("top", "--once", "--url", "ftp://x")
    assert "not an http address" in told.output
