"""Reports as a terminal table, as Markdown and as an HTML page.

Promise: what a server said is text on the page, never markup.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from turnwire.conformance.rules.table import CLIENT_RULES, RULES
from turnwire.conformance.words import APIS, WORDS, Cell, Report

__all__ = ["html_page", "markdown", "terminal"]

_ROWS = (*RULES, *CLIENT_RULES)
_COLOURS = {"preserved": "green", "adapted": "cyan", "unsupported": "yellow", "broken": "red", "unknown": "dim"}
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse}"
    "td,th{border:1px solid #ccc;padding:.25rem .6rem;text-align:left;vertical-align:top}"
    ".preserved{background:#d9f2dd}.adapted{background:#d8eef7}.unsupported{background:#fdf1cc}"
    ".broken{background:#f9d6d3}.unknown{background:#eee}summary{cursor:pointer}pre{white-space:pre-wrap}"
)


def terminal(report: Report) -> Table:
    """A row for each rule, a column for each API."""
    apis = [api for api in APIS if any(cell.api == api for cell in report.cells)]
    table = Table(title=f"{report.url}, model {report.model}", title_justify="left")
    table.add_column("rule")
    for api in apis:
        table.add_column(api)
    table.add_column("why", overflow="fold")
    for rule in _ROWS:
        cells = [report.cell(rule.name, api) for api in apis]
        if not any(cells):
            continue
        reasons = dict.fromkeys(cell.reason for cell in cells if cell is not None and cell.word != "preserved")
        shown = [Text(cell.word, style=_COLOURS[cell.word]) if cell else Text("") for cell in cells]
        table.add_row(rule.name, *shown, Text("; ".join(reasons)))
    return table


def markdown(reports: Sequence[Report]) -> str:
    """A column for each server; a cell has a word for each API of the rule, or one where all are the same."""
    lines = [f"| rule | {' | '.join(report.server for report in reports)} |", "|---|" + "---|" * len(reports)]
    for rule in _ROWS:
        if rule in CLIENT_RULES and not any(cell.rule == rule.name for report in reports for cell in report.cells):
            continue
        row = []
        for report in reports:
            cells = [cell for api in rule.apis if (cell := report.cell(rule.name, api)) is not None]
            words = [cell.word for cell in cells]
            row.append(words[0] if words and len(set(words)) == 1 else " / ".join(words) or "–")
        lines.append(f"| {rule.demands} (`{rule.name}`) | {' | '.join(row)} |")
    return "\n".join(lines)


def html_page(reports: Sequence[Report]) -> str:
    """A page on which every cell opens to its evidence."""
    words = "".join(f'<li><span class="{word}">{word}</span>: {meaning}</li>' for word, meaning in WORDS.items())
    body = "".join(_section(report) for report in reports)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Conformance</title><style>{_STYLE}</style>'
        f"<h1>Conformance</h1><ul>{words}</ul>{body}</html>\n"
    )


def _section(report: Report) -> str:
    about = ", ".join(part for part in (report.server, report.version, report.model, report.url, report.taken) if part)
    apis = [api for api in APIS if any(cell.api == api for cell in report.cells)]
    heads = "".join(f"<th>{api}</th>" for api in apis)
    rows = []
    for rule in _ROWS:
        if not any(report.cell(rule.name, api) for api in apis):
            continue
        cells = "".join(_cell(report.cell(rule.name, api)) for api in apis)
        rows.append(f"<tr><th>{html.escape(rule.demands)}<br><code>{rule.name}</code></th>{cells}</tr>")
    return f"<h2>{html.escape(about)}</h2><table><tr><th></th>{heads}</tr>{''.join(rows)}</table>"


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return "<td></td>"
    evidence = html.escape("\n".join((cell.reason, *cell.evidence)))
    return f'<td class="{cell.word}"><details><summary>{cell.word}</summary><pre>{evidence}</pre></details></td>'
