"""`turnwire replay` and `turnwire repro`: run captured turns again, and cut out the smallest part that shows one.

Promise: a difference ends with exit code 1 and is shown where it begins; a turn that could not be compared is listed
and never counted as equal; a request that was sent again and failed ends with exit code 1 too.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from turnwire.capture.bundle import bundle
from turnwire.capture.format import CapturedTurn, CaptureError, ParsedBlock, encode_line
from turnwire.capture.reading import Capture
from turnwire.engines.captured.files import load_capture
from turnwire.harness.plan import KEY_VARIABLE

if TYPE_CHECKING:
    from turnwire.gateway.settings import Settings

__all__ = ["replay", "repro"]


@click.command()
@click.argument("place", metavar="FILE")
@click.option("--turn", help="Only this turn (and what it recalls).")
@click.option("--as-engine", is_flag=True, help="Serve a gateway whose engine is the capture.")
@click.option("--to", "target", metavar="URL", help="Send the captured requests to this server, at the captured times.")
@click.option("--speed", type=click.FloatRange(0.01, 1000), default=1.0, help="With --to: so many times faster.")
@click.option("--key", envvar=KEY_VARIABLE, help=f"With --to: that server's key.  [default: ${KEY_VARIABLE}]")
@click.option("--model", help="With --to: the model to ask for.  [default: the captured one]")
@click.option(
    "--tokenizer",
    help="The captured model's folder, GGUF file, hub id, or name in `turnwire models ls`.  [default: the file of the "
    "model that the embedded engine ran, where it is on disk; else the tokenizer of the scripted engine]",
)
@click.option("--template", help="The captured model's chat template.  [default: the one beside its tokenizer]")
@click.option("--dialect", default="auto", help="Parse with this dialect instead of the captured one.")
@click.option("--port", type=int, default=8390, show_default=True, help="With --as-engine: where to listen.")
def replay(
    place: str,
    turn: str | None,
    as_engine: bool,
    target: str | None,
    speed: float,
    key: str | None,
    model: str | None,
    tokenizer: str | None,
    template: str | None,
    dialect: str,
    port: int,
) -> None:
    """Run the turns of a capture (a file or a folder) again and say what differs."""
    from turnwire.gateway.replay.replaying import replay_settings
    from turnwire.gateway.settings import Settings
    from turnwire.gateway.setup.assembly import AssemblyError

    base = Settings(tokenizer=tokenizer, template=template, dialect=dialect, port=port)
    try:
        capture = load_capture(place)
        if target is not None:
            from turnwire.cli.inspect.load import send_again

            if asyncio.run(send_again(capture, target, speed, key, model)):
                sys.exit(1)
            return
        settings = replay_settings(capture, place, base)
        if as_engine:
            _serve(settings)
            return
        wanted = capture.turn(turn).turn_id if turn is not None else None
        different = asyncio.run(_compare(capture, settings, wanted))
    except (CaptureError, AssemblyError) as error:
        raise click.ClickException(str(error)) from None
    if different:
        sys.exit(1)


def _serve(settings: Settings) -> None:
    from turnwire.cli.serve import listen
    from turnwire.gateway.server import StartInterrupted, run

    try:
        run(settings, listen(settings.host, settings.port))
    except StartInterrupted:
        sys.exit(130)


async def _compare(capture: Capture, settings: Settings, only: str | None) -> int:
    from turnwire.gateway.replay.replaying import replay as run_again

    equal = skipped = different = 0
    async for one in run_again(capture, settings, only):
        if only is not None and one.turn.turn_id != only:
            continue
        if one.skipped:
            skipped += 1
            click.echo(f"turn {one.turn.turn_id}: not compared, {one.skipped}")
        elif one.differences:
            different += 1
            for difference in one.differences:
                click.echo(str(difference))
        else:
            equal += 1
    click.echo(f"{equal} {'turn' if equal == 1 else 'turns'} equal, {different} different, {skipped} not compared")
    return different


@click.command()
@click.argument("turn")
@click.argument("place", metavar="FILE")
@click.option("--output", "-o", type=click.Path(dir_okay=False), help="Where to.  [default: TURN.capture.jsonl]")
@click.option("--expect", type=click.Path(exists=True, dir_okay=False), help="JSON list of the blocks it should give.")
def repro(turn: str, place: str, output: str | None, expect: str | None) -> None:
    """Write the smallest bundle that shows TURN of a capture: the turn, and what its prompt recalls."""
    try:
        capture = load_capture(place)
        found = capture.turn(turn)
        expected = _expected(expect) if expect is not None else None
        lines = list(bundle(capture, found, expected))
    except CaptureError as error:
        raise click.ClickException(str(error)) from None
    target = Path(output or f"{found.turn_id}.capture.jsonl")
    target.write_bytes(b"".join(map(encode_line, lines)))
    others = sum(isinstance(line, CapturedTurn) and line.memory for line in lines)
    click.echo(f"{target}: {target.stat().st_size:,} bytes, the turn and {others} that it recalls. Run it again with:")
    click.echo(f"  turnwire replay {target}")


def _expected(path: str) -> list[ParsedBlock]:
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=list[ParsedBlock])
    except msgspec.DecodeError as error:
        raise CaptureError(
            f'{path} is not a list of blocks like [{{"kind": "tool_call", "name": "ls", "arguments": {{}}}}]: {error}'
        ) from None
