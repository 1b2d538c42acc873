"""`turnwire bench prefix`: what a stable prefix is worth on the user's own engine.

Promise: the conditions are those of the table in `conversation`; each is sent `--rounds` times after one request that
is kept apart; with `--json` every single time is written.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import click
import msgspec

from turnwire.cli.bench.conversation import CONDITIONS, Conversation, Dice, conversation
from turnwire.cli.bench.timing import Client, Timed, interval

__all__ = ["bench", "conditions", "table"]


async def conditions(client: Client, made: Conversation, rounds: int) -> dict[str, Timed]:
    """Every condition, one after another."""
    found = {}
    for name, (about, body) in CONDITIONS.items():
        dice = Dice(name)
        found[name] = await client.measure(about, [body(made, f"{name} {n}", dice) for n in range(rounds + 1)])
    return found


def table(found: dict[str, Timed]) -> list[str]:
    """One line per condition: the middle time, its interval, how it compares with the first, and what was cached."""
    base = next(iter(found.values())).median
    heads = f"{'condition':<28}{'median ms':>10}  {'95 % interval':<18}{'ratio':>6}  {'cached of prompt':<20}"
    lines = [f"{heads}gateway ms"]
    for name, timed in found.items():
        low, high = interval(timed.times)
        share = "" if timed.share is None else f"{timed.share:.1f}"
        lines.append(
            f"{name:<28}{timed.median:>10.1f}  {f'{low:.1f} to {high:.1f}':<18}{timed.median / base:>6.2f}  "
            f"{f'{timed.cached[-1]:,} of {timed.prompt[-1]:,}':<20}{share}"
        )
    return lines


@click.group()
def bench() -> None:
    """Measure the gateway and the engine you have."""


@bench.command()
@click.option("--url", default="http://127.0.0.1:8390", show_default=True, help="The gateway.")
@click.option("--model", help="The model to ask for; the gateway's default if not given.")
@click.option("--key", envvar="TURNWIRE_API_KEY", help="The gateway's API key; better set TURNWIRE_API_KEY.")
@click.option("--tokens", default=52_000, show_default=True, help="Length of the prompt.")
@click.option("--rounds", default=30, show_default=True, type=click.IntRange(1, 1000), help="Requests per condition.")
@click.option("--request", "recorded", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="A recorded Messages request whose system prompt and tools are used.")  # fmt: skip
@click.option("--json", "target", type=click.Path(dir_okay=False, path_type=Path), help="Write every time here.")
def prefix(
    url: str, model: str | None, key: str | None, tokens: int, rounds: int, recorded: Path | None, target: Path | None
) -> None:
    """Time to the first token with a stable prefix, and with the things that break it."""
    request = _recorded(recorded) if recorded is not None else None

    async def run() -> dict[str, Timed]:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600)) as session:
            client = Client(session, url, model=model, key=key)
            made = await conversation(tokens, request, client.count)
            return await conditions(client, made, rounds)

    try:
        found = asyncio.run(run())
    except (aiohttp.ClientError, RuntimeError, TimeoutError) as error:
        raise click.ClickException(f"{error}\nIs a gateway running at {url}?") from error
    click.echo("\n".join(table(found)))
    if target is not None:
        target.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")


def _recorded(file: Path) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(file.read_bytes())
    except msgspec.DecodeError as error:
        raise click.ClickException(f"{file} is not a JSON request body: {error}") from error
    if not isinstance(found, dict):
        raise click.ClickException(f"{file} is not a JSON object")
    return found
