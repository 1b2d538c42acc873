"""Runs a plan: writes its files, sets its variables, hands the terminal to the client and gives its exit code back.

Promise: signals reach the client, and its folder is removed when it has ended.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from turnwire.harness.plan import Harness, LaunchPlan

__all__ = ["HarnessMissing", "environment", "run_plan", "write_files"]


class HarnessMissing(RuntimeError):
    """The client is not installed; the message says how to get it."""


def write_files(plan: LaunchPlan, home: Path) -> None:
    """Write the plan's files, readable by their owner only."""
    for name, text in plan.files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")


def environment(plan: LaunchPlan, base: Mapping[str, str]) -> dict[str, str]:
    """The caller's variables as the plan changes them."""
    kept = {name: value for name, value in base.items() if name not in plan.unset}
    return {**kept, **plan.env}


def run_plan(harness: Harness, plan: LaunchPlan, home: Path) -> int:
    """Run the client to its end and return its exit code (128 + n if signal n ended it)."""
    executable = shutil.which(plan.command[0])
    if executable is None:
        raise HarnessMissing(f"`{harness.command}` is not on the PATH. Install it with: {harness.install}")
    write_files(plan, home)
    env = environment(plan, os.environ)
    # Ctrl-C reaches the whole foreground group and belongs to the client; a handler, unlike SIG_IGN, is not inherited.
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        code = subprocess.Popen([executable, *plan.command[1:]], env=env).wait()  # noqa: S603 - what the user asked for
    finally:
        signal.signal(signal.SIGINT, before)
    return code if code >= 0 else 128 - code
