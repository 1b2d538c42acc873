"""The figures of docs/routing.md and their picture, made from a result file.

Promise: no figure is written by hand; the page and the picture follow from the file.
"""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.routing.result import IndexRun, Run

BEGIN, END = "<!-- figures: written by `python -m benchmarks routing --save` -->", "<!-- end of figures -->"
INDEX_BEGIN = "<!-- index: written by `python -m benchmarks routing --index ... --save` -->"
INDEX_END = "<!-- end of index -->"
COLOURS = ("#2f6fde", "#9aa3ad", "#d9822b", "#8a5cc2", "#7fb2f0")


def write_page(root: Path, run: Run) -> None:
    """Write the table and the picture."""
    _replace(root, BEGIN, END, figures(run))
    (root / "docs" / "images" / "routing.svg").write_text(picture(run), "utf-8")


def write_index_page(root: Path, run: IndexRun) -> None:
    """Write the table of the index."""
    _replace(root, INDEX_BEGIN, INDEX_END, index_figures(run))


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
        "| workers | policy | turns | prompt cached | first token, median | p99 | slowest tenth |",
    ]
    lines.append("|---|---|---|---|---|---|---|")
    for place in range(len(next(iter(run.outcomes.values())))):
        for name, outcomes in run.outcomes.items():
            one = outcomes[place]
            lines.append(
                f"| {one.workers} | {name} | {one.turns:,} | {one.hit_rate:.1%} | {one.ttft_median:.2f} s "
                f"| {one.ttft_p99:.2f} s | {one.slowest_tenth:.2f} s |"
            )
    lines += ["", "Eight sub-agents that start at once with one prefix of 35K tokens, on four idle workers:", ""]
    lines += ["| policy | workers used | times the prefix was read |", "|---|---|---|"]
    lines += [f"| {name} | {fan.used} | {fan.prefix_reads:.1f} |" for name, fan in run.fan_out.items()]
    lines.append(END)
    return "\n".join(lines)


def picture(run: Run) -> str:
    """Median and 99th percentile of the time to first token, a group of bars for each number of workers."""
    names = list(run.outcomes)
    groups = len(run.outcomes[names[0]])
    width, height, left, top, bottom = 760, 320, 50, 50, 40
    most = max(one.ttft_p99 for outcomes in run.outcomes.values() for one in outcomes)
    scale = (height - top - bottom) / most
    step = (width - left - 10) / groups
    bar = step * 0.8 / len(names)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="12">',
        "<title>Time to first token by policy and number of workers: bars are medians, lines reach to p99</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for place, name in enumerate(names):
        x = left + place * 140
        parts.append(f'<rect x="{x}" y="12" width="10" height="10" fill="{COLOURS[place]}"/>')
        parts.append(f'<text x="{x + 14}" y="21" fill="#222">{name}</text>')
    parts.append(f'<text x="{left}" y="40" fill="#555">seconds to the first token: bar median, line p99</text>')
    for mark in range(int(most) + 1):
        y = height - bottom - mark * scale
        parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{width - 10}" y2="{y:.1f}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{left - 8}" y="{y + 4:.1f}" fill="#555" text-anchor="end">{mark}</text>')
    for group in range(groups):
        for place, name in enumerate(names):
            one = run.outcomes[name][group]
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
        workers = run.outcomes[names[0]][group].workers
        words = f"{workers} worker" + ("s" if workers > 1 else "")
        x = left + group * step + step / 2
        parts.append(f'<text x="{x:.1f}" y="{height - 16}" fill="#222" text-anchor="middle">{words}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
