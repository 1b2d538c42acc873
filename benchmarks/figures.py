"""The tables of figures in README.md and on pages of docs/, made from the result files.

    python -m benchmarks figures [--check]

Promise: no figure in the table is written by hand; each is the range of a result file's rounds. `--check` writes
nothing and fails where a page says something else.
"""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.commands.fidelity import Table
from benchmarks.commands.prefix import Run
from benchmarks.endurance.page import reliability_block
from benchmarks.fidelity.cells import Cell as FidelityCell
from benchmarks.fidelity.outcomes import Laws, Restarts
from benchmarks.measure import versions
from benchmarks.measure.results import FOLDER, Result, place, read, span
from benchmarks.measure.rows import APIS, COMMANDS, GATEWAYS, Row, measured_rows
from benchmarks.observing import block as observing_block
from benchmarks.parity.page import parity_block
from benchmarks.parser_figures import parser_block
from benchmarks.peers.table import peers_block
from benchmarks.replicas.page import pictures, replicas_block
from benchmarks.summary import summary_block
from turnwire.cli.bench.timing import interval

ROOT = Path(__file__).resolve().parents[1]
README, BENCHMARKS = ROOT / "README.md", ROOT / "benchmarks" / "README.md"
PREFIX, FIDELITY = ROOT / "docs" / "prefix.md", ROOT / "docs" / "fidelity.md"
CAPTURE, SEALS = ROOT / "docs" / "capture.md", ROOT / "docs" / "seals.md"
RELIABILITY = ROOT / "docs" / "reliability.md"
REPLICAS = ROOT / "docs" / "replicas.md"
PARITY, PARSERS = ROOT / "docs" / "parity.md", ROOT / "docs" / "parsers.md"
IMAGES = ROOT / "docs" / "images"
BEGIN, END = "<!-- figures: written by `python -m benchmarks figures` -->", "<!-- end of figures -->"


def readme_block(folder: Path = FOLDER) -> str:
    """The text between the README's two marks."""
    return "\n".join([*peers_block(folder / "peers"), *_first_token(folder), "", *summary_block(folder)])


