"""`turnwire launch` without a client: what is asked of the gateway, what is planned, what is printed, what is run."""

from __future__ import annotations

import json
import os
import re
import stat
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from turnwire.cli.launch.command import launch
from turnwire.cli.launch.up import up
from turnwire.harness import (
    HARNESSES,
    KEY_VARIABLE,
    DiscoveryError,
    Endpoint,
    ListedModel,
    announced,
    find_gateway,
    running_gateways,
    served_models,
    shell_script,
)
from turnwire.harness.session import environment, write_files

MODELS = {
    "object": "list",
    "data": [
        {"id": "maker/model-one", "owned_by": "turnwire", "max_model_len": 65536, "max_output_tokens": 4096},
        {"id": "plain", "owned_by": "turnwire", "roles": ["haiku", "subagent"], "hosted_tools": ["web_search"]},
    ],
}


class Listing(BaseHTTPRequestHandler):
    """A gateway that only lists its models and wants the key `right`."""

    def do_GET(self) -> None:
        allowed = self.headers["authorization"] == "Bearer right"
        body = json.dumps(MODELS if allowed else {"error": {"message": "no"}}).encode()
        self.send_response(200 if allowed else 401)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def listing() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Listing)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def endpoint(api: str) -> Endpoint:
    return Endpoint("http://127.0.0.1:8390", "maker/model-one", "s3cret-key", 65536, 4096, api)


EVERY = [(harness, api) for harness in HARNESSES.values() for api in harness.apis]


@pytest.mark.parametrize(("harness", "api"), EVERY, ids=lambda value: getattr(value, "name", value))
def test_a_plan_names_gateway_model_and_window(harness, api, tmp_path):
    plan = harness.plan(endpoint(api), tmp_path, ("one", "two words"))
    everything = " ".join([*plan.command, *plan.env.values(), *plan.files.values()])
    assert "http://127.0.0.1:8390" in everything
    assert "maker/model-one" in everything
    assert plan.command[0] == harness.command
    assert plan.command[-2:] == ("one", "two words")
    if harness.name != "codex":  # Codex reads its window from the served catalog
        assert "65536" in everything


@pytest.mark.parametrize(("harness", "api"), EVERY, ids=lambda value: getattr(value, "name", value))
def test_the_key_is_in_no_file_and_in_no_script(harness, api, tmp_path):
    plan = harness.plan(endpoint(api), tmp_path, ())
    assert "s3cret-key" in plan.env.values()
    assert not any("s3cret-key" in text for text in plan.files.values())
    assert "s3cret-key" not in shell_script(plan, tmp_path, "s3cret-key")


def test_codex_reads_the_served_catalog_by_command_auth(tmp_path):
    plan = HARNESSES["codex"].plan(endpoint("responses"), tmp_path, ())
    config = tomllib.loads(plan.files["config.toml"])
    provider = config["model_providers"][config["model_provider"]]
    assert provider["name"].lower() not in ("openai", "azure")
    assert provider["base_url"] == "http://127.0.0.1:8390/v1"
    assert provider["auth"]["args"] == ["-c", f'printf %s "${KEY_VARIABLE}"']
    assert "env_key" not in provider


LAYERED = [(harness, api) for harness, api in EVERY if harness.layered is not None]


@pytest.mark.parametrize(("harness", "api"), LAYERED, ids=lambda value: getattr(value, "name", value))
def test_a_layered_plan_leaves_the_users_own_folders_alone(harness, api, tmp_path):
    plan = harness.layered(endpoint(api), tmp_path, ("one",))
    everything = " ".join([*plan.command, *plan.env.values(), *plan.files.values()])
    assert "http://127.0.0.1:8390" in everything
    assert "maker/model-one" in everything
    assert "s3cret-key" not in " ".join([*plan.command, *plan.files.values()])
    own = {"CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"}
    assert not own & set(plan.env)


def test_every_tier_gets_the_model_of_its_role(tmp_path):
    roles = {"opus": "big", "haiku": "small", "subagent": "middle", "review": "judge"}
    known = replace(endpoint("messages"), roles=roles)
    env = HARNESSES["claude"].layered(known, tmp_path, ()).env
    assert env["ANTHROPIC_DEFAULT_OPUS_MODEL"] == "big"
    assert env["ANTHROPIC_DEFAULT_SONNET_MODEL"] == "maker/model-one"
    assert env["ANTHROPIC_DEFAULT_HAIKU_MODEL"] == env["ANTHROPIC_SMALL_FAST_MODEL"] == "small"
    assert env["CLAUDE_CODE_SUBAGENT_MODEL"] == "middle"
    searching = replace(endpoint("responses"), roles=roles, searches=True)
    codex = HARNESSES["codex"].layered(searching, tmp_path, ())
    assert 'review_model="judge"' in codex.command
    assert 'web_search="live"' in codex.command


