"""Rules of real clients: each works through a tool call to its answer, with its own requests.

Promise: a client has a folder and a home of its own and may run nothing but what changes nothing (`echo`, a read-only
sandbox), since the server that is judged decides what it runs. What is not installed is unknown.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from turnwire.conformance.probe import Probe, Verdict
from turnwire.conformance.programs import execute
from turnwire.conformance.relay import Relay, relayed
from turnwire.conformance.scenes import PRINTED, SCENES
from turnwire.conformance.words import Finding, clipped

__all__ = ["CLAUDE_CODE", "CODEX", "Client", "claude_code", "codex"]

_SECONDS = 180.0
_KEPT = 200_000


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """A client program. In the command, the environment and the texts of `files` (written below its home) are {url},
    {home}, {model}, {key} and {prompt}. `scene` is what the model says to it."""

    title: str
    scene: str
    command: tuple[str, ...]
    environment: dict[str, str]
    files: dict[str, str] = {}


CLAUDE_CODE = Client(
    title="Claude Code",
    scene="claude",
    command=("claude", "-p", "{prompt}", "--output-format", "json", "--allowedTools", "Bash(echo:*)"),
    environment={
        "CLAUDE_CONFIG_DIR": "{home}/.claude",
        "ANTHROPIC_BASE_URL": "{url}",
        "ANTHROPIC_AUTH_TOKEN": "{key}",
        "ANTHROPIC_MODEL": "{model}",
        "ANTHROPIC_SMALL_FAST_MODEL": "{model}",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "2",
    },
)
# Without its hosted search, which a server of one's own does not have.
CODEX = Client(
    title="Codex",
    scene="codex",
    command=("codex", "exec", "--skip-git-repo-check", "--json", "{prompt}"),
    environment={"CODEX_HOME": "{home}", "JUDGED_KEY": "{key}"},
    files={
        "config.toml": """\
model = "{model}"
model_provider = "judged"
approval_policy = "never"
sandbox_mode = "read-only"
check_for_update_on_startup = false
web_search = "disabled"
[analytics]
enabled = false
[model_providers.judged]
name = "judged"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "JUDGED_KEY"
request_max_retries = 2
stream_max_retries = 2
"""
    },
)


async def claude_code(probe: Probe) -> Finding:
    return await _judged(probe, CLAUDE_CODE)


async def codex(probe: Probe) -> Finding:
    return await _judged(probe, CODEX)


async def _judged(probe: Probe, client: Client) -> Finding:
    program = shutil.which(client.command[0])
    if program is None:
        raise Verdict("unknown", f"{client.command[0]} is not on the path")
    stand_in = probe.stand_in
    heard = len(stand_in.heard()) if stand_in is not None else 0

    def before(path: str, body: dict[str, Any]) -> None:
        if stand_in is not None:
            # Requests without tools are a client's own errands: a title, a check of the connection.
            scene = client.scene if body.get("tools") else "answer"
            stand_in.play(scene, int(_printed(body)))

    async with relayed(probe.wire.url, before) as relay:
        status, said = await _run(probe, client, program, relay.url)
        prompts = stand_in.heard()[heard:] if stand_in is not None else []
        return _finding(probe, client, relay, status, said, prompts)


async def _run(probe: Probe, client: Client, program: str, url: str) -> tuple[int | None, str]:
    with tempfile.TemporaryDirectory(prefix="turnwire-client-") as scratch:
        home, folder = Path(scratch) / "home", Path(scratch) / "work"
        home.mkdir()
        folder.mkdir()
        words = {
            "{url}": url,
            "{home}": str(home),
            "{model}": probe.model,
            "{key}": probe.wire.key or "none",
            "{prompt}": SCENES[client.scene].question,
        }
        for name, text in client.files.items():
            (home / name).write_text(_filled(text, words), encoding="utf-8")
        environment = {
            name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "TMPDIR", "SSL_CERT_FILE")
        }
        environment |= {"HOME": str(home), "NO_PROXY": "127.0.0.1,localhost", "TERM": "dumb"}
        environment |= {name: _filled(value, words) for name, value in client.environment.items()}
        command = [program, *(_filled(part, words) for part in client.command[1:])]
        return await execute(command, folder, environment, _SECONDS, _KEPT)


def _finding(
    probe: Probe, client: Client, relay: Relay, status: int | None, said: str, prompts: Sequence[Sequence[int]]
) -> Finding:
    who = client.title
    evidence = [f"{len(relay.turns)} turns, {relay.calls} calls, {len(relay.refused)} refused"]
    evidence += [f"HTTP {code}: {text}" for code, text in relay.refused[:3]]
    if not relay.bodies:
        return Finding("unknown", f"{who} asked for nothing", (*evidence, clipped(said[-400:])))
    if status is None:
        return Finding("broken", f"{who} does not come to an end within {_SECONDS:g} s", tuple(evidence))
    if status != 0:
        refused = bool(relay.refused) and all(400 <= code < 500 for code, _ in relay.refused)
        seen = (*evidence, clipped(said[-400:]))
        return Finding("unsupported", f"{who} is refused", seen) if refused else Finding("broken", f"{who} fails", seen)
    if not probe.scripted and not relay.calls:
        return Finding("unknown", "the model made no call", (*evidence, clipped(said[-400:])))
    if not any(_printed(body) for body in relay.bodies):
        return Finding("broken", f"{who} did not get a call that it could run", (*evidence, clipped(said[-400:])))
    if probe.scripted and SCENES[client.scene].turns[1][-1].text not in said:
        return Finding("broken", f"{who} does not show the model's answer", (*evidence, clipped(said[-400:])))
    if probe.stand_in is not None:
        read = [prompt for prompt in prompts if PRINTED in probe.text(prompt)]
        if not read:
            return Finding("broken", "the model does not read what the tool printed", tuple(evidence))
        evidence.append(_continued(probe, client, prompts[: prompts.index(read[0])], read[0]))
    return Finding("preserved", f"{who} runs the call and shows the answer", tuple(evidence))


def _continued(probe: Probe, client: Client, earlier: Sequence[Sequence[int]], after: Sequence[int]) -> str:
    """How far the prompt after the call is the one before it with the model's own output."""
    if probe.stand_in is None or not earlier:
        return ""
    before = max(earlier, key=len)
    said = [*before, *probe.stand_in.tokens(client.scene, 0)]
    same = next((n for n, (one, other) in enumerate(zip(said, after, strict=False)) if one != other), len(said))
    if same >= len(said):
        return f"the prompt after the call begins with all {len(said)} tokens of the turn before it"
    return f"the prompt after the call is the turn before it for {same} of {len(said)} tokens"


def _printed(body: dict[str, Any]) -> bool:
    """Whether a request brings what the tool printed."""
    return PRINTED.encode() in msgspec.json.encode(body)


def _filled(text: str, words: dict[str, str]) -> str:
    for name, value in words.items():
        text = text.replace(name, value)
    return text
