"""`turnwire export` and `turnwire trace`: captures in the forms that other tools and people read.

Promise: what is left out is counted on standard error; nothing is sent anywhere.
"""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from turnwire.capture.format import CaptureError
from turnwire.capture.reading import Capture
from turnwire.capture.samples import samples
from turnwire.capture.timelines import otlp_spans, perfetto_trace
from turnwire.capture.trajectories import trajectories
from turnwire.capture.view import page_data
from turnwire.console.pages import self_contained
from turnwire.engines.captured.files import load_capture

__all__ = ["export", "trace"]


def _loaded(place: str) -> Capture:
    try:
        return load_capture(place)
    except CaptureError as error:
        raise click.ClickException(str(error)) from None


@click.command()
@click.argument("form", type=click.Choice(["samples", "atif", "otel", "perfetto"]))
@click.argument("place", metavar="FILE")
@click.option(
    "--output", "-o", type=click.Path(dir_okay=False, allow_dash=True), default="-", help="Where to write it."
)
@click.option("--content", is_flag=True, help="otel: also what was said.")
def export(form: str, place: str, output: str, content: bool) -> None:
    """Write a capture as training samples (JSONL of exact tokens), trajectories (JSONL of ATIF documents),
    OpenTelemetry spans or a Perfetto trace."""
    capture = _loaded(place)
    turns = [turn for turn in capture.turns if not turn.memory]
    if form == "samples":
        made = list(samples(turns, {model.id: model.tokenizer for model in capture.models.values()}))
        data = b"".join(msgspec.json.encode(sample) + b"\n" for sample in made)
        used = sum(len(sample.turns) for sample in made)
        click.echo(f"{len(made)} samples of {used} turns; {len(turns) - used} left out (no ids, or masked)", err=True)
    elif form == "atif":
        data = b"".join(msgspec.json.encode(line) + b"\n" for line in trajectories(turns))
    else:
        data = msgspec.json.encode(otlp_spans(turns, content=content) if form == "otel" else perfetto_trace(turns))
    with click.open_file(output, "wb") as file:
        file.write(data)


@click.command()
@click.argument("place", metavar="FILE")
@click.option("--session", help="Only this session.")
@click.option("--output", "-o", type=click.Path(dir_okay=False), default="trace.html", show_default=True)
def trace(place: str, session: str | None, output: str) -> None:
    """Write a capture as one HTML page that needs nothing else, to look at or to send to a colleague."""
    capture = _loaded(place)
    turns = [turn for turn in capture.turns if not turn.memory and (session is None or turn.session == session)]
    if not turns:
        raise click.ClickException("The capture holds no such turn.")
    data = self_contained(msgspec.json.encode(page_data(capture, turns)))
    Path(output).write_bytes(data)
    click.echo(f"{output}: {len(turns)} turns, {len(data):,} bytes. It holds what was said, without secrets.")
