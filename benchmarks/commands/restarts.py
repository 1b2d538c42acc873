"""Tool loops over gateways that are restarted and over replicas, on every template of a folder.

    python -m benchmarks restarts --templates FOLDER [--save]

Each template plays a loop of four turns with the habits of real clients on three APIs, in four layouts of gateways. A
pair of turns holds when the ids of the later prompt begin with those of the earlier one and of what was said to it.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
from pathlib import Path

import msgspec

from benchmarks.fidelity.outcomes import Count, Restarts
from benchmarks.fidelity.restarts import LAYOUTS, played
from benchmarks.measure.results import FOLDER, today


def main(arguments: list[str]) -> None:
    """Run every template, print a line for each layout and habit, and write the result file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks restarts", description=__doc__.partition("\n")[0])
    parser.add_argument("--templates", type=Path, required=True, help="folder of chat templates, NAME.jinja")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/restarts.json")
    options = parser.parse_args(arguments)
    logging.disable(logging.WARNING)  # each break is printed here
    templates = sorted(options.templates.glob("*.jinja"))
    counts = {(name, habit): Count(name, habit) for name, layout in LAYOUTS.items() for habit in layout.habits}
    for template in templates:
        for name in LAYOUTS:
            for count in asyncio.run(played(template, name)):
                counts[name, count.habit].add(count)
                for each in count.broken:
                    print(f"{name} / {count.habit}: {each}", flush=True)
    for count in counts.values():
        print(
            f"{count.layout:<40} {count.habit:<24} held {count.held} of {count.pairs}; "
            f"verdicts {count.said}, false {count.false}"
        )
    if options.save:
        made = Restarts("restarts", today(), len(templates), list(counts.values()))
        (FOLDER / "restarts.json").write_bytes(msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n")
