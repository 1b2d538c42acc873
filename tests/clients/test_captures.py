"""Real clients run again from a capture: their wire byte for byte, and themselves without a model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from turnwire.engines.captured.files import load_capture

from .conftest import Serve, replay_equal
from .outputs import call, line, thought
from .test_claude_code import claude, succeeded
from .test_codex import codex
from .test_codex import succeeded as codex_succeeded

__all__ = ["claude", "codex"]

TASK = "Run the shell command echo hello"


def test_claude_code_finishes_its_task_from_a_capture(serve: Serve, claude: Any, sandbox: Any) -> None:
    lines = (
        line(thought("The user wants a greeting."), call("Bash", command="echo hello > greeting.txt")),
        line(thought("It is there."), "The command printed hello."),
    )
    gateway = serve(*lines)
    succeeded(claude(gateway)(TASK), "The command printed hello.")
    written = sandbox.workspace / "greeting.txt"
    assert written.read_text() == "hello\n"
    gateway.stop()
    assert replay_equal(gateway.captures).equal >= 2
    written.unlink()
    offline = serve(flags=("--engine", f"capture:{gateway.captures}"))
    succeeded(claude(offline)(TASK), "The command printed hello.")
    assert written.read_text() == "hello\n"


def test_claude_code_finishes_its_task_from_its_own_transcript(serve: Serve, claude: Any, sandbox: Any) -> None:
    lines = (
        line(thought("The user wants a greeting."), call("Bash", command="echo hello > greeting.txt")),
        line(thought("It is there."), "The command printed hello."),
    )
    succeeded(claude(serve(*lines))(TASK), "The command printed hello.")
    written = sandbox.workspace / "greeting.txt"
    written.unlink()
    place = transcribed(sandbox, sandbox.home / ".claude" / "projects")
    succeeded(claude(serve(flags=("--engine", f"capture:{place}")))(TASK), "The command printed hello.")
    assert written.read_text() == "hello\n"


def transcribed(sandbox: Any, folder: Path) -> Path:
    """What a client wrote down of its session, as a capture."""
    place: Path = sandbox.folder / "imported.capture.jsonl"
    command = [sys.executable, "-m", "turnwire", "import", str(folder), "-o", str(place)]
    subprocess.run(command, check=True, timeout=60)
    assert [turn.finish for turn in load_capture(str(place)).turns] == ["tool_calls", "stop"]
    return place


def test_codex_finishes_its_task_from_a_capture(serve: Serve, codex: Any) -> None:
    lines = (
        line(thought("A greeting."), call("exec_command", cmd="echo hello")),
        line(thought("It is there."), "The command printed hello."),
    )
    gateway = serve(*lines)
    codex_succeeded(codex(gateway)(TASK), "The command printed hello.")
    gateway.stop()
    assert replay_equal(gateway.captures).equal >= 2
    offline = serve(flags=("--engine", f"capture:{gateway.captures}"))
    codex_succeeded(codex(offline)(TASK), "The command printed hello.")


def test_codex_finishes_its_task_from_its_own_rollout(serve: Serve, codex: Any, sandbox: Any) -> None:
    lines = (
        line(thought("A greeting."), call("exec_command", cmd="echo hello")),
        line(thought("It is there."), "The command printed hello."),
    )
    codex_succeeded(codex(serve(*lines))(TASK), "The command printed hello.")
    place = transcribed(sandbox, sandbox.home / "codex" / "sessions")
    codex_succeeded(codex(serve(flags=("--engine", f"capture:{place}")))(TASK), "The command printed hello.")
