"""The three laws of exactness, asked of this checkout and of others.

    python -m benchmarks laws [--also NAME=FOLDER]

For the first release: `git worktree add FOLDER 8763782`, then `--also first=FOLDER`.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from benchmarks.fidelity.laws import ROOT, forged, leaking, returned


def main(arguments: list[str]) -> None:
    """Ask each checkout, and print what was tried and broken."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks laws", description=__doc__.partition("\n")[0])
    parser.add_argument("--also", action="append", default=[], metavar="NAME=FOLDER", help="another checkout")
    parser.add_argument("--places", type=int, default=3, help="how many broken places are named")
    options = parser.parse_args(arguments)
    checkouts = {"this checkout": ROOT}
    checkouts |= {name: Path(folder) for name, _, folder in (also.partition("=") for also in options.also)}
    for name, folder in checkouts.items():
        for ask in (lambda place: asyncio.run(leaking(place)), lambda place: asyncio.run(forged(place)), returned):
            law = ask(folder)
            print(f"{name}: {law.name}: {law.tried} tried, {law.broken} broken", flush=True)
            for place in law.places[: options.places]:
                print(f"    {place}")