def test_codex_overrides_are_the_config_of_its_own_home(tmp_path):
    plan = HARNESSES["codex"].layered(endpoint("responses"), tmp_path, ())
    said = tomllib.loads("\n".join(value for flag, value in pairwise(plan.command) if flag == "-c"))
    apart = tomllib.loads(HARNESSES["codex"].plan(endpoint("responses"), tmp_path, ()).files["config.toml"])
    for name in ("model", "model_provider", "model_providers", "web_search"):
        assert said[name] == apart[name]


def test_files_are_for_their_owner_only_and_unset_variables_are_gone(tmp_path):
    plan = HARNESSES["claude"].plan(endpoint("messages"), tmp_path / "home", ())
    write_files(plan, tmp_path / "home")
    for name in plan.files:
        assert stat.S_IMODE((tmp_path / "home" / name).stat().st_mode) == 0o600
    env = environment(plan, {"ANTHROPIC_API_KEY": "mine", "PATH": "/bin"})
    assert "ANTHROPIC_API_KEY" not in env
    assert env["PATH"] == "/bin"


def run(*arguments: str):
    return CliRunner().invoke(launch, list(arguments))


def test_print_shows_a_script_and_runs_nothing(listing, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    result = run("--url", f"{listing}/v1/", "--key", "right", "--print", "claude", "--", "-p", "say it's done")
    assert result.exit_code == 0, result.output
    assert f"export ANTHROPIC_BASE_URL={listing}\n" in result.output
    assert "export CLAUDE_CODE_MAX_CONTEXT_TOKENS=65536\n" in result.output
    assert """--exclude-dynamic-system-prompt-sections -p 'say it'"'"'s done' "$@\"""" in result.output
    assert "CLAUDE_CONFIG_DIR" not in result.output
    apart = run("--url", listing, "--key", "right", "--fresh", "--print", "claude")
    assert "export CLAUDE_CONFIG_DIR=" in apart.output


def test_the_client_gets_arguments_variables_and_a_folder_that_is_gone_afterwards(listing, tmp_path, monkeypatch):
    seen = tmp_path / "seen"
    client = tmp_path / "bin" / "pi"
    client.parent.mkdir()
    client.write_text(
        f'#!/bin/sh\n{{ printf "%s\\n" "$@"; echo "dir=$PI_CODING_AGENT_DIR"\n'
        f'cat "$PI_CODING_AGENT_DIR/models.json"; }} > {seen}\nexit 7\n'
    )
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{client.parent}{os.pathsep}{os.environ['PATH']}")
    result = run("--url", listing, "--key", "right", "--api", "messages", "pi", "-p", "--mode", "text", "hello there")
    assert result.exit_code == 7, result.output
    text = seen.read_text()
    assert text.startswith("--model\nturnwire/maker/model-one\n-p\n--mode\ntext\nhello there\n")
    assert "anthropic-messages" in text
    folder = re.search("dir=(.*)", text)
    assert folder
    assert not Path(folder[1]).exists()


def test_a_named_home_is_kept(listing, tmp_path, monkeypatch):
    client = tmp_path / "qwen"
    client.write_text("#!/bin/sh\ntouch $QWEN_HOME/session\n")
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    result = run("--url", listing, "--key", "right", "--home", str(tmp_path / "kept"), "qwen")
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["session", "settings.json"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--key", "wrong", "claude"], "answered 401. Give its key"),
        (["--key", "right", "--model", "nope", "claude"], "does not serve 'nope'. It serves: maker/model-one, plain"),
        (["--key", "right", "--api", "chat", "claude"], "claude speaks only: messages"),
        (["--key", "right", "pi"], "`pi` is not on the PATH. Install it with: npm install -g"),
    ],
)
def test_wrong_input_is_answered_with_what_to_change(listing, tmp_path, monkeypatch, arguments, says):
    monkeypatch.setenv("PATH", str(tmp_path))
    result = run("--url", listing, *arguments)
    assert result.exit_code == 1
    assert says in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize("option", ["--url", "--url=x", "--key", "--home", "--fresh"])
