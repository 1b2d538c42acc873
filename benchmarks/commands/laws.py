"""The three laws of exactness, asked of this checkout and of others.

    python -m benchmarks laws [--also NAME=FOLDER] [--save]

For the first release: `git worktree add FOLDER 8763782`, then `--also first=FOLDER`.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

import msgspec

from benchmarks.fidelity.laws import ROOT, forged, leaking, returned
from benchmarks.fidelity.outcomes import Laws
from benchmarks.measure.results import FOLDER, today

OWN = "this checkout"


def main(arguments: list[str]) -> None:
    """Ask each checkout, and print what was tried and broken."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks laws", description=__doc__.partition("\n")[0])
    parser.add_argument("--also", action="append", default=[], metavar="NAME=FOLDER", help="another checkout")
    parser.add_argument("--places", type=int, default=3, help="how many broken places are named")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/laws.json")
    options = parser.parse_args(arguments)
    checkouts = {OWN: ROOT}
    checkouts |= {name: Path(folder) for name, _, folder in (also.partition("=") for also in options.also)}
    made = Laws("laws", today(), {name: [] for name in checkouts})
    for name, folder in checkouts.items():
        for ask in (lambda place: asyncio.run(leaking(place)), lambda place: asyncio.run(forged(place)), returned):
            law = ask(folder)
            print(f"{name}: {law.name}: {law.tried} tried, {law.broken} broken", flush=True)
            law.places = law.places[: options.places]
            made.checkouts[name].append(law)
            for place in law.places:
                print(f"    {place}")
    if options.save:
        (FOLDER / "laws.json").write_bytes(msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n")
