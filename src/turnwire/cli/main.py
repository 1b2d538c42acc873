"""`turnwire`: the command line.

Promise: each command is a small module of its own; wrong input is answered with what to change, never with a trace.
"""

from __future__ import annotations

import click

import turnwire

from .serve import serve

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def main() -> None:
    """The serving layer between agent harnesses and model engines."""


@main.command()
def version() -> None:
    """Print the version."""
    click.echo(turnwire.__version__)


main.add_command(serve)

if __name__ == "__main__":
    main()
