"""pi, Qwen Code, opencode and OpenClaw on all three APIs: a tool task, started by `turnwire launch` itself."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from turnwire.harness import HARNESSES, Endpoint
from turnwire.harness.session import write_files

from .conftest import Serve
from .outputs import call, line, thought
from .sandbox import Finished, Sandbox
from .serving import Record, ServedGateway, prefix_held

TURNWIRE = str(Path(sys.executable).with_name("turnwire"))
APIS = ["messages", "responses", "chat"]


def launch(
    sandbox: Sandbox, gateway: ServedGateway, client: str, *arguments: str, api: str = "", timeout: float = 120
) -> Finished:
    chosen = ["--api", api] if api else []
    code = {"PYTHONPATH": path} if (path := os.environ.get("PYTHONPATH")) else {}
    env = sandbox.environment(TURNWIRE_API_KEY="sk-test", IS_SANDBOX="1", **code)
    command = [TURNWIRE, "launch", "--url", gateway.url, *chosen, client, "--", *arguments]
    return sandbox.run(command, env=env, timeout=timeout)


def task(tool: str, **arguments: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    return (
        line(thought("The user wants a greeting."), call(tool, **arguments)),
        line(thought("It printed hello."), "The command printed hello."),
    )


def conversation(gateway: ServedGateway) -> list[Record]:
    """The turns of the conversation itself: those that were offered tools."""
    return [record for record in gateway.records(2) if record.request.get("tools")]


@pytest.mark.parametrize("api", APIS)
def test_pi(serve: Serve, sandbox: Sandbox, api: str) -> None:
    gateway = serve(*task("bash", command="echo he''llo"))
    done = launch(sandbox, gateway, "pi", "-p", "--mode", "text", "--thinking", "medium", "Run echo hello", api=api)
    assert done.code == 0, str(done)
    assert "The command printed hello." in done.stdout
    assert "hello" in json.dumps(gateway.turns()[1].json)
    prefix_held(conversation(gateway))


@pytest.mark.parametrize("api", APIS)
def test_qwen_code(serve: Serve, sandbox: Sandbox, api: str) -> None:
    gateway = serve(*task("run_shell_command", command="echo he''llo", is_background=False))
    done = launch(sandbox, gateway, "qwen", "--yolo", "-o", "text", "Run echo hello", api=api)
    assert done.code == 0, str(done)
    assert "The command printed hello." in done.stdout
    prefix_held(conversation(gateway))


@pytest.mark.parametrize("api", APIS)
def test_opencode(serve: Serve, sandbox: Sandbox, api: str) -> None:
    gateway = serve(
        line(thought("A title."), "Greeting", match="title"), *task("bash", command="echo he''llo", description="say")
    )
    done = launch(sandbox, gateway, "opencode", "run", "--format", "json", "Run echo hello", api=api)
    assert done.code == 0, str(done)
    assert "The command printed hello." in done.stdout
    prefix_held(conversation(gateway))


@pytest.mark.parametrize("form", ["", "delta"])
def test_opencode_with_dispatch(serve: Serve, sandbox: Sandbox, form: str) -> None:
    """opencode breaks on events it does not know: it gets none unasked, and the safe form when it asks for that."""
    gateway = serve(
        line(thought("A title."), "Greeting", match="title"), *task("bash", command="echo he''llo", description="say")
    )
    endpoint = Endpoint(gateway.url, gateway.model, "sk-test", 131072, 8192, "chat")
    home = sandbox.home / "opencode"
    plan = HARNESSES["opencode"].plan(endpoint, home, ("run", "--format", "json", "Run echo hello"))
    config = json.loads(plan.files["opencode.json"])
    config["provider"]["turnwire"]["options"]["headers"] = {"x-turnwire-dispatch": form} if form else {}
    write_files(replace(plan, files={"opencode.json": json.dumps(config)}), home)
    done = sandbox.run(plan.command, env=sandbox.environment(**plan.env), timeout=120)
    assert done.code == 0, str(done)
    assert "The command printed hello." in done.stdout
    sent = next(e for e in gateway.turns() if e.json.get("tools")).events
    assert not [event for event in sent if event.event]
    assert any("dispatch" in json.dumps(event.data) for event in sent) == bool(form)


@pytest.mark.parametrize("api", APIS)
def test_openclaw(serve: Serve, sandbox: Sandbox, api: str) -> None:
    gateway = serve(*task("exec", command="echo he''llo"))
    arguments = ("agent", "exec", "--json", "--thinking", "medium", "--timeout", "100", "--cwd", str(sandbox.workspace))
    done = launch(sandbox, gateway, "openclaw", *arguments, "Run echo hello", api=api, timeout=150)
    assert done.code == 0, str(done)
    assert json.loads(done.stdout[done.stdout.index("{\n") :])["final"] == "The command printed hello."
    first, second = conversation(gateway)
    # OpenClaw moves its last user message to the end of every request: all before it must hold.
    moved = first.prompt_text.rindex("<|im_start|>user\n")
    assert second.prompt_text.startswith(first.prompt_text[:moved])
    assert second.prefix.startswith("held") or "cause=message_moved" in second.prefix
    if api != "chat":
        assert first.output_text.split("</think>")[0].strip() in second.prompt_text


def test_launch_claude(serve: Serve, sandbox: Sandbox) -> None:
    gateway = serve(*task("Bash", command="echo he''llo"))
    done = launch(sandbox, gateway, "claude", "-p", "Run echo hello", "--dangerously-skip-permissions")
    assert done.code == 0, str(done)
    assert done.stdout.strip() == "The command printed hello."
    # The recommended switches arrived: no attribution block, hints in the headers.
    request = gateway.turns()[0]
    assert "x-anthropic-billing-header" not in request.body.decode()
    assert request.headers["x-claude-code-request-class"] == "main"
    prefix_held(gateway.records(2))


def test_launch_codex(serve: Serve, sandbox: Sandbox) -> None:
    gateway = serve(*task("exec_command", cmd="echo he''llo"))
    bypass = ("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
    done = launch(sandbox, gateway, "codex", *bypass, "Run echo hello")
    assert done.code == 0, str(done)
    assert "The command printed hello." in done.stdout
    assert "Model metadata" not in done.stdout + done.stderr, "Codex did not take the served catalog"
    prefix_held(gateway.records(2))


def test_launch_claude_keeps_the_users_own_hooks_and_history(serve: Serve, sandbox: Sandbox) -> None:
    gateway = serve(*task("Bash", command="echo he''llo"), line(thought("Again."), "As I said: hello."))
    ran = sandbox.home / "hook-ran"
    hook = {"hooks": [{"type": "command", "command": f"touch {ran}"}]}
    own = {"hooks": {"UserPromptSubmit": [hook]}, "env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}}
    (sandbox.home / ".claude").mkdir()
    (sandbox.home / ".claude" / "settings.json").write_text(json.dumps(own))
    done = launch(sandbox, gateway, "claude", "-p", "Run echo hello", "--dangerously-skip-permissions")
    assert done.stdout.strip() == "The command printed hello.", str(done)
    assert ran.exists()
    again = launch(sandbox, gateway, "claude", "-p", "Say it again", "--continue", "--dangerously-skip-permissions")
    assert again.stdout.strip() == "As I said: hello.", str(again)
    prefix_held(gateway.records(3))
    assert json.loads((sandbox.home / ".claude" / "settings.json").read_text()) == own


def test_launch_codex_keeps_the_users_own_config_and_sessions(serve: Serve, sandbox: Sandbox) -> None:
    gateway = serve(*task("exec_command", cmd="echo he''llo"), line(thought("Again."), "As I said: hello."))
    home = sandbox.home / ".codex"
    home.mkdir()
    config = 'model = "gpt-5.5"\nmodel_provider = "openai"\ndeveloper_instructions = "Mind the gap."\n'
    (home / "config.toml").write_text(config)
    bypass = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
    done = launch(sandbox, gateway, "codex", "exec", *bypass, "Run echo hello")
    assert "The command printed hello." in done.stdout, str(done)
    assert "Model metadata" not in done.stdout + done.stderr, "Codex did not take the served catalog"
    assert "Mind the gap." in gateway.turns()[0].body.decode()
    again = launch(sandbox, gateway, "codex", "exec", "resume", "--last", *bypass, "Say it again")
    assert "As I said: hello." in again.stdout, str(again)
    prefix_held(gateway.records(3))
    assert (home / "config.toml").read_text().startswith(config)
