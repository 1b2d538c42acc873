"""`turnwire conformance`: how any server behaves under agent harnesses.

Promise: each cell has a word, a reason and evidence; a server that misbehaves costs bounded time and memory.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import click
import msgspec
from rich.console import Console

from turnwire.conformance.exchange import Limits, Unreachable
from turnwire.conformance.page import html_page, terminal
from turnwire.conformance.runner import NoModel, run
from turnwire.conformance.scenes import lines
from turnwire.conformance.stand_in import Folder
from turnwire.conformance.words import APIS, ApiName, Cell
from turnwire.harness import KEY_VARIABLE

__all__ = ["conformance"]


@click.command()
@click.option("--url", help="The server, such as http://127.0.0.1:8390.")
@click.option("--api", "apis", multiple=True, type=click.Choice(APIS), help="An API to judge; default: all three.")
@click.option("--model", help="The model to ask.  [default: the first that the server lists]")
@click.option("--key", envvar=KEY_VARIABLE, help=f"The server's API key.  [default: ${KEY_VARIABLE}]")
@click.option("--rule", "rules", multiple=True, help="Judge only rules whose names begin so, such as `calls`.")
@click.option("--scripted", is_flag=True, help="The engine plays the scenes (see --write-script).")
@click.option("--stand-in", type=click.Path(path_type=Path, exists=True, file_okay=False), help="A stand-in's folder.")
@click.option(
    "--clients", is_flag=True, help="Also by Claude Code and Codex, where they are on the path; they may run `echo`."
)
@click.option("--max-tokens", default=2048, show_default=True, help="The longest turn; less for a slow real model.")
@click.option("--seconds", default=60.0, show_default=True, help="The longest that one answer may take.")
@click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Write cells and evidence.")
@click.option("--html", "html_file", type=click.Path(path_type=Path, dir_okay=False), help="Write a page.")
@click.option(
    "--write-script",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the scenes for `turnwire serve --engine scripted:FILE`, and end.",
)
def conformance(
    url: str | None,
    apis: tuple[ApiName, ...],
    model: str | None,
    key: str | None,
    rules: tuple[str, ...],
    scripted: bool,
    stand_in: Path | None,
    clients: bool,
    max_tokens: int,
    seconds: float,
    json_file: Path | None,
    html_file: Path | None,
    write_script: Path | None,
) -> None:
    """Judge a server by the rules that agent harnesses rely on."""
    if write_script is not None:
        write_script.write_text(lines(), encoding="utf-8")
        return
    if url is None or urlsplit(url).scheme not in ("http", "https"):
        raise click.ClickException("Give the server with --url, such as --url http://127.0.0.1:8390.")
    console = Console()
    said = Console(stderr=True)

    def told(cell: Cell) -> None:
        said.print(f"{cell.api} {cell.rule}: {cell.word}", style="dim", highlight=False)

    try:
        folder = Folder(stand_in) if stand_in is not None else None
        report = asyncio.run(
            run(
                url,
                apis=apis or APIS,
                model=model,
                key=key,
                stand_in=folder,
                scripted=scripted or folder is not None,
                only=rules,
                most=max_tokens,
                clients=clients,
                again=True,
                limits=Limits(seconds=seconds),
                told=told,
            )
        )
    except (Unreachable, NoModel, ValueError) as error:
        raise click.ClickException(str(error)) from None
    console.print(terminal(report))
    if json_file is not None:
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    if html_file is not None:
        html_file.write_text(html_page([report]), encoding="utf-8")
