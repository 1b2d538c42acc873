"""One client on one family: the client compacts its conversation, and goes on from the summary.

Promise: judged as every cell is, by the prompts that the engine got. The summary must be in the prompt after it, each
later turn must begin with what was read and said before it, and whether the request for the summary itself continued
the conversation is said apart.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from tests.clients.sandbox import Sandbox
from tests.clients.serving import MODEL, Record, ServedGateway

from benchmarks.fidelity.cells import CLIENTS, pair
from benchmarks.fidelity.families import Voice
from turnwire.harness import HARNESSES, Endpoint
from turnwire.harness.session import environment, write_files

BEFORE, AFTER = "ALPHA: show the listing.", "BETA: go on."
LISTING = "for i in $(seq 1 600); do echo another line of the AL''PHA listing; done"
SUMMARY = "<summary>A listing was asked for and shown: MARK-7. " + "It went well. " * 10 + "</summary>"
STEPS = 4


class Compaction(msgspec.Struct):
    """How a client is made to compact, and words of the request in which it asks for the summary. `overflow`: it does
    so when the engine says that the prompt does not fit, and then goes on by itself; `asks_anew`: with other words than
    the user's. `files` are settings that are put over the client's own."""

    play: Callable[[Played], None]
    asks: tuple[str, ...]
    overflow: bool = False
    asks_anew: bool = False
    files: dict[str, Any] = {}


class Played:
    """A client with a home that lasts over several starts of it."""

    def __init__(self, client: str, sandbox: Sandbox, url: str, environ: dict[str, str]) -> None:
        self.client = client
        self.sandbox = sandbox
        self._url = url
        self._environ = environ
        self._home = sandbox.home / "plan"
        self._home.mkdir()

    def _started(self, arguments: tuple[str, ...]) -> tuple[tuple[str, ...], dict[str, str]]:
        harness = HARNESSES[self.client]
        endpoint = Endpoint(self._url, MODEL, "sk-test", 131072, 8192, harness.apis[0])
        plan = harness.plan(endpoint, self._home, arguments)
        write_files(plan, self._home)
        for name, content in COMPACTIONS[self.client].files.items():
            file = self._home / name
            file.write_text(json.dumps(_merged(json.loads(plan.files.get(name, "{}")), content)))
        return plan.command, environment(plan, self._environ)

    def run(self, *arguments: str) -> None:
        """Start it with these arguments and wait for its end, which must be a good one. (One that was told of an
        overflow may report it at its end although it went on.)"""
        command, env = self._started(arguments)
        done = self.sandbox.run(command, env=env, timeout=170)
        if done.code and not COMPACTIONS[self.client].overflow:
            raise RuntimeError(f"exit {done.code}: {(done.stdout + done.stderr)[-300:]}")

    @contextlib.contextmanager
    def talking(self, *arguments: str) -> Iterator[Talk]:
        """Start it and speak with it in lines of JSON."""
        command, env = self._started(arguments)
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, env=env, cwd=self.sandbox.workspace, start_new_session=True,
        )  # fmt: skip
        try:
            yield Talk(process)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    inner = {key: _merged(base.get(key) or {}, value) for key, value in over.items() if isinstance(value, dict)}
    return {**base, **over, **inner}


class Talk:
    """Lines of JSON to and from a process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._number = 0

    def send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        assert self._process.stdout is not None
        for row in self._process.stdout:
            message: dict[str, Any] = json.loads(row)
            if wanted(message):
                return message
        raise RuntimeError("the client went away")

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        """A JSON-RPC request and its result."""
        self._number += 1
        self.send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        answer = self.until(lambda message: message.get("id") == self._number and "method" not in message)
        if "error" in answer:
            raise RuntimeError(json.dumps(answer["error"]))
        return answer["result"]


# ------------------------------------------------------------------------------------------------------- the clients


def _claude(played: Played) -> None:
    for prompt, more in ((BEFORE, ()), ("/compact", ("--continue",)), (AFTER, ("--continue",))):
        played.run("-p", prompt, *more, "--dangerously-skip-permissions")


def _qwen(played: Played) -> None:
    for prompt, more in ((BEFORE, ()), ("/compress", ("--continue",)), (AFTER, ("--continue",))):
        played.run("--yolo", "-o", "text", *more, "-p", prompt)


def _codex(played: Played) -> None:
    with played.talking("app-server") as talk:
        talk.ask("initialize", {"clientInfo": {"name": "fidelity", "version": "1"}})
        talk.send({"jsonrpc": "2.0", "method": "initialized"})
        free = {"approvalPolicy": "never", "sandbox": "danger-full-access"}
        thread = talk.ask("thread/start", {"cwd": str(played.sandbox.workspace), **free})["thread"]["id"]
        for method, prompt in (("turn/start", BEFORE), ("thread/compact/start", ""), ("turn/start", AFTER)):
            said = {"input": [{"type": "text", "text": prompt}]} if prompt else {}
            talk.ask(method, {"threadId": thread, **said})
            talk.until(lambda message: message.get("method") == "turn/completed")


def _pi(played: Played) -> None:
    with played.talking("--mode", "rpc", "--thinking", "medium") as talk:
        for command in (
            {"type": "prompt", "message": BEFORE},
            {"type": "compact"},
            {"type": "prompt", "message": AFTER},
        ):
            talk.send(command)
            if command["type"] == "prompt":
                talk.until(lambda message: message["type"] == "agent_settled")
            else:
                talk.until(lambda message: message["type"] == "response" and message.get("command") == "compact")


