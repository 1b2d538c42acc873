"""What each real client does to a turn before it sends it back; docs/fidelity.md has this table in words."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from .conftest import Serve
from .outputs import call, line, thought
from .sandbox import Sandbox
from .serving import prefix_held
from .wiretap import Exchange

TURNWIRE = str(Path(sys.executable).with_name("turnwire"))
PROMPT = "Do the steps."
COMMAND = "echo caf\u00e9 \\\n  one  "
# A whole number with a point, and an integer that JavaScript cannot hold.
POINT, LARGE = "50000.0", "12345678901234567890"
ROUNDED = "12345678901234567000"


class Seen(NamedTuple):
    """A turn as it came back: the arguments' first key (the model wrote the number first), the two numbers, the
    thoughts' words, and whether seals came too."""

    first: str
    point: str
    large: str
    thoughts: str
    seals: bool


@dataclass(frozen=True)
class Client:
    """How it is asked, its shell tool with the names of its arguments, and what comes back."""

    arguments: tuple[str, ...]
    shell: str
    command: str
    number: str
    seen: Seen
    more: tuple[tuple[str, Any], ...] = ()


CLIENTS = {
    "claude": Client(
        ("-p", PROMPT, "--dangerously-skip-permissions"), "Bash", "command", "timeout",
        Seen("command", "50000", ROUNDED, "", seals=True),
    ),
    "codex": Client(
        ("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", PROMPT),
        "exec_command", "cmd", "yield_time_ms",
        Seen("yield_time_ms", POINT, LARGE, "First.Second.", seals=True),
    ),
    "opencode": Client(
        ("run", "--format", "json", PROMPT), "bash", "command", "timeout",
        Seen("timeout", "50000", ROUNDED, "First.Second.", seals=False), (("description", "a step"),),
    ),
    "qwen": Client(
        ("--yolo", "-o", "text", PROMPT), "run_shell_command", "command", "timeout",
        Seen("timeout", "50000", ROUNDED, "First.Second.", seals=False), (("is_background", False),),
    ),
    "pi": Client(
        ("-p", "--mode", "text", "--thinking", "medium", PROMPT), "bash", "command", "timeout",
        Seen("timeout", "50000", ROUNDED, "", seals=True),
    ),
    "openclaw": Client(
        ("agent", "exec", "--json", "--thinking", "medium", "--timeout", "100", "--cwd", ".", PROMPT),
        "exec", "command", "timeout",
        Seen("timeout", POINT, LARGE, "First.Second.", seals=True),
    ),
}  # fmt: skip


def seen(exchange: Exchange, number: str) -> Seen:
    """What a request says of the two turns before it; numbers as they are written."""
    as_written: dict[str, Any] = {"parse_int": str, "parse_float": str}
    body = json.loads(exchange.body, **as_written)
    calls: list[dict[str, str]] = []
    thoughts = ""
    for message in body.get("messages", []):
        if message["role"] != "assistant":
            continue
        for block in message["content"] if isinstance(message["content"], list) else []:
            thoughts += block.get("thinking", "")
            if block["type"] == "tool_use":
                calls.append(block["input"])
        thoughts += message.get("reasoning_content") or ""
        made = message.get("tool_calls") or []
        calls += [json.loads(each["function"]["arguments"], **as_written) for each in made]
    for item in body.get("input", []):
        if item.get("type") == "reasoning":
            thoughts += "".join(part["text"] for part in item["summary"])
        if item.get("type") == "function_call":
            calls.append(json.loads(item["arguments"], **as_written))
    first, second = calls
    sealed = '"tw1.' in exchange.body.decode().replace('": "', '":"')
    return Seen(next(iter(first)), first[number], second[number], "".join(thoughts.split()), sealed)


@pytest.mark.parametrize("name", CLIENTS)
def test_what_a_client_does_to_a_turn(serve: Serve, sandbox: Sandbox, name: str) -> None:
    client = CLIENTS[name]
    more = dict(client.more)
    gateway = serve(
        line(
            thought("First."),
            "I begin.",
            call(client.shell, **{client.number: POINT, client.command: COMMAND, **more}),
        ),
        line(thought("Second."), call(client.shell, **{client.number: LARGE, client.command: "echo two", **more})),
        line(thought("Done."), "The steps are done."),
    )
    code = {"PYTHONPATH": path} if (path := os.environ.get("PYTHONPATH")) else {}
    env = sandbox.environment(TURNWIRE_API_KEY="sk-test", IS_SANDBOX="1", **code)
    done = sandbox.run([TURNWIRE, "launch", "--url", gateway.url, name, "--", *client.arguments], env=env, timeout=150)
    assert "The steps are done." in done.stdout, str(done)
    *_, last = [exchange for exchange in gateway.turns() if exchange.json.get("tools")]
    assert seen(last, client.number) == client.seen
    if name != "openclaw":  # which moves a message of its own
        prefix_held([record for record in gateway.records() if record.request.get("tools")])
