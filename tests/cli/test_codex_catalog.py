"""`turnwire codex-catalog`: from profiles or from a running gateway, and never a file that Codex refuses."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from turnwire.cli.launch.codex_catalog import codex_catalog
from turnwire.profiles import codex_entry


def run(*arguments: str) -> Any:
    return CliRunner().invoke(codex_catalog, list(arguments))


def test_a_file_from_profiles(tmp_path: Path) -> None:
    target = tmp_path / "catalog.json"
    result = run(
        "--model",
        "nvidia/nemotron-3-super",
        "--model",
        "my-model",
        "--alias",
        "openai/openai/gpt-5.5",
        "--window",
        "4096",
        "-o",
        str(target),
    )
    assert result.exit_code == 0, result.output
    assert f'model_catalog_json = "{target}"' in result.output
    models = json.loads(target.read_text())["models"]
    assert [m["slug"] for m in models] == ["nvidia/nemotron-3-super", "openai/openai/gpt-5.5", "my-model"]
    assert [m["priority"] for m in models] == [1, 1, 2]
    assert {m["context_window"] for m in models} == {4096}


def test_it_prints_without_a_file() -> None:
    result = run("--model", "nvidia/nemotron-3-super")
    assert json.loads(result.stdout)["models"][0]["slug"] == "nvidia/nemotron-3-super"


@pytest.mark.parametrize("arguments", [(), ("--url", "file:///etc/hostname"), ("--url", "http://127.0.0.1:9/v1")])
def test_wrong_input_says_what_to_change(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code != 0
    assert "Traceback" not in result.output


@pytest.fixture
def served() -> Iterator[tuple[str, dict[str, Any]]]:
    state: dict[str, Any] = {"body": {}, "asked": []}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state["asked"].append((self.path, self.headers.get("Authorization")))
            data = json.dumps(state["body"]).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1", state
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_file_from_a_gateway(served: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    url, state = served
    state["body"] = {"object": "list", "data": [], "models": [codex_entry(None, "m1", window=100)]}
    target = tmp_path / "c.json"
    assert run("--url", url + "/", "--key", "k", "-o", str(target)).exit_code == 0
    assert json.loads(target.read_text())["models"][0]["slug"] == "m1"
    assert state["asked"] == [("/v1/models", "Bearer k")]


@pytest.mark.parametrize("body", [[], {"data": []}, {"models": [{"slug": "x"}]}])
def test_a_catalog_codex_would_refuse_is_not_written(
    served: tuple[str, dict[str, Any]], tmp_path: Path, body: Any
) -> None:
    url, state = served
    state["body"] = body
    target = tmp_path / "c.json"
    result = run("--url", url, "-o", str(target))
    assert result.exit_code == 1
    assert not target.exists()


BUNDLED = {
    **codex_entry(None, "gpt-5.5", window=400_000),
    "base_instructions": "You are Codex, made by its makers.",
    "truncation_policy": {"mode": "bytes", "limit": 10_000},
    "supported_reasoning_levels": [{"effort": "low", "description": "less"}],
    "default_reasoning_level": "low",
    "supports_reasoning_summaries": True,
    "a_new_field": 7,
}


@pytest.fixture
def codex(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Codex that prints its records."""
    program = tmp_path / "bin" / "codex"
    program.parent.mkdir()
    (tmp_path / "models.json").write_text(json.dumps({"models": [BUNDLED]}))
    program.write_text(f'#!/bin/sh\n[ "$*" = "debug models --bundled" ] && /bin/cat {tmp_path}/models.json\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))


def test_an_entry_like_a_record_of_codexs_own(codex: None) -> None:
    result = run("--model", "nvidia/nemotron-3-super", "--window", "4096", "--like", "gpt-5.5")
    assert result.exit_code == 0, result.output
    (entry,) = json.loads(result.stdout)["models"]
    for name in ("base_instructions", "truncation_policy", "shell_type", "apply_patch_tool_type", "a_new_field"):
        assert entry[name] == BUNDLED[name]
    assert entry["slug"] == "nvidia/nemotron-3-super"
    assert entry["context_window"] == entry["max_context_window"] == 4096
    assert entry["input_modalities"] == ["text"]


def test_a_model_without_thoughts_claims_none(codex: None) -> None:
    (entry,) = json.loads(run("--model", "my-model", "--like", "gpt-5.5").stdout)["models"]
    assert entry["supported_reasoning_levels"] == []
    assert entry["supports_reasoning_summaries"] is False
    assert entry["base_instructions"] == BUNDLED["base_instructions"]


def test_a_record_that_is_not_there_is_told(codex: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "Your Codex has no record 'gpt-9'. It has: gpt-5.5." in run("--model", "m", "--like", "gpt-9").output
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert "--like needs Codex on the PATH" in run("--model", "m", "--like", "gpt-5.5").output