def quiet_block(folder: Path = FOLDER) -> str:
    """The text between the two marks of benchmarks/README.md."""
    results = {name: read(name, folder) for name in COMMANDS if (folder / f"{name}.json").exists()}
    if not results:
        return "Nothing is measured yet."
    columns = [name for name in GATEWAYS if any(name in result.gateways for result in results.values())]
    lines = [
        "Ranges over rounds in which the gateways took turns, each in front of a scripted engine process that says the",
        "same tokens; chat / messages / responses, and – where a gateway has no such route or was not measured.",
        "",
        f"| | {' | '.join(GATEWAYS[name] for name in columns)} |",
        "|---|" + "---|" * len(columns),
    ]
    for row in measured_rows(results):
        cells = [_cell(results[row.command], name, row) for name in columns]
        lines.append(f"| {row.text} (`{row.command}`) | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *_about(results)])


def _cell(result: Result, gateway: str, row: Row) -> str:
    """The ranges of a gateway, one for each API that the command measured."""
    measured = [api for api in APIS if any(cell.api == api and cell.case == row.case for cell in result.cells)]
    parts = []
    for api in measured:
        cell = result.cell(gateway, api, row.case)
        values = cell.figures.get(row.figure) if cell is not None else None
        parts.append(span(values) if values else "–")
    return "–" if set(parts) == {"–"} else " / ".join(parts)


def _about(results: dict[str, Result]) -> list[str]:
    """What was measured, where and when."""
    peers = {
        GATEWAYS[name]: about["version"]
        for result in results.values()
        for name, about in result.gateways.items()
        if not name.startswith("turnwire")
    }
    own: dict[str, list[str]] = {}
    for command, result in results.items():
        if "turnwire" in result.gateways:
            own.setdefault(versions.named(result.gateways["turnwire"]["version"], ROOT), []).append(command)
    named = [f"Turnwire at {commit} in {', '.join(commands)}" for commit, commands in own.items()]
    named += [f"{name} {version}" for name, version in peers.items()]
    days = sorted({result.taken for result in results.values()})
    machine = next(iter(results.values())).machine
    busy = " that other work used too" if any(float(each.machine["load"]) > 1 for each in results.values()) else ""
    where = f"{place(machine)}{busy}, Python {machine['python']}"
    return [f"{'; '.join(named)}.", f"Taken {_range(days)} on {where}."]


def _first_token(folder: Path) -> list[str]:
    """What a stable prefix was worth on a GPU, in two lines."""
    if not (folder / "prefix.json").exists():
        return []
    run = _prefix(folder)
    shown = [f"{name} {run.conditions[name].median:.0f} ms" for name in ("stable", "varying", "stripped")]
    shown += [
        f"{name} {run.conditions[name].median:.0f} ms" for name in ("replayed after a restart", "thought changed")
    ]
    tokens = run.conditions["stable"].prompt[-1]
    return [
        "",
        f"Time to first token of a {tokens:,}-token prompt, {run.engine}: {', '.join(shown)}; "
        "[prefix](docs/prefix.md).",
    ]


def _prefix(folder: Path) -> Run:
    return msgspec.json.decode((folder / "prefix.json").read_bytes(), type=Run)


def _range(days: Sequence[str]) -> str:
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"


def prefix_block(folder: Path = FOLDER) -> str:
    """The text between the two marks of docs/prefix.md."""
    run = _prefix(folder)
    base = next(iter(run.conditions.values()))
    published = run.published | {"replayed": run.published["thought intact"]}
    lines = [
        "| condition | first token, ms | 95 % interval | ratio | prompt tokens read again | gateway's share, ms "
        "| first request, ms | published, ms |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, timed in run.conditions.items():
        low, high = interval(timed.times)
        again = statistics.median(whole - part for whole, part in zip(timed.prompt, timed.cached, strict=True))
        share = "–" if timed.share is None else f"{timed.share:.1f}"
        known = f"{published[name]:.0f}" if name in published else ""
        lines.append(
            f"| {name}: {timed.about} | {timed.median:.0f} | {low:.0f} to {high:.0f} | "
            f"{timed.median / base.median:.2f} | {again:,.0f} of {timed.prompt[-1]:,} | {share} "
            f"| {timed.cold:.0f} | {known} |"
        )
    about = (
        f"Median of {len(base.times)} requests each, the first of a condition apart. Engine: {run.engine}. Prompt: "
        f"{run.request}. Taken {run.taken} on {place(run.machine)}. The gateway's "
        "share is what is left of a time when the engine's own is taken off: gateway, client and the wire between them."
    )
    return "\n".join([*lines, "", about])


FEATURES = ("parallel", "interleaved", "restart", "markup", "compaction")
SHORT = {
    "held": "held",
    "held, one call a turn": "held (1)",
    "held, asked apart": "apart",
    "does not think": "–",
    "no such form": "–",
}


def fidelity_block(folder: Path = FOLDER) -> str:
    """The text between the two marks of docs/fidelity.md."""
    made = msgspec.json.decode((folder / "fidelity.json").read_bytes(), type=Table)
    clients = list(dict.fromkeys(cell.client for cell in made.table))
    lines = [f"| family | {' | '.join(clients)} |", "|---|" + "---|" * len(clients)]
    counts: Counter[str] = Counter()
    for family in dict.fromkeys(cell.family for cell in made.table):
        row = {cell.client: cell for cell in made.table if cell.family == family}
        own = next(iter(row.values())).own_tokenizer
        lines.append(
            f"| {family}{'' if own else ' *'} | {' | '.join(_features(row.get(c), counts) for c in clients)} |"
        )
    versions = ", ".join(f"{name} {made.clients[name]}" for name in clients)
    words = ", ".join(f"{word} {count}" for word, count in counts.most_common())
    return "\n".join([*lines, "", f"Pairs of turns by word: {words}. Clients: {versions}. Taken {made.taken}."])


def _features(cell: FidelityCell | None, counts: Counter[str]) -> str:
    """One client on one family: two calls at once / thoughts between calls / restart / own markup / compaction."""
    if cell is None:
        return "not run"
    said = []
    for feature in FEATURES:
        word = getattr(cell, feature)
        short = SHORT.get(word) or ("moved" if word.startswith("moved") else word.partition(":")[0].partition(" in")[0])
        if feature == "restart" and cell.stored == "held":
            short = "store"
        said.append(short)
        if short != "–":
            counts[short] += 1
    return " / ".join(said) + (" !" if cell.problem else "")


def restarts_block(folder: Path = FOLDER) -> str:
    """The text between the two marks of docs/seals.md."""
    made = msgspec.json.decode((folder / "restarts.json").read_bytes(), type=Restarts)
    lines = ["| gateways | habits | pairs of turns that hold | verdicts | false |", "|---|---|---|---|---|"]
    lines += [
        f"| {count.layout} | {count.habit} | {count.held} of {count.pairs} | {count.said} | {count.false} |"
        for count in made.counts
    ]
    return "\n".join([*lines, "", f"{made.templates} templates. Taken {made.taken}."])


def laws_block(folder: Path = FOLDER) -> str:
    """The text between the second two marks of docs/fidelity.md."""
    made = msgspec.json.decode((folder / "laws.json").read_bytes(), type=Laws)
    lines = [
        f"| law | {' | '.join(f'{name}: broken of tried' for name in made.checkouts)} |",
        "|---|" + "---|" * len(made.checkouts),
    ]
    for each in zip(*made.checkouts.values(), strict=True):
        counts = [f"{law.broken:,} of {law.tried:,}" for law in each]
        lines.append(f"| {each[0].name} | {' | '.join(counts)} |")
    return "\n".join([*lines, "", f"Taken {made.taken}."])


def page_with(text: str, blocks: Sequence[str]) -> str | None:
    """A page with these texts between its marks, in their order; None where it has not as many marks."""
    before, *rest = text.split(BEGIN)
    if len(rest) != len(blocks) or not all(END in part for part in rest):
        return None
    written = [f"{BEGIN}\n\n{made}\n\n{END}{part.partition(END)[2]}" for made, part in zip(blocks, rest, strict=True)]
    return before + "".join(written)


def main(arguments: list[str]) -> None:
    pages: dict[Path, tuple[str, ...]] = {
        README: (readme_block(),),
        BENCHMARKS: (quiet_block(),),
        PREFIX: (prefix_block(),),
        FIDELITY: (fidelity_block(), laws_block()),
        CAPTURE: (observing_block(),),
        RELIABILITY: (reliability_block(FOLDER),),
        REPLICAS: (replicas_block(),),
        SEALS: (restarts_block(),),
        PARITY: (parity_block(),),
        PARSERS: (parser_block(FOLDER),),
    }
    for page, blocks in pages.items():
        text = page.read_text(encoding="utf-8")
        written = page_with(text, blocks)
        if written is None:
            raise SystemExit(f"{page.name} has not {len(blocks)} times {BEGIN} ... {END}")
        if written == text:
            continue
        if "--check" in arguments:
            raise SystemExit(
                f"{page.name}'s figures are not those of benchmarks/results: run python -m benchmarks figures"
            )
        page.write_text(written, encoding="utf-8")
        print(f"{page.name}: figures written", file=sys.stderr)
    for name, drawn in pictures().items():
        image = IMAGES / name
        if image.read_text(encoding="utf-8") == drawn:
            continue
        if "--check" in arguments:
            raise SystemExit(f"{name} is not drawn from benchmarks/results: run python -m benchmarks figures")
        image.write_text(drawn, encoding="utf-8")
        print(f"{name}: drawn", file=sys.stderr)
