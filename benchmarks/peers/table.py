"""README's table of peers: Turnwire's figures, and those of the others as multiples of them.

Promise: every figure is a range over the rounds of a file in results/peers; a multiple is taken within a round, in
which the gateways took turns, and never across machines or days.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from benchmarks.measure import versions
from benchmarks.measure.results import Result, place, read, span
from benchmarks.measure.rows import APIS, COMMANDS, GATEWAYS, ROWS, Row, measured_rows

__all__ = ["peers_block"]

ROOT = Path(__file__).resolve().parents[2]
BASE = "turnwire"
OTHERS = {name: title for name, title in GATEWAYS.items() if name != BASE}


def peers_block(folder: Path) -> list[str]:
    """The lines of the table, and what was measured where; none where nothing was."""
    results = {name: read(name, folder) for name in COMMANDS if (folder / f"{name}.json").exists()}
    if not results:
        return []
    columns = [name for name in OTHERS if any(name in result.gateways for result in results.values())]
    lines = [
        "Turnwire beside its peers, in rounds in which all of them took turns, each in front of a scripted engine that",
        "says the same tokens. Turnwire in figures, the others as multiples of it in the same round: x 2 is twice as",
        "much. Ranges over rounds; chat / messages / responses; – where a gateway has no such route or was left out.",
        "",
        f"| | Turnwire | {' | '.join(OTHERS[name] for name in columns)} |",
        "|---|---|" + "---|" * len(columns),
    ]
    for row in measured_rows(results):
        cells = [_cell(results[row.command], row, name) for name in (BASE, *columns)]
        lines.append(f"| {row.text} (`{row.command}`) | {' | '.join(cells)} |")
    return [*lines, "", *_about(results, columns)]


def _cell(result: Result, row: Row, gateway: str) -> str:
    measured = [api for api in APIS if result.cell(BASE, api, row.case) is not None]
    parts = []
    for api in measured:
        ours, theirs = (_rounds(result, name, api, row) for name in (BASE, gateway))
        if gateway == BASE:
            parts.append(span(ours) if ours else "–")
        else:
            parts.append(_ratios(ours, theirs) if ours and theirs else _absent(result, gateway, api, row))
    return "–" if set(parts) <= {"–"} else " / ".join(parts)


def _rounds(result: Result, gateway: str, api: str, row: Row) -> list[float]:
    cell = result.cell(gateway, api, row.case)
    return [] if cell is None else cell.figures.get(row.figure, [])


def _ratios(ours: list[float], theirs: list[float]) -> str:
    if len(ours) != len(theirs):
        # A round failed: which one is not kept, so all are held against the middle of ours.
        ours = [statistics.median(ours)] * len(theirs)
    ratios = [other / own for own, other in zip(ours, theirs, strict=True) if own]
    return "–" if not ratios else _two(min(ratios), max(ratios))


def _two(low: float, high: float) -> str:
    one, other = (f"{value:.0f}" if value >= 10 else f"{value:.2g}" for value in (low, high))
    return f"x {one}" if one == other else f"x {one} to {other}"


def _absent(result: Result, gateway: str, api: str, row: Row) -> str:
    cell = result.cell(gateway, api, row.case)
    return "failed" if cell is not None and cell.failed else "–"


def _about(results: dict[str, Result], columns: list[str]) -> list[str]:
    """What was measured, where and when; each machine with its own measurements."""
    known = {name: about["version"] for result in results.values() for name, about in result.gateways.items()}
    places: dict[str, list[str]] = {}
    for command, result in results.items():
        machine = result.machine
        busy = f", load {machine['load']} at the start" if float(machine["load"]) > 1 else ""
        own = versions.named(result.gateways[BASE]["version"], ROOT)
        where = f"{result.taken} on {place(machine)}{busy}, Turnwire at {own}"
        rounds = result.options.get("rounds")
        places.setdefault(where, []).append(f"{command} ({rounds} rounds)" if rounds else command)
    peers = ", ".join(f"{OTHERS[name]} {known[name]}" for name in columns if not name.startswith("turnwire"))
    lines = [f"{peers}."]
    lines += [f"Taken {where}: {', '.join(commands)}." for where, commands in places.items()]
    if "litellm" in columns:
        lines.append(
            "One process of LiteLLM does not carry 64 paced streams: left out there, 16 streams where saturated."
        )
        lines.append("It hands Responses on to the server behind it, vLLM's Rust frontend, which has no such route.")
    lines += _joined(results)
    return [
        *lines,
        "Again: `make bench-peers`. [How, and the nearest peer in figures](benchmarks/README.md).",
    ]


def _joined(results: dict[str, Result]) -> list[str]:
    """What must be known to compare the saturated case: who writes fewer events than the engine says tokens."""
    row = next(row for row in ROWS if row.case.startswith("saturated"))
    stream = results.get(row.command)
    if stream is None:
        return []
    each = {}
    for name in (BASE, *OTHERS):
        cell = stream.cell(name, "chat", row.case)
        if cell is not None and cell.figures.get("events"):
            each[name] = statistics.median(cell.figures["events"])
    joining = [OTHERS.get(name, "Turnwire") for name, events in each.items() if events < 0.5]
    if not joining:
        return []
    return [f"As fast as the engine sends, tokens that come together are one event in: {'; '.join(joining)}."]
