"""Draws the state machines of the parsers from their tables, into the page on parsers.

    python tests/parsers/pictures.py            # prints them
    python tests/parsers/pictures.py --write    # writes them into docs/parsers.md

A test holds the page to the tables."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import Enum
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

__all__ = ["MACHINES", "page_with_pictures", "pictures"]

PAGE = Path(__file__).parents[2] / "docs" / "parsers.md"
BEGIN, END = "<!-- state machines: python tests/parsers/pictures.py --write -->", "<!-- end of state machines -->"

MACHINES: dict[str, Mapping[Enum, Mapping[Enum, Enum]]] = {
    "Tags around each argument (`codecs.tagged`)": tagged.NEXT,
    "JSON objects that carry the name (`codecs.envelope`)": envelope.NEXT,
    "A name outside JSON arguments (`codecs.named`)": named.NEXT,
    "Python calls (`codecs.pythonic`)": pythonic.NEXT,
    "Gemma's calls (`codecs.braced`)": call_states.NEXT,
    "Gemma's objects (`codecs.braced`)": object_states.NEXT,
    "Tags within tags (`codecs.nested`)": nested.NEXT,
    "Routed messages (`codecs.channels`)": channels.NEXT,
    "Channels without their special tokens (`codecs.channels.bare`)": bare.NEXT,
    "JSON in a message body (`codecs.channels.json_body`)": json_body.NEXT,
    "XTML (`codecs.xtml`)": xtml.NEXT,
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


def pictures() -> str:
    """The table of prose and a picture of every codec."""
    rows = ["| marker | in text | in a thought |", "|---|---|---|"]
    for mark, words in MARKS.items():
        cells = [TRANSITIONS[place].get(mark) for place in (Place.TEXT, Place.REASONING)]
        shown = [step.__name__.strip("_").replace("_", " ") if step is not None else "text" for step in cells]
        rows.append(f"| {words} | {shown[0]} | {shown[1]} |")
    drawn = [
        f"<details><summary>{title}</summary>\n\n{_drawn(moves)}\n\n</details>" for title, moves in MACHINES.items()
    ]
    return "\n".join(rows) + "\n\n" + "\n".join(drawn)


def _drawn(moves: Mapping[Enum, Mapping[Enum, Enum]]) -> str:
    lines = ["```mermaid", "stateDiagram-v2"]
    for state, ways in moves.items():
        targets: dict[Enum, list[str]] = {}
        for on, target in ways.items():
            targets.setdefault(target, []).append(str(on.value))
        lines += [f"    {state.name} --> {target.name}: {' / '.join(words)}" for target, words in targets.items()]
    return "\n".join([*lines, "```"])


def page_with_pictures(page: str) -> str:
    """The page with fresh pictures between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{pictures()}\n{END}{after}"


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page_with_pictures(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(pictures())