def test_an_option_after_the_client_is_told_where_it_belongs(tmp_path, monkeypatch, option):
    client = tmp_path / "claude"
    client.write_text("#!/bin/sh\n")
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    result = run("claude", option, "x")
    assert result.exit_code == 2
    assert f"{option.partition('=')[0]} is an option of launch: put it before claude" in result.output


def test_what_follows_two_dashes_is_the_clients_own(listing, tmp_path, monkeypatch):
    client, seen = tmp_path / "pi", tmp_path / "seen"
    client.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {seen}\n')
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    result = run("--url", listing, "--key", "right", "pi", "--", "--url", "x")
    assert result.exit_code == 0, result.output
    assert seen.read_text().endswith("--url\nx\n")


def test_another_server_is_told_from_a_gateway(listing, monkeypatch):
    monkeypatch.setitem(MODELS, "data", [{"id": "m", "owned_by": "vllm"}])
    result = run("--url", listing, "--key", "right", "claude")
    assert result.exit_code == 1
    said = " ".join(result.output.split())
    assert "is not a Turnwire gateway: its models are owned by vllm." in said
    assert f"with `turnwire serve --engine {listing}`" in said


def test_a_gateway_on_another_port_is_found(listing, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("turnwire.cli.gateway.DEFAULT_URL", "http://127.0.0.1:9")
    gone = tmp_path / "turnwire" / "gateways" / "999999999.json"
    with announced(listing):
        gone.write_text('{"url": "http://127.0.0.1:9"}')
        assert running_gateways() == [listing]
        result = run("--key", "right", "--print", "codex")
    assert f"using the one at {listing}" in result.output
    assert f"{listing}/v1" in result.output
    assert running_gateways() == []
    assert not gone.exists()


def test_a_small_window_is_told_with_a_model_that_has_room(listing, monkeypatch):
    small = {"id": "tiny", "owned_by": "turnwire", "max_model_len": 8192, "roles": ["default"]}
    monkeypatch.setitem(MODELS, "data", [*MODELS["data"], small])
    result = run("--url", listing, "--key", "right", "--print", "claude")
    assert "tiny has a window of 8192 tokens" in result.output
    assert "take --model maker/model-one" in result.output


def test_up_starts_a_gateway_runs_the_client_and_stops_it(tmp_path, monkeypatch):
    script = tmp_path / "script.jsonl"
    script.write_text('{"text": "Hello."}\n')
    client = tmp_path / "bin" / "pi"
    client.parent.mkdir()
    client.write_text(f'#!/bin/sh\ncat "$PI_CODING_AGENT_DIR/models.json" > {tmp_path}/seen\nexit 3\n')
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{client.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    result = CliRunner().invoke(up, ["--engine", f"scripted:{script}", "--model", "test-model", "pi", "hello"])
    assert result.exit_code == 3, result.output
    url = json.loads((tmp_path / "seen").read_text())["providers"]["turnwire"]["baseUrl"]
    assert running_gateways() == []
    with pytest.raises(DiscoveryError):
        served_models(url.removesuffix("/v1"), "local")


def test_up_says_why_a_gateway_does_not_start(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    result = CliRunner().invoke(up, ["--engine", f"scripted:{tmp_path}/none.jsonl", "pi"])
    assert result.exit_code == 1
    assert "The gateway did not start" in result.output
    assert "none.jsonl" in result.output


def test_no_gateway_is_said_so():
    result = run("--url", "http://127.0.0.1:9", "claude")
    assert result.exit_code == 1
    assert "Start one with `turnwire serve`" in result.output
    assert "not an http address" in run("--url", "ftp://x", "claude").output


def test_of_gateways_that_do_not_answer_the_one_that_wants_a_key_is_named(listing):
    with pytest.raises(DiscoveryError, match=rf"{listing}/v1/models answered 401.*--key or TURNWIRE_API_KEY"):
        find_gateway("http://127.0.0.1:9", "wrong", [listing])


def test_a_gateway_that_tells_no_sizes_gets_careful_ones(listing):
    from turnwire.harness import served_models

    assert served_models(listing, "right") == [
        ListedModel("maker/model-one", 65536, 4096),
        ListedModel("plain", 32768, 8192, ("haiku", "subagent"), ("web_search",)),
    ]
