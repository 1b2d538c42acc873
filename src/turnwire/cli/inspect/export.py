"""`turnwire export`, `turnwire trace` and `turnwire import`: captures in the forms that other tools and people read,
and other tools' sessions as captures.

Promise: what is left out is counted on standard error; nothing is sent anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import click
import msgspec

from turnwire.capture.format import CapturedTurn, CaptureError, encode_line
from turnwire.capture.parquet import parquet_file
from turnwire.capture.reading import Capture
from turnwire.capture.redaction import Redactor
from turnwire.capture.request_trace import request_trace
from turnwire.capture.samples import samples
from turnwire.capture.timelines import otlp_spans, perfetto_trace
from turnwire.capture.trajectories import trajectories
from turnwire.capture.transcripts.importing import import_transcripts
from turnwire.capture.view import page_data
from turnwire.console.pages import self_contained
from turnwire.engines.captured.files import load_capture

__all__ = ["export", "import_", "trace"]


def _loaded(place: str) -> Capture:
    try:
        return load_capture(place)
    except CaptureError as error:
        raise click.ClickException(str(error)) from None


@click.command()
@click.argument("form", type=click.Choice(["samples", "parquet", "atif", "otel", "perfetto", "dynamo"]))
@click.argument("place", metavar="FILE")
@click.option(
    "--output", "-o", type=click.Path(dir_okay=False, allow_dash=True), default="-", help="Where to write it."
)
@click.option("--content", is_flag=True, help="otel: also what was said.")
def export(form: str, place: str, output: str, content: bool) -> None:
    """Write a capture as training samples (JSONL of exact tokens, or the same as Parquet), trajectories (JSONL of ATIF
    documents), OpenTelemetry spans, a Perfetto trace or Dynamo's request trace (JSONL)."""
    capture = _loaded(place)
    turns = [turn for turn in capture.turns if not turn.memory]
    if form in ("samples", "parquet"):
        made = list(samples(turns, {model.id: model.tokenizer for model in capture.models.values()}))
        try:
            data = _lines(made) if form == "samples" else parquet_file(made)
        except CaptureError as error:
            raise click.ClickException(str(error)) from None
        used = sum(len(sample.turns) for sample in made)
        click.echo(f"{len(made)} samples of {used} turns; {len(turns) - used} left out (no ids, or masked)", err=True)
    elif form == "atif":
        data = _lines(trajectories(turns))
    elif form == "dynamo":
        records = list(request_trace(turns))
        used = sum(record["event_type"] == "request_end" for record in records)
        click.echo(f"{used} requests; {len(turns) - used} left out (no ids, or masked)", err=True)
        data = _lines(records)
    else:
        data = msgspec.json.encode(otlp_spans(turns, content=content) if form == "otel" else perfetto_trace(turns))
    with click.open_file(output, "wb") as file:
        file.write(data)


def _lines(values: Iterable[object]) -> bytes:
    return b"".join(msgspec.json.encode(value) + b"\n" for value in values)


@click.command("import")
@click.argument("places", metavar="FILE...", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    default="imported.capture.jsonl",
    show_default=True,
    help="Where to write the capture.",
)
def import_(places: tuple[Path, ...], output: Path) -> None:
    """Make a capture of sessions that Claude Code (~/.claude/projects) or Codex (~/.codex/sessions) wrote down: files,
    or folders with everything below them."""
    files = [file for place in places for file in ([place] if place.is_file() else sorted(place.rglob("*.jsonl")))]
    with ExitStack() as stack:
        opened = [(str(file), stack.enter_context(file.open("rb"))) for file in files]
        try:
            lines = import_transcripts(opened, Redactor())
        except CaptureError as error:
            raise click.ClickException(str(error)) from None
    output.write_bytes(b"".join(map(encode_line, lines)))
    output.chmod(0o600)
    turns = [line for line in lines if isinstance(line, CapturedTurn)]
    sessions = {(turn.session, turn.agent) for turn in turns}
    click.echo(f"{output}: {len(turns)} turns of {len(sessions)} sessions. Look at them with:")
    click.echo(f"  turnwire trace {output}")


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
