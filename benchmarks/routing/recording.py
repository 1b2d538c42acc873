"""Sessions of real clients, captured to be played in the simulation: prompts, tools and waits are theirs, the model's
words are a script's.

Promise: what is kept of them is a trace (lengths and times). Claude Code lets eight agents work at once; Codex works
alone.

    python -m benchmarks.routing.recording FOLDER
"""

from __future__ import annotations

import os
import random
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec
from tests.clients.outputs import call, line, thought
from tests.clients.sandbox import Sandbox
from tests.clients.serving import ServedGateway

from benchmarks.commands.fidelity import installed
from benchmarks.routing.traces import FOLDER, Trace, traced
from turnwire.engines.captured.files import load_capture

TURNWIRE = str(Path(sys.executable).with_name("turnwire"))
AGENTS = 8
_WORDS = ("the", "table", "names", "each", "worker", "its", "cache", "and", "what", "was", "read", "before")


def _step(dice: random.Random, shell: str, argument: str, last: int, **more: Any) -> dict[str, Any]:
    """A thought and a command that takes a while and prints some lines."""
    seconds, lines = round(dice.uniform(0.2, 3.0), 1), int(min(dice.lognormvariate(4.5, 1.0), last))
    told = " ".join(dice.choices(_WORDS, k=int(min(dice.lognormvariate(4.5, 0.6), 400))))
    code = f"import time; time.sleep({seconds}); [print('row', n, n * n) for n in range({lines})]"
    return line(thought(told), call(shell, **{argument: f'python3 -c "{code}"'}), **more)


def claude_lines() -> list[dict[str, Any]]:
    """What the model says to Claude Code: five steps, eight agents of three steps each, eight steps."""
    dice = random.Random("claude")
    lines = [_step(dice, "Bash", "command", 600, match="MISSION") for _ in range(3)]
    lines.append(line(thought("That is all."), "The part is looked through.", match="MISSION"))
    lines += [_step(dice, "Bash", "command", 1500) for _ in range(5)]
    agents = [
        call("Agent", description=f"Part {n}", prompt=f"MISSION {n}: look", subagent_type="general-purpose")
        for n in range(AGENTS)
    ]
    lines.append(line(thought("Eight parts, so eight agents."), *agents))
    lines += [_step(dice, "Bash", "command", 1500) for _ in range(8)]
    return [*lines, line(thought("Done."), "All is done.")]


def codex_lines() -> list[dict[str, Any]]:
    """What the model says to Codex: fourteen steps."""
    dice = random.Random("codex")
    return [
        *(_step(dice, "exec_command", "cmd", 1500) for _ in range(14)),
        line(thought("Done."), "All is done."),
    ]


CLIENTS: dict[str, tuple[list[dict[str, Any]], tuple[str, ...]]] = {
    "claude": (claude_lines(), ("-p", "Look through the parts.", "--dangerously-skip-permissions")),
    "codex": (
        codex_lines(),
        ("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "Look through the parts."),
    ),
}


def record(client: str, folder: Path, bundles: dict[str, Any], version: str) -> Trace:
    """Run a client's session, captured below `folder`."""
    lines, arguments = CLIENTS[client]
    sandbox = Sandbox(folder / client / "sandbox", bundles)
    code = {"PYTHONPATH": path} if (path := os.environ.get("PYTHONPATH")) else {}
    gateway = ServedGateway(folder / client / "gateway", lines, (), sandbox.environment(**code)).start()
    try:
        env = sandbox.environment(TURNWIRE_API_KEY="sk-test", IS_SANDBOX="1", CLAUDE_CODE_GATEWAY_HINT_HEADERS="1")
        command = [TURNWIRE, "launch", "--url", gateway.url, client, "--", *arguments]
        done = sandbox.run(command, env=env | code, timeout=400)
        if done.code or "All is done." not in done.stdout:
            raise SystemExit(f"{client} did not end its session: {done}")
    finally:
        gateway.close()
    return traced(load_capture(str(gateway.captures)).turns, f"{client}-{version}")


def main(folder: Path) -> None:
    bundles, versions = installed()
    for client in CLIENTS:
        shutil.rmtree(folder / client, ignore_errors=True)
        trace = record(client, folder, bundles, versions[client])
        FOLDER.mkdir(exist_ok=True)
        path = FOLDER / f"{client}.json"
        path.write_bytes(msgspec.json.format(msgspec.json.encode(trace), indent=1) + b"\n")
        for conversation in trace.conversations:
            first, last = conversation.turns[0], conversation.turns[-1]
            print(
                f"{conversation.kind} shared {conversation.shared} turns {len(conversation.turns)} "
                f"prompts {first.prompt} to {last.prompt} waits {sum(turn.wait for turn in conversation.turns):.1f} s"
            )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
