"""`turnwire top` and `turnwire explain` against a real gateway."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.gateway.conftest import Serve, serve  # noqa: F401 - a fixture
from turnwire.cli.main import main
from turnwire.gateway.door.keys import hash_key
from turnwire.harness import announced

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


@pytest.mark.parametrize(
    ("arguments", "shows"),
    [
        (("explain",), "turn "),
        (("top", "--once"), "0 live"),
        (("keys", "usage"), "anonymous"),
        (("chat", "Hi."), "Hi."),
    ],
)
async def test_a_gateway_on_another_port_is_found(
    serve: Serve,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    shows: str,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("TURNWIRE_URL", raising=False)
    monkeypatch.setattr("turnwire.cli.gateway.DEFAULT_URL", "http://127.0.0.1:9")
    client = await serve({"text": "Hm.\n</think>\n\nHi."})
    await client.post("/v1/messages", BODY)
    with announced(client.base):
        told = await run(*arguments)
        named = await run(*arguments, "--url", "http://127.0.0.1:9")
    assert told.exit_code == 0, told.output
    assert f"No gateway at http://127.0.0.1:9; using the one at {client.base}.\n" in told.stderr
    assert shows in told.stdout
    assert named.exit_code != 0
    assert "using the one at" not in named.output
    told = await run(*arguments)
    assert told.exit_code != 0
    assert "using the one at" not in told.output


async def test_a_running_gateway_that_wants_a_key_is_named(
    serve: Serve,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("TURNWIRE_URL", raising=False)
    monkeypatch.setattr("turnwire.cli.gateway.DEFAULT_URL", "http://127.0.0.1:9")
    keys = tmp_path / "keys.toml"
    keys.write_text(f'[[key]]\nname = "chief"\nhash = "{hash_key("s" * 32)}"\nscopes = ["admin"]\n')
    client = await serve({"text": "Hi."}, keys=str(keys))
    with announced(client.base):
        told = await run("explain")
        let_in = await run("explain", "--key", "s" * 32)
    assert told.exit_code == 1
    assert f"{client.base}/admin/turns?limit=1 answered 401. Give a key" in told.stderr
    assert let_in.stderr.endswith(f"{client.base}.\nError: No turn has ended yet.\n")


async def test_help_names_where_the_gateway_is_looked_for() -> None:
    shown = " ".join((await run("explain", "--help")).output.split())
    assert "$TURNWIRE_URL, else http://127.0.0.1:8390, else one that runs here" in shown
    assert "$TURNWIRE_API_KEY" in shown
