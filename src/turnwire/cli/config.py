"""`turnwire config`: write a config file, show what is in force and where it comes from, check a file.

Promise: a setting is shown with its source, and a check that fails exits with 1.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
import msgspec

from turnwire.cli.gateway_flags import gateway_flags

__all__ = ["config"]

_SECRETS = frozenset({"seal_key"})


@click.group()
def config() -> None:
    """Write, show and check the config file."""


@config.command()
@click.argument("file", default="turnwire.toml", type=click.Path(dir_okay=False))
@click.option("--force", is_flag=True, help="Overwrite the file if there is one.")
def init(file: str, force: bool) -> None:
    """Write a commented config file that names every setting; `-` prints it."""
    from turnwire.gateway.setup.config_file import commented_file

    if file == "-":
        click.echo(commented_file(), nl=False)
        return
    path = Path(file)
    if path.exists() and not force:
        raise click.ClickException(f"{file} exists already; say --force to overwrite it, or name another file.")
    try:
        path.write_text(commented_file(), encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{file} cannot be written: {error.strerror}.") from None
    click.echo(f"Wrote {file}. Serve with it: turnwire serve --config {file}")


@config.command()
@gateway_flags
@click.option("--all", "everything", is_flag=True, help="Show the defaults too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(config: str | None, everything: bool, as_json: bool, **flags: Any) -> None:
    """Show the settings in force and where each was set: a flag, a variable, or a line of the file."""
    loaded = _loaded(flags, config)
    values = msgspec.to_builtins(loaded.settings)
    rows = [
        (name, "(hidden)" if name in _SECRETS and value else value, loaded.origins.get(name, "default"))
        for name, value in values.items()
        if everything or as_json or name in loaded.origins
    ]
    if as_json:
        document = {name: {"value": value, "origin": origin} for name, value, origin in rows}
        click.echo(msgspec.json.format(msgspec.json.encode(document)).decode())
        return
    if not rows:
        click.echo("Nothing is set: every setting has its default (--all lists them).")
    for name, value, origin in rows:
        if name == "models":
            for number, model in enumerate(loaded.settings.models):
                shown = {key: each for key, each in msgspec.to_builtins(model).items() if each}
                at = loaded.origins[f"models[{number}]"]
                click.echo(f"model {model.name}: {msgspec.json.encode(shown).decode()}  ({at})")
            continue
        click.echo(f"{name} = {msgspec.json.encode(value).decode()}  ({origin})")


@config.command()
@click.argument("file", required=False, type=click.Path())
def check(file: str | None) -> None:
    """Check a config file without starting anything: names, values, engines, keys and files."""
    from turnwire.gateway.setup.config_check import problems

    loaded = _loaded({}, file)
    found = problems(loaded.settings, os.environ, loaded.origins)
    for problem in found:
        click.echo(problem, err=True)
    if found:
        raise click.exceptions.Exit(1)
    models = ", ".join(model.name or "the default model" for model in loaded.settings.served())
    click.echo(f"{file or 'The settings'}: fine. Serves {models}.")


def _loaded(flags: dict[str, Any], file: str | None) -> Any:
    from turnwire.gateway.settings import SettingsError
    from turnwire.gateway.setup.loading import load

    try:
        return load(flags, config=file or os.environ.get("TURNWIRE_CONFIG"), environ=os.environ)
    except SettingsError as error:
        raise click.ClickException(str(error)) from None
