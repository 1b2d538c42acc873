"""The table of commands: every one loads, help needs none of them, and a missing package is a sentence."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from turnwire.cli.main import COMMANDS, main

NAMES = [name for rows in COMMANDS.values() for name in rows]
WITHOUT = """
import importlib.abc, sys

class Guard(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {absent}:
            raise ModuleNotFoundError(name, name=name.partition(".")[0])

sys.meta_path.insert(0, Guard())
sys.argv = ["turnwire", *{arguments}]
from turnwire.__main__ import main
main()
"""


@pytest.mark.parametrize("name", NAMES)
def test_every_command_loads_and_explains_itself(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.help
    ran = CliRunner().invoke(main, [name, "--help"])
    assert ran.exit_code == 0, ran.output


def test_help_shows_every_command_in_its_group_and_examples() -> None:
    shown = CliRunner().invoke(main, ["--help"]).output
    assert all(f"  {name}" in shown for name in NAMES)
    assert all(f"{title}:" in shown for title in COMMANDS)
    assert "turnwire launch claude" in shown


def without(absent: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    program = WITHOUT.format(absent=set(absent), arguments=list(arguments))
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)


SERVER_ONLY = ["starlette", "uvicorn", "cryptography", "prometheus_client", "uvloop", "tokenizers", "huggingface_hub"]


@pytest.mark.parametrize(
    ("absent", "arguments", "code", "words"),
    [
        (SERVER_ONLY, ["--help"], 0, "Talk to a model"),
        (SERVER_ONLY, ["chat", "--help"], 0, "--yes"),
        (SERVER_ONLY, ["serve", "--engine", "scripted:x"], 1, "pip install 'turnwire[server]'"),
        (["click", *SERVER_ONLY], ["--help"], 1, "pip install 'turnwire[server]'"),
    ],
)
def test_what_is_not_installed_is_told(absent: list[str], arguments: list[str], code: int, words: str) -> None:
    ran = without(absent, *arguments)
    assert ran.returncode == code, ran.stderr
    assert words in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr
