"""`turnwire models`: the model families that are known, the models on disk, and those that can be fetched.

Promise: nothing is downloaded and no gateway is needed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click
import msgspec

__all__ = ["models"]


class _ModelsGroup(click.Group):
    """A group whose first word may also be a model: `turnwire models NAME` shows it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--help" not in args and "-h" not in args:
            first = next((word for word in args if not word.startswith("-")), None)
            if first not in self.commands:
                args = ["show", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_ModelsGroup)
def models() -> None:
    """List the known model families and the models on disk; `turnwire models NAME` shows what is known of one."""


@models.command()
@click.argument("model", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every field.")
@click.option("--profiles", type=click.Path(), help="A file of profiles that extends the built-in ones.")
def show(model: str | None, as_json: bool, profiles: str | None) -> None:
    """List the known model families; with MODEL (any id or file name), show what is known of that one."""
    from turnwire.profiles import ProfileError, load_book

    try:
        book = load_book(profiles)
    except ProfileError as error:
        raise click.ClickException(str(error)) from None
    chosen = list(book.profiles)
    if model is not None:
        found = book.find(model)
        if found is None:
            raise click.ClickException(
                f"No profile fits {model!r}. It can be served all the same: give --dialect and --window, or write a "
                "profile and name the file with --profiles."
            )
        chosen = [found]
    if as_json:
        click.echo(json.dumps([msgspec.to_builtins(profile) for profile in chosen], indent=2, ensure_ascii=False))
        return
    if model is not None:
        _show_one(msgspec.to_builtins(chosen[0]))
        return
    _show_all(chosen)
    _show_fetchable()
    _show_disk()


@models.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def ls(as_json: bool) -> None:
    """List the models on disk that the embedded engine can run, with their sizes."""
    from turnwire.engines.embedded.on_disk import models_on_disk

    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(models_on_disk())).decode())
    else:
        _show_disk()


@models.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
def rm(name: str, yes: bool) -> None:
    """Delete a model from disk, by the name that `turnwire models ls` shows."""
    from turnwire.engines.embedded.downloads import DownloadError
    from turnwire.engines.embedded.on_disk import models_on_disk, remove_model

    try:
        if not yes and any(model.name.lower() == name.lower() for model in models_on_disk()):
            click.confirm(f"Delete {name} from this machine?", abort=True)
        removed = remove_model(name)
    except (DownloadError, OSError) as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"Deleted {removed.name}: {_bytes(removed.size)} freed.")


def _bytes(size: int) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.0f} MB"


def _table(title: str, *columns: str) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in ("window", "size") else "left", overflow="fold")
    return table


def _console() -> Any:
    from rich.console import Console

    console = Console()
    # A table in a pipe is not cut to a terminal's width.
    return console if console.is_terminal else Console(width=200)


def _show_all(profiles: list[Any]) -> None:
    table = _table("Known model families", "name", "vendor", "dialect", "window", "thinks", "sees")
    for profile in profiles:
        window = f"{profile.window:,}" if profile.window else ""
        images = "yes" if profile.images else ""
        table.add_row(profile.name, profile.vendor, profile.dialect, window, profile.thinking.default, images)
    _console().print(table)


def _show_fetchable() -> None:
    from turnwire.engines.embedded.downloads import DEFAULT_MODEL, KNOWN_MODELS, cache_folder

    title = "Models for the embedded engine (turnwire fetch-model NAME)"
    table = _table(title, "name", "size", "licence", "tools", "fetched")
    for known in KNOWN_MODELS.values():
        table.add_row(
            known.name + (" (default)" if known.name == DEFAULT_MODEL else ""),
            _bytes(known.size),
            known.licence,
            "yes" if known.tools else "no",
            "yes" if (cache_folder() / known.file).exists() else "",
        )
    _console().print(table)


def _show_disk() -> None:
    from turnwire.engines.embedded.on_disk import models_on_disk

    found = models_on_disk()
    if not found:
        click.echo("No model is on disk yet. Any GGUF on the hub runs too: turnwire serve --model MAKER/REPO:QUANT")
        return
    table = _table("On disk", "name", "size", "file")
    for model in found:
        more = f" and {len(model.files) - 1} more" if model.files[1:] else ""
        table.add_row(model.name, _bytes(model.size), f"{_short(model.files[0])}{more}")
    _console().print(table)
    click.echo("Serve one: turnwire serve --model NAME; delete one: turnwire models rm NAME")


def _short(file: str) -> str:
    home = str(Path.home())
    return f"~{file.removeprefix(home)}" if file.startswith(f"{home}{os.sep}") else file


def _show_one(profile: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(show_header=False)
    for key, value in profile.items():
        if value not in (None, "", {}, [], ()):
            shown = ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
            table.add_row(key, json.dumps(shown) if isinstance(shown, dict) else str(shown))
    _console().print(table)
