"""The figures of docs/routing.md and their picture, made from a result file.

Promise: no figure is written by hand; the page and the picture follow from the file.
"""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.routing.result import IndexRun, Run, WorkersRun
from benchmarks.routing.simulation import Outcome

BEGIN, END = "<!-- figures: written by `python -m benchmarks routing --save` -->", "<!-- end of figures -->"
INDEX_BEGIN = "<!-- index: written by `python -m benchmarks routing --index ... --save` -->"
INDEX_END = "<!-- end of index -->"
WORKERS_BEGIN = "<!-- workers: written by `python -m benchmarks routing_workers --save` -->"
WORKERS_END = "<!-- end of workers -->"
COLOURS = ("#2f6fde", "#9aa3ad", "#d9822b", "#8a5cc2", "#7fb2f0")


def write_page(root: Path, run: Run) -> None:
    """Write the table and the picture."""
    _replace(root, BEGIN, END, figures(run))
    (root / "docs" / "images" / "routing.svg").write_text(picture(run), "utf-8")


def write_index_page(root: Path, run: IndexRun) -> None:
    """Write the table of the index."""
    _replace(root, INDEX_BEGIN, INDEX_END, index_figures(run))


def write_workers_page(root: Path, run: WorkersRun) -> None:
    """Write the tables of real workers."""
    _replace(root, WORKERS_BEGIN, WORKERS_END, workers_figures(run))


def workers_figures(run: WorkersRun) -> str:
    """What real workers did, between its marks."""
    lines = [WORKERS_BEGIN, "| phase | engine | turns | tokens of prompts | reported as cached | believed otherwise |"]
    lines.append("|---|---|---|---|---|---|")
    for row in run.beliefs:
        wrong = f"{row.wrong} turns, at most {row.error} tokens" if row.wrong else "0 turns"
        lines.append(f"| {row.phase} | {row.engine} | {row.turns} | {row.prompt:,} | {row.reported:,} | {wrong} |")
    lines += [
        "",
        f"{run.copies} agents on the {run.vllm} vLLM servers ({run.taken}, {run.machine['cores']} cores, load "
        f"{run.machine['load']}):",
        "",
        "| policy | turns | cached | first token, median | p99 | slowest tenth |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {one.policy} | {one.turns} | {one.hit_rate:.1%} | {one.ttft_median:.2f} s | {one.ttft_p99:.2f} s "
        f"| {one.slowest_tenth:.2f} s |"
        for one in run.agents
    ]
    return "\n".join([*lines, WORKERS_END])


def _replace(root: Path, begin: str, end: str, text: str) -> None:
    page = root / "docs" / "routing.md"
    pattern = re.escape(begin) + ".*?" + re.escape(end)
    page.write_text(re.sub(pattern, lambda _: text, page.read_text("utf-8"), flags=re.DOTALL), "utf-8")


def index_figures(run: IndexRun) -> str:
    """What the index costs, between its marks."""
    machine = run.machine
    lines = [
        INDEX_BEGIN,
        f"CPU of {machine['cpu']}, Python {machine['python']}, {run.taken[:10]}; a prompt of "
        f"{run.sizes[0].prompt:,} tokens in blocks of 16, of which every worker holds 40,000 tokens.",
        "",
        "| workers | blocks in all | numbers of the prompt's blocks | decision | block stored | block removed "
        "| worker started again | memory | per block |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {one.workers} | {one.blocks:,} | {one.hash_ms:.2f} ms | {one.decide_ms:.2f} ms | {one.stored_us:.1f} µs "
        f"| {one.removed_us:.1f} µs | {one.forget_ms:.1f} ms | {one.memory_mib:,.0f} MiB | {one.per_block:.0f} bytes |"
        for one in run.sizes
    ]
    return "\n".join([*lines, INDEX_END])


