"""`turnwire fetch-model`: download a model for the embedded engine.

Promise: a download that was interrupted resumes, and a finished file is not downloaded again.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from turnwire.engines.embedded.downloads import Progress

__all__ = ["download_bar", "fetch_model"]


@contextmanager
def download_bar() -> Iterator[Progress]:
    """A progress bar on standard error for as long as the block runs; it shows only once something is downloaded."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bars(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bars:
        tasks = {}

        def report(label: str, done: int, total: int) -> None:
            if label not in tasks:
                tasks[label] = bars.add_task(label, total=total)
            bars.update(tasks[label], completed=done)

        yield report


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
        with download_bar() as progress:
            path = fetch(known, progress)
    except DownloadError as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{known.title} ({known.licence}), {known.size / 1e6:,.0f} MB, checksum verified:\n{path}")
    click.echo(f"Serve it with: turnwire serve --model {known.name}")
