"""`turnwire codex-catalog`: the file that tells Codex what a served model can do.

Promise: what is written passes the checks that Codex makes, or nothing is written.
"""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import click

__all__ = ["codex_catalog"]


@click.command("codex-catalog")
@click.option("--model", "models", multiple=True, help="A model id as it is served; may be repeated.")
@click.option("--url", help="Take the catalog of a running gateway (http://HOST:PORT/v1) instead of the profiles.")
@click.option("--key", envvar="TURNWIRE_API_KEY", help="The key for --url.", show_envvar=True)
@click.option("--alias", multiple=True, help="A further id of the first model; may be repeated.")
@click.option("--window", type=click.IntRange(min=1), help="The context window that the engine really has.")
@click.option("--like", metavar="SLUG", help="Take instructions, tools and limits of this record of your own Codex.")
@click.option("--profiles", type=click.Path(), help="A file of profiles that extends the built-in ones.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write here; else print it.")
def codex_catalog(
    models: tuple[str, ...],
    url: str | None,
    key: str | None,
    alias: tuple[str, ...],
    window: int | None,
    like: str | None,
    profiles: str | None,
    output: Path | None,
) -> None:
    """Write the model catalog for Codex: one entry for each --model.

    Codex reads it from the file named by `model_catalog_json` in its config.toml. A provider with command auth reads
    the same catalog from the gateway and needs no file.
    """
    from turnwire.protocols.codex_catalog import catalog_file, catalog_problems
    from turnwire.protocols.codex_catalog import like as made_like

    if url is not None:
        entries = _served(url, key)
    elif models:
        entries = _profiled(models, alias, window, profiles)
    else:
        raise click.UsageError("Name the models as they are served with --model, or a running gateway with --url.")
    if like is not None:
        base = _bundled(like)
        entries = [made_like(base, entry) for entry in entries]
    problems = catalog_problems({"models": entries})
    if problems:
        raise click.ClickException("Codex would refuse this catalog:\n  " + "\n  ".join(problems))
    data = catalog_file(entries)
    if output is None:
        click.echo(data.decode(), nl=False)
        return
    output.write_bytes(data)
    click.echo(f"Wrote {len(entries)} entries. In ~/.codex/config.toml:", err=True)
    click.echo(f"model_catalog_json = {json.dumps(str(output.resolve()))}")


def _profiled(
    models: tuple[str, ...], aliases: tuple[str, ...], window: int | None, profiles: str | None
) -> list[dict[str, Any]]:
    from turnwire.profiles import ProfileError, codex_entry, load_book
    from turnwire.protocols.codex_catalog import alias_entries

    try:
        book = load_book(profiles)
    except ProfileError as error:
        raise click.ClickException(str(error)) from None
    entries: list[dict[str, Any]] = []
    for number, model in enumerate(models):
        profile = book.find(model)
        if profile is None:
            click.echo(f"No profile fits {model!r}: its entry claims nothing but the window.", err=True)
        entry = codex_entry(profile, model, window=window, priority=number + 1)
        entries += alias_entries(entry, aliases if number == 0 else ())
    return entries


def _bundled(slug: str) -> dict[str, Any]:
    """A record of the installed Codex, by its slug."""
    try:
        ran = subprocess.run(
            ["codex", "debug", "models", "--bundled"],  # noqa: S607 - the user's own Codex
            capture_output=True,
            timeout=60,
            check=True,
        )
        records = json.loads(ran.stdout)["models"]
    except FileNotFoundError:
        raise click.ClickException("--like needs Codex on the PATH: npm install -g @openai/codex") from None
    except subprocess.SubprocessError as error:
        raise click.ClickException(f"`codex debug models --bundled` failed: {error}") from None
    except (ValueError, KeyError, TypeError):
        raise click.ClickException(
            "`codex debug models --bundled` printed no catalog; is Codex older than 0.142?"
        ) from None
    known = {str(record.get("slug")): record for record in records if isinstance(record, dict)}
    if slug not in known:
        raise click.ClickException(f"Your Codex has no record {slug!r}. It has: {', '.join(known)}.")
    return dict(known[slug])


def _served(url: str, key: str | None) -> list[dict[str, Any]]:
    if not url.startswith(("http://", "https://")):
        raise click.UsageError("--url must start with http:// or https://")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    request = urllib.request.Request(f"{url.rstrip('/')}/models", headers=headers)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            body = json.load(answer)
    except (OSError, ValueError, urllib.error.HTTPError) as error:
        raise click.ClickException(f"{url} gave no model list: {error}") from None
    entries = body.get("models") if isinstance(body, dict) else None
    if not isinstance(entries, list):
        raise click.ClickException(f"{url} serves no Codex catalog: its model list has no `models`.")
    return entries
