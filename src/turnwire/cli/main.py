"""`turnwire`: the command line.

Promise: each command is a small module of its own, loaded when it is used; one whose packages are not installed says
what to install. Wrong input is answered with what to change, never with a trace.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click
import msgspec

import turnwire

__all__ = ["COMMANDS", "CommandRow", "main"]


class CommandRow(msgspec.Struct, frozen=True):
    """Where a command lives, and what it does in a few words."""

    module: str
    attribute: str
    words: str


COMMANDS: Mapping[str, Mapping[str, CommandRow]] = {
    "Run": {
        "serve": CommandRow("serve", "serve", "Run the gateway."),
        "up": CommandRow("launch.up", "up", "Start a gateway and a client on it, in one command."),
        "launch": CommandRow("launch.command", "launch", "Run Claude Code, Codex and other clients on the gateway."),
        "chat": CommandRow("chat.command", "chat", "Talk to a model in the terminal, with tools."),
    },
    "Set up": {
        "doctor": CommandRow("doctor", "doctor", "Say what a gateway would be, and what is wrong or could be better."),
        "config": CommandRow("config", "config", "Write, show and check the config file."),
        "warm": CommandRow("warm", "warm", "Let workers read a client's system prompt before its sessions start."),
        "keys": CommandRow("keys", "keys", "Make, list and revoke API keys; what each used."),
        "models": CommandRow("models", "models", "Known model families, and the models on disk."),
        "fetch-model": CommandRow("fetch_model", "fetch_model", "Download a model for the embedded engine."),
        "codex-catalog": CommandRow("launch.codex_catalog", "codex_catalog", "Write the model catalog for Codex."),
    },
    "Look": {
        "top": CommandRow("inspect.top", "top", "Live turns, and the last ones that ended."),
        "explain": CommandRow("inspect.explain", "explain", "Why a turn took as long as it did."),
        "trace": CommandRow("inspect.export", "trace", "A captured session as a page."),
        "export": CommandRow("inspect.export", "export", "Captured turns as samples, spans or records."),
        "import": CommandRow("inspect.export", "import_", "Transcripts of Claude Code and Codex as a capture."),
        "replay": CommandRow("inspect.replay", "replay", "Run captured turns again and compare."),
        "repro": CommandRow("inspect.replay", "repro", "A captured turn as a bundle to report."),
    },
    "Try and measure": {
        "parse": CommandRow("parse", "parse", "Read raw model output as ordered events."),
        "dialects": CommandRow("parse", "dialects_command", "The dialects and every name they are known by."),
        "bench": CommandRow("bench.prefix", "bench", "Measure the gateway and the engine you have."),
        "conformance": CommandRow("proof.conformance", "conformance", "Judge a server by what agents rely on."),
        "parity": CommandRow("proof.parity", "parity", "Compare two gateways or models over the same tasks."),
    },
}
_EXAMPLES = """\
Examples:
  turnwire serve                                  a small built-in model on http://127.0.0.1:8390
  turnwire serve --engine http://127.0.0.1:8000   an engine that runs; what answers is found out
  turnwire launch claude                          Claude Code on the gateway
  turnwire doctor --try                           check everything, with a real conversation"""


class _Commands(click.Group):
    """Commands by table. Flags without a command are those of `serve`, so that a launch line of another frontend's
    needs one word changed."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0].startswith("--") and args[0] not in ("--help", "--version"):
            args = ["serve", *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*(name for rows in COMMANDS.values() for name in rows), *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        row = next((rows[cmd_name] for rows in COMMANDS.values() if cmd_name in rows), None)
        if row is None:
            return super().get_command(ctx, cmd_name)
        found: click.Command = getattr(importlib.import_module(f"turnwire.cli.{row.module}"), row.attribute)
        return found

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.startswith("turnwire"):
                raise
            package = error.name.partition(".")[0]
            raise click.ClickException(
                f"This command needs {package}, which is not installed: pip install 'turnwire[server]'"
            ) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, rows in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([(name, row.words) for name, row in rows.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(f"\n{_EXAMPLES}\n")


@click.version_option(turnwire.__version__, "--version", message="%(version)s")
@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def main() -> None:
    """The serving layer between agent harnesses and model engines."""


@main.command()
def version() -> None:
    """Print the version."""
    click.echo(turnwire.__version__)


if __name__ == "__main__":
    main()