def figures(run: Run) -> str:
    """The tables, between their marks."""
    lines = [
        BEGIN,
        f"Conversations that were made up, and copies of captured ones ({', '.join(run.sources)}). Cached: of all "
        "tokens of prompts. First token: median and p99.",
        "",
        "| workers | policy | made up: turns | cached | first token | slowest tenth "
        "| captured: turns | cached | first token | slowest tenth |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for place in range(len(next(iter(run.outcomes.values())))):
        for name, outcomes in run.outcomes.items():
            pair = (outcomes[place], run.captured[name][place])
            lines.append(f"| {pair[0].workers} | {name} | {' | '.join(map(_cells, pair))} |")
    lines += ["", "Eight sub-agents that start at once with one prefix of 35K tokens, on four idle workers:", ""]
    lines += ["| policy | workers used | times the prefix was read |", "|---|---|---|"]
    lines += [f"| {name} | {fan.used} | {fan.prefix_reads:.1f} |" for name, fan in run.fan_out.items()]
    lines.append(END)
    return "\n".join(lines)


def _cells(one: Outcome) -> str:
    waits = f"{one.ttft_median:.2f} s, {one.ttft_p99:.2f} s | {one.slowest_tenth:.2f} s"
    return f"{one.turns:,} | {one.hit_rate:.1%} | {waits}"


def picture(run: Run) -> str:
    """Median and 99th percentile of the time to first token, a group of bars for each number of workers."""
    names = list(run.outcomes)
    width, panel = 760, 300
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {2 * panel + 30}" font-family="sans-serif" '
        'font-size="12">',
        "<title>Time to first token by policy and number of workers: bars are medians, lines reach to p99</title>",
        f'<rect width="{width}" height="{2 * panel + 30}" fill="#ffffff"/>',
    ]
    for place, name in enumerate(names):
        x = 50 + place * 140
        parts.append(f'<rect x="{x}" y="12" width="10" height="10" fill="{COLOURS[place]}"/>')
        parts.append(f'<text x="{x + 14}" y="21" fill="#222">{name}</text>')
    for place, (words, outcomes) in enumerate((("made up", run.outcomes), ("captured", run.captured))):
        title = f"{words} conversations: seconds to the first token, bar median, line p99"
        parts.append(f'<g transform="translate(0 {30 + place * panel})">')
        parts += _panel(outcomes, title, width, panel)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(outcomes: dict[str, list[Outcome]], title: str, width: int, height: int) -> list[str]:
    names = list(outcomes)
    groups = len(outcomes[names[0]])
    left, top, bottom = 50, 30, 40
    most = max(one.ttft_p99 for those in outcomes.values() for one in those)
    scale = (height - top - bottom) / most
    step = (width - left - 10) / groups
    bar = step * 0.8 / len(names)
    parts = [f'<text x="{left}" y="15" fill="#555">{title}</text>']
    for mark in range(int(most) + 1):
        y = height - bottom - mark * scale
        parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{width - 10}" y2="{y:.1f}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{left - 8}" y="{y + 4:.1f}" fill="#555" text-anchor="end">{mark}</text>')
    for group in range(groups):
        for place, name in enumerate(names):
            one = outcomes[name][group]
            x = left + group * step + step * 0.1 + place * bar
            base, high = height - bottom, one.ttft_median * scale
            parts.append(
                f'<rect x="{x:.1f}" y="{base - high:.1f}" width="{bar * 0.8:.1f}" height="{high:.1f}" '
                f'fill="{COLOURS[place]}"/>'
            )
            middle, end = x + bar * 0.4, base - one.ttft_p99 * scale
            parts.append(
                f'<line x1="{middle:.1f}" y1="{base - high:.1f}" x2="{middle:.1f}" y2="{end:.1f}" '
                f'stroke="{COLOURS[place]}" stroke-width="2"/>'
            )
            parts.append(
                f'<line x1="{x:.1f}" y1="{end:.1f}" x2="{x + bar * 0.8:.1f}" y2="{end:.1f}" '
                f'stroke="{COLOURS[place]}" stroke-width="2"/>'
            )
        workers = outcomes[names[0]][group].workers
        words = f"{workers} worker" + ("s" if workers > 1 else "")
        x = left + group * step + step / 2
        parts.append(f'<text x="{x:.1f}" y="{height - 16}" fill="#222" text-anchor="middle">{words}</text>')
    return parts