def _opencode(played: Played) -> None:
    played.run("run", "--format", "json", BEFORE)


def _openclaw(played: Played) -> None:
    played.run("agent", "exec", "--json", "--thinking", "medium", "--timeout", "150", "--cwd", ".", BEFORE)


# OpenClaw and pi would keep the newest 20,000 tokens otherwise, which is all that there is.
COMPACTIONS = {
    "claude": Compaction(_claude, ("Respond with TEXT ONLY",)),
    "codex": Compaction(_codex, ("CONTEXT CHECKPOINT COMPACTION",)),
    "openclaw": Compaction(
        _openclaw,
        ("Summarize the",),
        overflow=True,
        files={"openclaw.json": {"agents": {"defaults": {"compaction": {"mode": "default", "keepRecentTokens": 1}}}}},
    ),
    "opencode": Compaction(_opencode, ("Here is the conversation so far",), overflow=True, asks_anew=True),
    "qwen": Compaction(_qwen, ("that summarizes a conversation", "produce the <state_snapshot>")),
    "pi": Compaction(_pi, ("[User]:",), files={"settings.json": {"compaction": {"keepRecentTokens": 1}}}),
}


# --------------------------------------------------------------------------------------------------------- the cell


def compacted(client: str, template: Path, tokenizer: Path, bundles: dict[str, Any]) -> str:
    """`held`, `held, asked apart` (the request for the summary does not begin as the conversation did), or what
    broke."""
    how, compaction = CLIENTS[client], COMPACTIONS[client]
    voice = Voice(template, tokenizer, how.shell, how.argument, how.more)
    folder = Path(tempfile.mkdtemp(prefix="turnwire-fidelity-"))
    sandbox = Sandbox(folder / "sandbox", bundles)
    code = {"PYTHONPATH": path} if (path := os.environ.get("PYTHONPATH")) else {}
    flags = (
        "--template", str(template), "--tokenizer", str(tokenizer), "--dialect", voice.dialect,
        "--seal-key-file", str(folder / "seal.key"), "--store", f"sqlite:{folder / 'turns.db'}",
    )  # fmt: skip
    gateways = [
        ServedGateway(folder / f"gateway{number}", lines, flags, sandbox.environment(**code))
        for number, lines in enumerate(_lines(voice, compaction))
    ]
    try:
        for gateway in gateways:
            gateway.start()
        first = gateways[0]
        if len(gateways) > 1:
            first.hand_over(gateways[1], after=2)
        env = sandbox.environment(TURNWIRE_API_KEY="sk-test", IS_SANDBOX="1", **code)
        compaction.play(Played(client, sandbox, first.url, env))
        return _judged([record for gateway in gateways for record in gateway.records()], how.moves)
    except (AssertionError, RuntimeError, OSError) as error:
        return f"not run: {str(error)[-300:]}"
    finally:
        for gateway in gateways:
            gateway.close()
        shutil.rmtree(folder, ignore_errors=True)


def _lines(voice: Voice, compaction: Compaction) -> list[list[dict[str, Any]]]:
    """The script of each gateway. A line is chosen by the last user text and by how many turns came before it, which
    after a compaction differs from client to client: so there are several steps, of which some may be left out."""
    listing = {"text": voice.said("A long listing.", "", LISTING)}
    steps = [{"text": voice.said(f"Step {number}.", "", f"echo BE''TA-{number}")} for number in range(STEPS)]
    steps.append({"text": voice.answered("BETA is done.")})
    summary = {"text": voice.answered(SUMMARY)}
    if compaction.overflow:
        overflow = {"text": "", "finish": "error", "error": "context_overflow", "after": 0}
        overflow |= {"message": "prompt is too long: 200001 tokens > 200000 maximum"}
        summaries = [{**summary, "match": words} for words in compaction.asks]
        if compaction.asks_anew:
            return [[*summaries, {**listing, "match": BEFORE}, {**overflow, "match": BEFORE}, *steps]]
        return [[listing, overflow], [*summaries, *steps]]
    lines = [{**step, "match": AFTER} for step in steps]
    lines += [{**summary, "match": words} for words in compaction.asks]
    lines += [{**line, "match": BEFORE} for line in (listing, {"text": voice.answered("The listing is shown.")})]
    return [[*lines, summary]]


def _judged(records: list[Record], moves: bool) -> str:
    before = [each for each in records if "listing" in each.output_text and each.request.get("tools")]
    asked = [each for each in records if "MARK-7" in each.output_text and "ALPHA" in each.prompt_text]
    after = [each for each in records if "BE''TA" in each.output_text or "BETA is done" in each.output_text]
    if not before or not asked or len(after) < 2:
        return f"not run: {len(before)} turns, {len(asked)} summaries and {len(after)} turns after them"
    if "MARK-7" not in after[0].prompt_text:
        return "broken: the summary is not in the prompt after it"
    words = [pair(one, other, moves) for one, other in pairwise(after)]
    if bad := next((word for word in words if word != "held"), None):
        return bad
    begun = before[0].prompt_text
    # Its last message and what follows that may differ.
    opening = begun[: int(0.95 * len(begun))]
    return "held" if any(each.prompt_text.startswith(opening) for each in asked) else "held, asked apart"
