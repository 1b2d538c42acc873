"""One client on one family: the real client does the task, the gateway is restarted in the middle of it.

Promise: a cell is judged by the prompts that the engine got and by nothing that the gateway says of itself: turn N + 1
must begin with the prompt of turn N and all that was said to it, character for character.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from tests.clients.sandbox import Sandbox
from tests.clients.serving import Record, ServedGateway

from benchmarks.fidelity.families import FILE, Task, Voice, task

TURNWIRE = str(Path(sys.executable).with_name("turnwire"))
RESTART_AFTER = 3
PROMPT = "Do the four steps."


class Client(msgspec.Struct):
    """How a client is asked, the name of its shell tool and of that tool's argument, what else the tool wants, and
    whether the client moves its last message to the end of every request."""

    shell: str
    argument: str
    arguments: tuple[str, ...]
    more: dict[str, Any] = {}
    moves: bool = False


CLIENTS = {
    "claude": Client("Bash", "command", ("-p", PROMPT, "--dangerously-skip-permissions")),
    "codex": Client(
        "exec_command", "cmd",
        ("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", PROMPT),
    ),
    "openclaw": Client(
        "exec", "command",
        ("agent", "exec", "--json", "--thinking", "medium", "--timeout", "100", "--cwd", ".", PROMPT), moves=True,
    ),
    "opencode": Client("bash", "command", ("run", "--format", "json", PROMPT), {"description": "a step"}),
    "qwen": Client("run_shell_command", "command", ("--yolo", "-o", "text", PROMPT), {"is_background": False}),
    "pi": Client("bash", "command", ("-p", "--mode", "text", "--thinking", "medium", PROMPT)),
}  # fmt: skip


class Cell(msgspec.Struct):
    """What became of one client on one family. A word per feature: held, moved (the client moved a message of its own;
    what the model said came back verbatim unless said otherwise), broken, or why there is none. `stored` is the restart
    with a shared store, where seals alone were not enough; `compaction` is a run of its own."""

    client: str
    family: str
    dialect: str
    own_tokenizer: bool
    api: str = ""
    parallel: str = "not run"
    interleaved: str = "not run"
    restart: str = "not run"
    stored: str = ""
    markup: str = "not run"
    compaction: str = "not run"
    problem: str = ""


def played(client: str, family: str, template: Path, tokenizer: Path, own: bool, bundles: dict[str, Any]) -> Cell:
    """Run the task and judge every pair of turns; once more with a shared store where seals alone were not enough."""
    cell = _run(client, family, template, tokenizer, own, bundles, store=False)
    if cell.restart.startswith("broken"):
        cell.stored = _run(client, family, template, tokenizer, own, bundles, store=True).restart
    return cell


def _run(
    client: str, family: str, template: Path, tokenizer: Path, own: bool, bundles: dict[str, Any], *, store: bool
) -> Cell:
    how = CLIENTS[client]
    voice = Voice(template, tokenizer, how.shell, how.argument, how.more)
    made = task(voice)
    cell = Cell(client, family, voice.dialect, own)
    folder = Path(tempfile.mkdtemp(prefix="turnwire-fidelity-"))
    sandbox = Sandbox(folder / "sandbox", bundles)
    code = {"PYTHONPATH": path} if (path := os.environ.get("PYTHONPATH")) else {}
    flags = (
        "--template", str(template), "--tokenizer", str(tokenizer), "--dialect", voice.dialect,
        "--seal-key-file", str(folder / "seal.key"),
        "--store", f"sqlite:{folder / 'turns.db'}" if store else "memory",
    )  # fmt: skip
    lines: list[dict[str, Any]] = [{"text": "A title.", "match": "title"}] if client == "opencode" else []
    lines += [{"text": text} for text in made.lines]
    gateways = [
        ServedGateway(folder / f"gateway{number}", lines, flags, sandbox.environment(**code)) for number in (1, 2)
    ]
    try:
        before, after = (gateway.start() for gateway in gateways)
        before.hand_over(after, after=RESTART_AFTER + _side_turns(client))
        env = sandbox.environment(TURNWIRE_API_KEY="sk-test", IS_SANDBOX="1", **code)
        command = [TURNWIRE, "launch", "--url", before.url, client, "--", *how.arguments]
        done = sandbox.run(command, env=env, timeout=150)
        records = [r for gateway in gateways for r in gateway.records() if r.request.get("tools")]
        asked = before.turns()
        cell.api = asked[-1].path.rsplit("/v1/")[-1] if asked else ""
        _judge(cell, records, made)
        written = sandbox.workspace / FILE
        text = written.read_text() if written.exists() else ""
        if text != made.markup + "\n":
            cell.markup = "broken: the file is not what the model wrote"
        if done.code != 0 or "four steps are done" not in done.stdout:
            cell.problem = f"exit {done.code}: {(done.stdout + done.stderr)[-300:]}"
    except (AssertionError, RuntimeError, OSError) as error:
        cell.problem = str(error)[-300:]
    finally:
        for gateway in gateways:
            gateway.close()
        shutil.rmtree(folder, ignore_errors=True)
    return cell


def _side_turns(client: str) -> int:
    """Turns beside the conversation that a client asks for before its second."""
    return 1 if client == "opencode" else 0


def _judge(cell: Cell, records: list[Record], made: Task) -> None:
    found = [pair(one, other, CLIENTS[cell.client].moves) for one, other in pairwise(records)]
    words = dict(
        zip(("parallel", "interleaved", "restart", "markup", "rest"), [*found, *["not run"] * 5], strict=False)
    )
    cell.parallel, cell.restart = words["parallel"], words["restart"]
    cell.markup = words["markup"] if words["markup"] != "held" else words["rest"]
    if cell.parallel == "held" and not made.parallel:
        cell.parallel = "held, one call a turn"
    cell.interleaved = (
        words["interleaved"] if made.interleaves else ("no such form" if made.thinks else "does not think")
    )


def pair(before: Record, after: Record, moves: bool) -> str:
    """What became of what was read and said `before`: held, moved, or where it broke."""
    whole = before.prompt_text + before.output_text
    if after.prompt_text.startswith(whole):
        return "held"
    at = next((i for i, (a, b) in enumerate(zip(whole, after.prompt_text, strict=False)) if a != b), 0)
    if moves and at < len(before.prompt_text) and before.prompt_text[at : at + 80] in after.prompt_text[at:]:
        verbatim = before.output_text.strip() in after.prompt_text[at:]
        return "moved" if verbatim else "moved, and what was said is not as it was"
    where = "what was said" if at >= len(before.prompt_text) else "the prompt before"
    return f"broken in {where}: {after.prompt_text[at - 20 : at + 30]!r} for {whole[at - 20 : at + 30]!r}"
