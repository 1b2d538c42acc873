"""`turnwire fetch-model`: download a model for the embedded engine.

Promise: a download that was interrupted resumes, and a finished file is not downloaded again.
"""

from __future__ import annotations

import difflib

import click

from turnwire.cli.loading import DownloadProgress, Loading

__all__ = ["fetch_model"]


@click.command("fetch-model")
@click.argument("name", required=False)
def fetch_model(name: str | None) -> None:
    """Download a model for the embedded engine by NAME; `turnwire models` lists the names."""
    from turnwire.engines.embedded.downloads import DEFAULT_MODEL, KNOWN_MODELS, DownloadError
    from turnwire.engines.embedded.downloads import fetch_model as fetch

    known = KNOWN_MODELS.get((name or DEFAULT_MODEL).lower())
    if known is None:
        close = difflib.get_close_matches(str(name).lower(), KNOWN_MODELS, 2, 0.4)
        hint = f"Did you mean {' or '.join(close)}?" if close else f"Known names: {', '.join(KNOWN_MODELS)}."
        raise click.ClickException(
            f"There is no model called {name!r} to fetch. {hint} Any other GGUF file works with --model FILE.gguf."
        )
    try:
        with Loading(f"looking for {known.title}") as loading:
            progress = DownloadProgress(loading, after="checking it")
            try:
                path = fetch(known, progress)
            finally:
                progress.stop()
    except DownloadError as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{known.title} ({known.licence}), {known.size / 1e6:,.0f} MB, checksum verified:\n{path}")
    click.echo(f"Serve it with: turnwire serve --model {known.name}")
