"""`turnwire warm` against a real gateway: requests of every API, messages and tools alone, captures."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.gateway.conftest import Serve, serve  # noqa: F401 - a fixture
from turnwire.cli.main import main

SYSTEM = "You are an agent that looks at files. " * 60
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
FILES: dict[str, dict[str, Any]] = {
    "chat": {
        "messages": [{"role": "system", "content": SYSTEM}],
        "tools": [{"type": "function", "function": {"name": "ls", "parameters": SCHEMA}}],
    },
    "messages": {"system": SYSTEM, "tools": [{"name": "ls", "input_schema": SCHEMA}]},
    "responses": {"instructions": SYSTEM, "tools": [{"type": "function", "name": "ls", "parameters": SCHEMA}]},
}


async def run(*arguments: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, main, list(arguments), env={"COLUMNS": "160"})


@pytest.mark.parametrize("api", FILES)
async def test_a_file_is_understood_by_its_fields(serve: Serve, tmp_path: Path, api: str) -> None:  # noqa: F811
    client = await serve({"text": "Hi."})
    path = tmp_path / "scaffold.json"
    path.write_text(json.dumps(FILES[api]))
    told = await run("warm", str(path), "--url", client.base, "--model", "test-model")
    assert told.exit_code == 0, told.output
    assert "tokens of test-model: w1 read " in told.output


async def test_each_scaffold_of_a_capture_is_warmed_once(serve: Serve, tmp_path: Path) -> None:  # noqa: F811
    client = await serve({"text": "Hm.\n</think>\n\nHi."}, capture=str(tmp_path / "captures"))
    body = FILES["messages"] | {"model": "test-model", "max_tokens": 50}
    for question in ("One?", "Two?"):
        await client.post("/v1/messages", body | {"messages": [{"role": "user", "content": question}]})
    client.gateway.capturing.close()
    told = await run("warm", str(tmp_path / "captures"), "--url", client.base, "--every")
    assert told.exit_code == 0, told.output
    (line,) = told.output.splitlines()
    assert "tokens of test-model: w1 " in line


async def test_what_cannot_be_warmed_is_said(serve: Serve, tmp_path: Path) -> None:  # noqa: F811
    client = await serve({"text": "Hi."})
    path = tmp_path / "scaffold.json"
    for text, words in (("[]", "is not a JSON object"), (json.dumps(FILES["chat"] | {"model": "no"}), "no")):
        path.write_text(text)
        told = await run("warm", str(path), "--url", client.base)
        assert told.exit_code == 1
        assert words in told.output
    told = await run("warm", str(tmp_path / "nothing"), "--url", client.base)
    assert told.exit_code == 1
    assert "cannot be read" in told.output
