"""What Codex sends with the gateway's model catalog and without it: request shapes, which need no model.

Promise: the requests are those of the pinned, real Codex; a scripted engine answers it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.measure.results import FOLDER, today
from benchmarks.measure.versions import commit
from benchmarks.parity.coder import chosen_tasks
from benchmarks.peers.cache import ROOT
from benchmarks.peers.processes import Processes, free_port, serves
from turnwire.parity.results import Run
from turnwire.parity.runner import Arm, Plan, run_tasks
from turnwire.parity.shapes import diff, shape

import clients as real_clients  # type: ignore[import-not-found]  # isort: skip - tools/, which cache.py puts on the path

__all__ = ["FILE", "Shapes", "compare_shapes"]

FILE = FOLDER / "parity_shapes.json"
TASKS = ["clamp", "is_even"]
MODEL = "Qwen/Qwen3-32B"
CONFIG = """\
model = "Qwen/Qwen3-32B"
model_provider = "gw"
approval_policy = "never"
sandbox_mode = "read-only"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.gw]
name = "gw"
base_url = "{url}/v1"
wire_api = "responses"
"""
# Codex asks a provider for its catalog only where it gets its key by a command.
NATIVE = (
    CONFIG
    + """\
[model_providers.gw.auth]
command = "sh"
args = ["-c", "printf %s key"]
"""
)
FALLBACK = CONFIG + 'env_key = "GW_KEY"\n'


class Shapes(msgspec.Struct):
    """The result file: what differs, and the prompt tokens of a first turn on each arm."""

    taken: str
    turnwire: str
    codex: str
    differences: list[str]
    prompt_tokens: dict[str, int]
    runs: list[Run]


def compare_shapes(*, saved: bool) -> Shapes:
    """Run Codex on both arms and compare its first requests."""
    bundles = [real_clients.BUNDLES[name] for name in ("node", "codex")]
    path = os.pathsep.join([*(str(bundle.executable.parent) for bundle in bundles), os.environ.get("PATH", "")])
    first: dict[str, dict[str, Any]] = {}
    runs: list[Run] = []

    def told(run: Run, bodies: list[dict[str, Any]]) -> None:
        runs.append(run)
        if bodies:
            first.setdefault(run.arm, bodies[0])
        print(
            f"{run.task:12} {run.arm:8} {run.turns} turns {run.prompt_tokens} prompt tokens {run.note[:200]}",
            flush=True,
        )

    with tempfile.TemporaryDirectory(prefix="turnwire-parity-") as scratch:
        folder = chosen_tasks(Path(scratch), TASKS)
        processes = Processes(Path(scratch))
        try:
            url = _gateway(processes, Path(scratch))
            arms = [_arm(name, text, url, path) for name, text in (("native", NATIVE), ("fallback", FALLBACK))]
            asyncio.run(run_tasks(Plan(arm=arms, seconds=120), folder, 1, told))
        finally:
            processes.stop()
    if len(first) < len(arms):
        raise SystemExit(f"Codex asked nothing: {'; '.join(run.note for run in runs)}")
    tokens = {run.arm: run.prompt_tokens // max(1, run.turns) for run in runs}
    found = diff(shape(first["native"]), shape(first["fallback"]))
    codex = bundles[1].pins[0].rpartition("@")[2]
    results = Shapes(today(), commit(ROOT), codex, found, tokens, runs)
    print("\n".join(found))
    if saved:
        FILE.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")
    return results


def _arm(name: str, config: str, url: str, path: str) -> Arm:
    return Arm(
        name=name,
        url=url,
        command="codex exec --skip-git-repo-check --json -C {folder} '{prompt}'",
        environment={"CODEX_HOME": "{home}", "GW_KEY": "key", "PATH": path},
        files={"config.toml": config},
    )


def _gateway(processes: Processes, scratch: Path) -> str:
    port, script = free_port(), scratch / "script.jsonl"
    script.write_text(json.dumps({"text": "Nothing is wanted.\n</think>\n\nDone."}) + "\n", encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "turnwire.cli.main",
        "serve",
        "--port",
        str(port),
        "--engine",
        f"scripted:{script}",
    ]
    command += ["--model", MODEL, "--log-level", "warning"]
    processes.start("gateway", command, {"PYTHONPATH": str(ROOT / "src"), "HOME": str(scratch)})
    processes.wait(serves(port, MODEL))
    return f"http://127.0.0.1:{port}"
