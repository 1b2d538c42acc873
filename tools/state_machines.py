"""Draws the state machines of the parsers from their tables, for docs/parsers.md.

Promise: `python tools/state_machines.py` brings the page and its pictures up to date, `--check` only says whether they
are.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import Enum
from html import escape
from pathlib import Path

from turnwire.parsers.codecs import named
from turnwire.parsers.codecs.braced import call_states, object_states
from turnwire.parsers.codecs.channels import bare, json_body
from turnwire.parsers.codecs.channels import states as channels
from turnwire.parsers.codecs.envelope import states as envelope
from turnwire.parsers.codecs.nested import states as nested
from turnwire.parsers.codecs.pythonic import states as pythonic
from turnwire.parsers.codecs.tagged import states as tagged
from turnwire.parsers.codecs.xtml import states as xtml
from turnwire.parsers.prose import TRANSITIONS, Mark, Place

__all__ = ["MACHINES", "files"]

Moves = Mapping[Enum, Mapping[Enum, Enum]]

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = DOCS / "parsers.md"
BEGIN, END = "<!-- state machines: made by tools/state_machines.py -->", "<!-- end of state machines -->"

# The picture's file name, its title, and the table it is drawn from.
MACHINES: dict[str, tuple[str, Moves]] = {
    "tagged": ("Tags around each argument (`codecs.tagged`)", tagged.NEXT),
    "envelope": ("JSON objects that carry the name (`codecs.envelope`)", envelope.NEXT),
    "named": ("A name outside JSON arguments (`codecs.named`)", named.NEXT),
    "pythonic": ("Python calls (`codecs.pythonic`)", pythonic.NEXT),
    "braced-calls": ("Gemma's calls (`codecs.braced`)", call_states.NEXT),
    "braced-objects": ("Gemma's objects (`codecs.braced`)", object_states.NEXT),
    "nested": ("Tags within tags (`codecs.nested`)", nested.NEXT),
    "channels": ("Routed messages (`codecs.channels`)", channels.NEXT),
    "channels-bare": ("Channels without their special tokens (`codecs.channels.bare`)", bare.NEXT),
    "channels-json": ("JSON in a message body (`codecs.channels.json_body`)", json_body.NEXT),
    "xtml": ("XTML (`codecs.xtml`)", xtml.NEXT),
}
MARKS = {
    Mark.THINK: "a reasoning opener",
    Mark.THOUGHT: "a reasoning closer",
    Mark.CALL: "a call's sign",
    Mark.WRAPPER: "a wrapper of the answer",
    Mark.BREAK: "a text that ends thoughts",
    Mark.CLOSER: "a call's closer",
    Mark.FENCE: "a code fence",
    Mark.END: "an end-of-turn text",
}

# The measures of a picture: a state is a box, each move a row beside it, each target has a lane of its own.
BOX, ROW, GAP, LANE, CHAR, EDGE = 116, 22, 14, 16, 6.8, 10
HUES = 4
STYLE = """<style>
:root{color-scheme:light dark}
text{font:12px system-ui,sans-serif;fill:#475467} .name{font-weight:650;fill:#1c2330;text-anchor:middle}
.box{fill:#fff;stroke:#cfd6e4;stroke-width:1.4} path{fill:none;stroke-width:1.5}
.h0{stroke:#3b6ef6} .h1{stroke:#2fa36b} .h2{stroke:#c2571a} .h3{stroke:#8a4fd3}
.f0{fill:#3b6ef6} .f1{fill:#2fa36b} .f2{fill:#c2571a} .f3{fill:#8a4fd3}
@media (prefers-color-scheme:dark){text{fill:#b6c0d2} .name{fill:#e6eaf2} .box{fill:#181e28;stroke:#344054}
.h0{stroke:#6f97ff} .h1{stroke:#4fc98c} .h2{stroke:#f0894a} .h3{stroke:#b58af0}
.f0{fill:#6f97ff} .f1{fill:#4fc98c} .f2{fill:#f0894a} .f3{fill:#b58af0}}
</style>"""


def files() -> dict[Path, str]:
    """The page and its pictures, each with the text it must have."""
    pictures = {DOCS / "images" / "states" / f"{name}.svg": drawn(*machine) for name, machine in MACHINES.items()}
    return {PAGE: _page(PAGE.read_text(encoding="utf-8")), **pictures}


def drawn(title: str, moves: Moves) -> str:
    """A state machine as a picture: from each state a row for what may be read there, and a line to where it leads."""
    states = list(dict.fromkeys([*moves, *(target for ways in moves.values() for target in ways.values())]))
    rows = {state: _rows(moves.get(state, {})) for state in states}
    widest = max(len(said) for ways in rows.values() for said, _ in ways)
    lanes_at = EDGE + BOX + 18 + int(widest * CHAR)
    lanes = {target: at for at, target in enumerate(t for t in states if any(t in w.values() for w in moves.values()))}
    tops: dict[Enum, int] = {}
    bottom = EDGE
    for state in states:
        tops[state] = bottom
        bottom += ROW * (1 + len(rows[state])) + GAP
    lines: list[str] = []
    for target, lane in lanes.items():
        x, enters = lanes_at + lane * LANE, tops[target] + ROW // 2
        reached = [enters]
        for state in states:
            for at, (said, leads) in enumerate(rows[state], 1):
                if leads is target:
                    y = tops[state] + ROW * at + ROW // 2
                    reached.append(y)
                    text_ends = EDGE + BOX + 14 + int(len(said) * CHAR)
                    lines.append(f'<path class="h{lane % HUES}" d="M{EDGE + BOX} {y}h6M{text_ends} {y}H{x}"/>')
        lines.append(
            f'<path class="h{lane % HUES}" d="M{x} {min(reached)}V{max(reached)}M{x} {enters}H{EDGE + BOX + 7}"/>'
        )
        lines.append(f'<path class="f{lane % HUES}" d="M{EDGE + BOX + 1} {enters}l7 -4v8z"/>')
    for state in states:
        top, height = tops[state], ROW * (1 + len(rows[state]))
        lines.append(f'<rect class="box" x="{EDGE}" y="{top}" width="{BOX}" height="{height}" rx="7"/>')
        lines.append(f'<text class="name" x="{EDGE + BOX // 2}" y="{top + 15}">{state.name}</text>')
        for at, (said, _) in enumerate(rows[state], 1):
            lines.append(f'<text x="{EDGE + BOX + 10}" y="{top + ROW * at + 15}">{escape(said)}</text>')
    width, name = lanes_at + len(lanes) * LANE + EDGE, escape(title.replace("`", ""), quote=True)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom}" width="{width}" role="img"'
    return "\n".join([f'{head} aria-label="{name}">', STYLE, *lines, "</svg>", ""])


def _rows(ways: Mapping[Enum, Enum]) -> list[tuple[str, Enum]]:
    """What may be read in a state and where it leads; what leads to one place is one row."""
    said: dict[Enum, list[str]] = {}
    for on, target in ways.items():
        said.setdefault(target, []).append(str(on.value))
    return [(" / ".join(words), target) for target, words in said.items()]


def _page(page: str) -> str:
    """The page with the table of prose and links to the pictures made anew."""
    rows = ["| marker | in text | in a thought |", "|---|---|---|"]
    for mark, words in MARKS.items():
        cells = [TRANSITIONS[place].get(mark) for place in (Place.TEXT, Place.REASONING)]
        shown = [step.__name__.strip("_").replace("_", " ") if step is not None else "text" for step in cells]
        rows.append(f"| {words} | {shown[0]} | {shown[1]} |")
    shown = [
        f"**{title}**\n\n![{title.replace('`', '')}](images/states/{name}.svg)" for name, (title, _) in MACHINES.items()
    ]
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return "\n".join([f"{before}{BEGIN}", *rows, "", "\n\n".join(shown), f"{END}{after}"])


if __name__ == "__main__":
    stale = [path for path, text in files().items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv:
        names = ", ".join(path.name for path in stale)
        sys.exit(f"not up to date: {names}; run: python tools/state_machines.py" if stale else 0)
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
