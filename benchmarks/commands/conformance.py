"""Judges Turnwire and its peers by `turnwire conformance`, one after another, and writes docs/conformance.md.

    python -m benchmarks conformance [--servers turnwire,dynamo,…] [--rule calls] [--save]

Promise: every server is judged by the same rules, in front of the same scripted turns where it takes an engine from
outside; a server that cannot be started is on the page with the reason. A run of all servers keeps nothing of an
earlier one; a run of some (`--servers`) replaces theirs, and the page says so. `--page` only writes the page anew.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from benchmarks.measure.results import FOLDER, machine, place, today
from benchmarks.peers import cache
from benchmarks.peers.gateways import Stage
from benchmarks.peers.servers import SERVERS, TITLES, Served
from turnwire.conformance.exchange import Limits
from turnwire.conformance.page import html_page, markdown
from turnwire.conformance.runner import run
from turnwire.conformance.stand_in import Folder, write_folder
from turnwire.conformance.words import WORDS, Cell, Report

import clients as real_clients  # type: ignore[import-not-found]  # isort: skip - tools/, which cache.py puts on the path

FILE = FOLDER / "conformance.json"
PAGE = cache.ROOT / "docs" / "conformance.md"
BEGIN, END = "<!-- servers: written by `python -m benchmarks conformance --save` -->", "<!-- end of servers -->"


EXPLAINED = """\
In the first, the engine wrote the call `{"name": "get_weather", "arguments": {"city":"Lisbon"}}`, without the space
that templates write after a colon. Messages carries arguments as an object, in which that spelling is gone. The next
prompt that the engine noted still begins with the ids of its first prompt and of its own output. In the second, the
engine says a token every 8 ms: a short call, then a long one. The first call's `content_block_stop` came so long before
`message_delta`, while the second call was still written."""


class Results(msgspec.Struct):
    """The result file: reports by server, and why the others are missing. `minutes` is how long one run of all servers
    took, None where the reports are of several runs."""

    taken: str
    reports: dict[str, Report]
    missing: dict[str, str] = {}
    minutes: float | None = None
    machine: dict[str, str | int | float] = {}
    clients: dict[str, str] = {}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--servers", default=",".join(SERVERS), help="comma-separated")
    parser.add_argument("--rule", action="append", default=[], help="only rules whose names begin so")
    parser.add_argument("--save", action="store_true", help="write the result file and the page")
    parser.add_argument("--page", action="store_true", help="write the page from the result file, judge nothing")
    parser.add_argument("--html", type=Path, help="write a page on which every cell opens to its evidence")
    chosen = parser.parse_args(arguments)
    names = chosen.servers.split(",")
    if unknown := [name for name in names if name not in SERVERS]:
        raise SystemExit(f"unknown servers: {', '.join(unknown)}; known: {', '.join(SERVERS)}")
    if chosen.rule and chosen.save:
        raise SystemExit("--save wants every rule: leave out --rule, or --save")
    whole = set(names) == set(SERVERS) and not chosen.page
    results = Results(today(), {}) if whole or not FILE.exists() else read()
    if not chosen.page:
        results.minutes, results.machine, results.clients = None, machine(), put_clients_on_the_path()
        began = time.monotonic()
        for name in names:
            results.missing.pop(name, None)
            results.reports.pop(name, None)
            try:
                results.reports[name] = judge(name, chosen.rule)
            except (Exception, SystemExit) as error:
                # Whatever a server or its installation does, the others are judged.
                results.missing[name] = why_missing(error)
                print(f"{name}: not judged: {str(error)[-1500:]}", file=sys.stderr, flush=True)
            results.taken = today()
            if whole and name == names[-1]:
                results.minutes = round((time.monotonic() - began) / 60, 1)
            if chosen.save:
                FILE.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")
    if chosen.save or chosen.page:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")
    if chosen.html:
        chosen.html.write_text(html_page(_ordered(results)), encoding="utf-8")


def put_clients_on_the_path() -> dict[str, str]:
    """The pinned real clients that are installed, by name, with their versions."""
    found = [real_clients.BUNDLES[name] for name in ("node", "claude", "codex")]
    found = [bundle for bundle in found if bundle.installed]
    folders = [str(bundle.executable.parent) for bundle in found]
    os.environ["PATH"] = os.pathsep.join([*folders, os.environ.get("PATH", "")])
    return {bundle.name: bundle.pins[0].rpartition("@")[2] for bundle in found if bundle.name != "node"}


def judge(name: str, rules: list[str]) -> Report:
    """Start one server, judge it, stop it."""
    with tempfile.TemporaryDirectory(prefix="turnwire-conformance-") as scratch:
        stage = Stage(Path(scratch) / "playbook", Path(scratch))
        write_folder(stage.playbook, cache.model() / "tokenizer.json")
        try:
            served = SERVERS[name](stage)
            return _named(asyncio.run(_judged(served, rules)), served)
        finally:
            stage.stop()


async def _judged(served: Served, rules: list[str]) -> Report:
    stand_in = Folder(served.folder) if served.folder is not None else None

    def told(cell: Cell) -> None:
        print(f"{served.name:22} {cell.api:10} {cell.rule:22} {cell.word:12} {cell.reason}", flush=True)

    return await run(
        served.url,
        model=served.model,
        stand_in=stand_in,
        only=rules,
        most=served.most,
        excused=served.excused,
        clients=True,
        again=True,
        limits=Limits(seconds=90),
        told=told,
    )


def why_missing(error: BaseException) -> str:
    """Why a server was not judged, in a line that names no folder of this machine."""
    said = (str(error).splitlines() or [""])[0].strip() or type(error).__name__
    for folder in (tempfile.gettempdir(), str(cache.folder()), str(cache.ROOT), str(Path.home())):
        said = said.replace(folder, "…")
    return said[:300]


def _named(report: Report, served: Served) -> Report:
    """The report with the server's name, and without the port that it happened to get."""
    return msgspec.structs.replace(
        report,
        url="http://127.0.0.1",
        server=served.name,
        version=served.version,
        flags=served.flags,
        engine=served.engine,
    )


