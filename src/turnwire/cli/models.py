"""`turnwire models`: the model families that are known, and the models that can be fetched."""

from __future__ import annotations

import json
from typing import Any

import click
import msgspec

__all__ = ["models"]


@click.command()
@click.argument("model", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every field.")
@click.option("--profiles", type=click.Path(), help="A file of profiles that extends the built-in ones.")
def models(model: str | None, as_json: bool, profiles: str | None) -> None:
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


def _table(title: str, *columns: str) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in ("window", "size") else "left", no_wrap=True)
    return table


def _show_all(profiles: list[Any]) -> None:
    from rich.console import Console

    table = _table("Known model families", "name", "vendor", "dialect", "window", "thinks", "sees")
    for profile in profiles:
        window = f"{profile.window:,}" if profile.window else ""
        images = "yes" if profile.images else ""
        table.add_row(profile.name, profile.vendor, profile.dialect, window, profile.thinking.default, images)
    Console().print(table)


def _show_fetchable() -> None:
    from rich.console import Console

    from turnwire.engines.embedded.downloads import DEFAULT_MODEL, KNOWN_MODELS, cache_folder

    title = "Models for the embedded engine (turnwire fetch-model NAME)"
    table = _table(title, "name", "size", "licence", "tools", "fetched")
    for known in KNOWN_MODELS.values():
        table.add_row(
            known.name + (" (default)" if known.name == DEFAULT_MODEL else ""),
            f"{known.size / 1e6:,.0f} MB",
            known.licence,
            "yes" if known.tools else "no",
            "yes" if (cache_folder() / known.file).exists() else "",
        )
    Console().print(table)


def _show_one(profile: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=False)
    for key, value in profile.items():
        if value not in (None, "", {}, [], ()):
            shown = ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
            table.add_row(key, json.dumps(shown) if isinstance(shown, dict) else str(shown))
    Console().print(table)
