"""`turnwire top`: the turns that run now, in the terminal.

Promise: one small request a second; Ctrl-C leaves a clean terminal.
"""

from __future__ import annotations

import contextlib
import time

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from turnwire.cli.inspect.operator import gateway_options, last_turns, live_turns
from turnwire.gateway.telemetry.journal import TurnSummary
from turnwire.gateway.telemetry.live import LiveTurn

__all__ = ["top"]

_RECENT = 8
_NUMBERS = frozenset({"prompt", "cached", "output", "tok/s", "first", "time"})


@click.command()
@gateway_options
@click.option("--once", is_flag=True, help="Print one picture and end.")
def top(url: str, key: str | None, once: bool) -> None:
    """Show live turns, and the last ones that ended."""
    console = Console()

    def picture() -> Group:
        return _picture(url, live_turns(url, key), last_turns(url, key, limit=_RECENT))

    if once:
        console.print(picture())
        return
    with contextlib.suppress(KeyboardInterrupt), Live(picture(), console=console, screen=True) as screen:
        while True:
            time.sleep(1.0)
            screen.update(picture())


def _picture(url: str, live: list[LiveTurn], ended: list[TurnSummary]) -> Group:
    running = Table(title=f"{len(live)} live at {url}", title_justify="left", expand=True)
    for name in ("session", "client", "model", "stage", "prompt", "output", "tok/s", "time"):
        running.add_column(name, justify="right" if name in _NUMBERS else "left")
    for turn in live:
        speaking = turn.seconds - turn.first_token if turn.first_token is not None else 0.0
        running.add_row(
            _short(turn.session),
            _short(turn.client),
            turn.model,
            turn.stage,
            f"{turn.prompt_tokens:,}",
            f"{turn.output_tokens:,}",
            f"{turn.output_tokens / speaking:.1f}" if speaking > 0 else "-",
            f"{turn.seconds:.1f} s",
        )
    recent = Table(title="ended", title_justify="left", expand=True)
    for name in ("session", "model", "ended by", "prompt", "cached", "output", "first", "time", "prefix"):
        recent.add_column(name, justify="right" if name in _NUMBERS else "left")
    for one in ended:
        state = one.prefix.partition(";")[0]
        recent.add_row(
            _short(one.session),
            one.model,
            one.finish,
            f"{one.prompt_tokens:,}",
            f"{one.cached_tokens:,}",
            f"{one.output_tokens:,}",
            "-" if one.first_token is None else f"{one.first_token:.2f} s",
            f"{one.seconds:.1f} s",
            Text(f"{state} ({one.cause})" if one.lost else state, style="red" if one.lost else ""),
        )
    return Group(running, recent)


def _short(text: str | None) -> str:
    return "-" if not text else text if len(text) <= 20 else text[:19] + "…"
