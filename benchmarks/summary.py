"""README's second table: what result files beside the gateways' say, a line each.

Promise: every figure is read from its file; a line whose file is absent is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.fidelity.outcomes import Restarts
from benchmarks.measure.results import span
from benchmarks.parser_figures import ENGINES, ParserFigures

__all__ = ["summary_block"]


class _Storm(msgspec.Struct):
    tally: dict[str, int]
    faults: dict[str, int]


class _Fuzzed(msgspec.Struct):
    tally: dict[str, Any]


def summary_block(folder: Path) -> list[str]:
    """The lines of the table."""
    made: dict[str, Callable[[bytes], str]] = {
        "parsers": _parsers,
        "restarts": _restarts,
        "storm": _storm,
        "fuzz": _fuzz,
    }
    rows = [
        row((folder / f"{name}.json").read_bytes()) for name, row in made.items() if (folder / f"{name}.json").exists()
    ]
    return ["| | Turnwire | others |", "|---|---|---|", *rows] if rows else []


def _parsers(data: bytes) -> str:
    found = msgspec.json.decode(data, type=ParserFigures)
    sizes = found.sizes
    first, last = sizes[0], sizes[-1]
    own = span([value for size in sizes for value in found.at("turnwire", size)])
    others = [
        f"{ENGINES[engine]} {found.versions[engine]}: {span(found.at(engine, first))} at {first} KB, "
        f"{span(found.at(engine, last))} at {last} KB"
        for engine in found.versions
    ]
    what = f"CPU per token of the parser alone, in arguments of {first} to {last} KB, four families, µs (`parsers`)"
    return f"| {what} | {own} | {'; '.join(others)} |"


def _restarts(data: bytes) -> str:
    found = msgspec.json.decode(data, type=Restarts)
    held, pairs = sum(count.held for count in found.counts), sum(count.pairs for count in found.counts)
    what = f"turns read again exactly over restarts and replicas, {found.templates} real templates (`restarts`)"
    return f"| {what} | {held:,} of {pairs:,} | |"


def _storm(data: bytes) -> str:
    found = msgspec.json.decode(data, type=_Storm)
    good = sum(found.tally.get(name, 0) for name in ("complete", "left"))
    wrong = sum(count for name, count in found.tally.items() if name not in ("complete", "left"))
    what = f"turns in front of servers that fail, in {len(found.faults)} ways (`storm`)"
    return f"| {what} | {good + wrong:,}: {wrong} lost, truncated, wrong or told an error | |"


def _fuzz(data: bytes) -> str:
    tally = msgspec.json.decode(data, type=_Fuzzed).tally
    what = f"bad requests over {len(tally['routes'])} routes (`fuzz`)"
    return f"| {what} | {tally['requests']:,}: {tally['found']} with status 500, hung, cut or of a wrong shape | |"
