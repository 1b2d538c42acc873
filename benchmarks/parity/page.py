"""The real runs on docs/parity.md, made from the result files.

Promise: nothing on the page is written by hand; a comparison that was cut short says how many runs it has.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from benchmarks.measure import versions
from benchmarks.measure.results import FOLDER, place
from benchmarks.parity.coder import EASIEST, TEMPERATURES, Results
from benchmarks.parity.codex_shapes import Shapes
from benchmarks.peers.cache import ROOT
from turnwire.parity.page import markdown
from turnwire.parity.results import Run, compared

__all__ = ["parity_block"]


def parity_block(folder: Path = FOLDER) -> str:
    """The text between the two marks of docs/parity.md."""
    parts = []
    if (folder / "parity_shapes.json").exists():
        parts += _shapes(msgspec.json.decode((folder / "parity_shapes.json").read_bytes(), type=Shapes))
    if (folder / "parity.json").exists():
        parts += _coder(msgspec.json.decode((folder / "parity.json").read_bytes(), type=Results))
    return "\n".join(parts).strip() or "Nothing was run yet."


def _shapes(made: Shapes) -> list[str]:
    native, fallback = (made.prompt_tokens[name] for name in ("native", "fallback"))
    return [
        "### Codex, natively and as a fallback",
        "",
        f"Codex {made.codex} on one gateway with a scripted engine, so no model takes part: natively, where it reads",
        "the gateway's model catalog, and as a fallback, where it knows nothing of the model. The requests differ:",
        "",
        "```text",
        *made.differences,
        "```",
        "",
        f"The prompt of a first turn has {native:,} tokens natively and {fallback:,} as a fallback.",
        f"Taken {made.taken}, Turnwire at {versions.named(made.turnwire, ROOT)}.",
        "Again: `python -m benchmarks parity shapes`.",
        "",
    ]


def _coder(made: Results) -> list[str]:
    arms = list(TEMPERATURES)
    tasks = list(dict.fromkeys(run.task for run in made.runs))
    lines = [
        "### The embedded coder on the easiest tasks",
        "",
        f"`{made.model}` inside the gateway, `{made.client}` as the client with three tools (read, write, check),",
        f"greedy against sampled as its makers recommend. {len(made.runs)} runs, each of at most {made.seconds:.0f} s.",
        "",
        f"| task | {' | '.join(arms)} |",
        "|---|" + "---|" * len(arms),
    ]
    for task in tasks:
        cells = ["; ".join(_said(run) for run in made.runs if (run.task, run.arm) == (task, arm)) for arm in arms]
        lines.append(f"| {task} | {' | '.join(cell or '–' for cell in cells)} |")
    if made.comparison is None:
        lines += ["", f"The run was cut short: {len(tasks)} of the {len(EASIEST.split(','))} tasks."]
    if {run.arm for run in made.runs} == set(arms):
        lines += ["", markdown(compared(made.runs, (arms[0], arms[1])))]
    machine = made.machine
    where = place(machine)
    busy = ", which other work used too, so the times mean little" if float(machine["load"]) > 1 else ""
    own = versions.named(made.turnwire, ROOT)
    return [
        *lines,
        "",
        f"Taken {made.taken} on {where}{busy}; Turnwire at {own}. Again: `python -m benchmarks parity coder`.",
    ]


def _said(run: Run) -> str:
    late = ", out of time" if run.note.startswith("the client ended with None") else ""
    return f"{'passed' if run.success else 'failed'}{late} ({run.calls} calls, {run.seconds:.0f} s)"
