"""`turnwire`: the command line.

Promise: each command is a small module of its own; wrong input is answered with what to change, never with a trace.
"""

from __future__ import annotations

import click

import turnwire
from turnwire.cli.bench.prefix import bench
from turnwire.cli.chat.command import chat
from turnwire.cli.config import config
from turnwire.cli.doctor import doctor
from turnwire.cli.fetch_model import fetch_model
from turnwire.cli.inspect.explain import explain
from turnwire.cli.inspect.export import export, trace
from turnwire.cli.inspect.replay import replay, repro
from turnwire.cli.inspect.top import top
from turnwire.cli.keys import keys
from turnwire.cli.launch.codex_catalog import codex_catalog
from turnwire.cli.launch.command import launch
from turnwire.cli.launch.up import up
from turnwire.cli.models import models
from turnwire.cli.parse import dialects_command, parse
from turnwire.cli.proof.conformance import conformance
from turnwire.cli.proof.parity import parity
from turnwire.cli.serve import serve

__all__ = ["main"]


class _Commands(click.Group):
    """Flags without a command are those of `serve`, so that a launch line of another frontend's needs one word
    changed."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0].startswith("--") and args[0] not in ("--help", "--version"):
            args = ["serve", *args]
        return super().parse_args(ctx, args)


@click.version_option(turnwire.__version__, "--version", message="%(version)s")
@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def main() -> None:
    """The serving layer between agent harnesses and model engines."""


@main.command()
def version() -> None:
    """Print the version."""
    click.echo(turnwire.__version__)


for command in (
    serve,
    chat,
    config,
    models,
    fetch_model,
    launch,
    up,
    codex_catalog,
    parse,
    dialects_command,
    doctor,
    keys,
    top,
    explain,
    bench,
    conformance,
    trace,
    replay,
    repro,
    export,
    parity,
):
    main.add_command(command)

if __name__ == "__main__":
    main()