def read() -> Results:
    """The saved results."""
    return msgspec.json.decode(FILE.read_bytes(), type=Results)


def page(text: str, results: Results) -> str:
    """The page with its generated part made anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    reports = _ordered(results)
    counted = [
        f"| {report.server} | "
        + " | ".join(str(sum(cell.word == word for cell in report.cells)) for word in WORDS)
        + f" | {len(report.cells)} |"
        for report in reports
    ]
    servers = [f"| {r.server} | {r.version} | `{r.flags}` | {r.engine} |" for r in reports]
    servers += [f"| {TITLES.get(name, name)} | – | – | not judged: {why} |" for name, why in results.missing.items()]
    parts = [
        f"{_when(results)} A cell with several words has one for each API: chat / messages /",
        "responses, or those of them on which the rule has a meaning.",
        "",
        markdown(reports),
        "",
        "| cells | " + " | ".join(WORDS) + " | all |",
        "|---|" + "---|" * (len(WORDS) + 1),
        *counted,
        "",
        "| server | version | flags | behind it |",
        "|---|---|---|---|",
        *servers,
        "",
        *_clients(results),
        *_opened(results),
    ]
    return f"{before}{BEGIN}\n\n" + "\n".join(parts) + f"\n\n{END}{after}"


def _when(results: Results) -> str:
    """When it was judged, and whether in one run."""
    if results.minutes is None:
        days = sorted({report.taken for report in results.reports.values()} | {results.taken})
        return f"Judged on {' and '.join(days)}, in several runs."
    minutes = f"{results.minutes:.0f} minutes"
    return f"Judged on {results.taken} in one run of {minutes} on {place(results.machine)}."


def _clients(results: Results) -> list[str]:
    if not results.clients:
        return []
    named = ", ".join(f"{name} {version}" for name, version in results.clients.items())
    return [f"Real clients: {named}, each with its own requests.", ""]


def _opened(results: Results) -> list[str]:
    """Two of Turnwire's cells with their evidence."""
    report = results.reports.get("turnwire")
    lines = ["Two of Turnwire's cells, opened:", ""]
    for rule, api in (("replay.spelling", "messages"), ("calls.early", "messages")) if report else ():
        cell = report.cell(rule, api) if report else None
        if cell is not None:
            seen = "; ".join(cell.evidence)
            lines.append(f"- `{rule}` on {api} is **{cell.word}**: {cell.reason}. Evidence: {seen}.")
    return [*lines, "", *EXPLAINED.splitlines()] if len(lines) > 2 else []


def _ordered(results: Results) -> list[Report]:
    return [results.reports[name] for name in SERVERS if name in results.reports]
