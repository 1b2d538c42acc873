"""Runs a real client over a folder of tasks, on each arm in turn.

Promise: arms take turns task by task, each run has a fresh copy of the task's repository and a bounded time, and the
checker that judges it is the task's own, not the copy that the client could have changed.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from turnwire.conformance.programs import execute
from turnwire.conformance.relay import Relay, relayed
from turnwire.parity.results import Run

__all__ = ["Arm", "Plan", "read_plan", "run_tasks"]


class Arm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way to serve: the server, and the client's command. In the command, in the environment and in the texts of
    `files` stand {url} (the relay before the server), {folder} (the repository), {home} (a folder of this arm's own)
    and {prompt}. `files` are written below {home} first."""

    name: str
    url: str
    command: str
    environment: dict[str, str] = {}
    files: dict[str, str] = {}


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two arms, and the longest that a run may take."""

    arm: list[Arm] = []
    seconds: float = 300.0


def read_plan(path: Path) -> Plan:
    """The plan of a TOML file, or ValueError that says what to change."""
    try:
        plan = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Plan)
    except (OSError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ValueError(f"{path}: {error}") from None
    if len(plan.arm) != 2 or plan.arm[0].name == plan.arm[1].name:
        raise ValueError(f"{path}: give two [[arm]] tables with different names")
    return plan


async def run_tasks(plan: Plan, tasks: Path, runs: int, told: Callable[[Run, list[dict[str, Any]]], None]) -> list[Run]:
    """Every task, `runs` times on each arm; `told` is called with each run and the requests that it made."""
    folders = _tasks(tasks)
    made = []
    async with contextlib.AsyncExitStack() as stack:
        relays = [await stack.enter_async_context(relayed(arm.url)) for arm in plan.arm]
        for folder in folders:
            for number in range(runs):
                for arm, relay in zip(plan.arm, relays, strict=True):
                    relay.reset()
                    run = await _run(arm, relay, folder, number, plan.seconds)
                    made.append(run)
                    told(run, relay.bodies)
    return made


def _tasks(folder: Path) -> list[Path]:
    found = sorted(task for task in folder.iterdir() if (task / "prompt.txt").exists())
    if not found:
        raise ValueError(f"{folder} holds no task: a folder with prompt.txt, check.py and repo/")
    return found


async def _run(arm: Arm, relay: Relay, task: Path, number: int, seconds: float) -> Run:
    with tempfile.TemporaryDirectory(prefix="turnwire-parity-") as scratch:
        repository, home = Path(scratch) / "repo", Path(scratch) / "home"
        shutil.copytree(task / "repo", repository)
        home.mkdir()
        words = {
            "url": relay.url,
            "folder": str(repository),
            "home": str(home),
            "prompt": (task / "prompt.txt").read_text(encoding="utf-8").strip(),
        }
        for name, text in arm.files.items():
            file = home / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(_filled(text, words), encoding="utf-8")
        environment = os.environ | {name: _filled(value, words) for name, value in arm.environment.items()}
        command = [_filled(part, words) for part in shlex.split(arm.command)]
        began = time.monotonic()
        status, said = await execute(command, repository, environment, seconds)
        took = time.monotonic() - began
        shutil.copy(task / "check.py", repository / "check.py")
        passed, _ = await execute([sys.executable, "check.py"], repository, os.environ.copy(), 30)
        return Run(
            task=task.name,
            arm=arm.name,
            run=number,
            calls=relay.calls,
            turns=len(relay.turns),
            prompt_tokens=relay.prompt_tokens,
            output_tokens=relay.output_tokens,
            seconds=round(took, 2),
            success=passed == 0,
            note="" if status == 0 else f"the client ended with {status}: {said[-200:]}",
        )


def _filled(text: str, words: dict[str, str]) -> str:
    for name, value in words.items():
        text = text.replace("{" + name + "}", value)
    return text
