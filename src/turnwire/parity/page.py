"""A comparison as a table, for the terminal and for Markdown.

Promise: every figure comes with its pairs, its interval and its p, corrected for the number of measures.
"""

from __future__ import annotations

from turnwire.parity.results import Parity

__all__ = ["markdown"]


def markdown(parity: Parity) -> str:
    """The table of a comparison."""
    first, second = parity.arms
    lines = [
        f"{len(parity.tasks)} tasks, {first} against {second}.",
        "",
        f"| per task | {first} | {second} | difference (95 %) | more / less / same | p | p (Holm) |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in parity.measures:
        sign = f"{one.signs.more} / {one.signs.less} / {one.signs.same}"
        apart = f"{one.difference:+.4g} ({one.low:.4g} to {one.high:.4g})"
        lines.append(
            f"| {one.measure} | {one.first:.4g} | {one.second:.4g} | {apart} | {sign} "
            f"| {_p(one.p)} | {_p(one.adjusted)} |"
        )
    if parity.left_out:
        lines += ["", f"Left out, as only one arm has them: {', '.join(parity.left_out)}."]
    return "\n".join(lines)


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
