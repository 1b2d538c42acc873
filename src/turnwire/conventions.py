"""Conventions of vendors and harnesses that several packages need: efforts, raw tool input, call ids, billing lines.

Promise: tables and pure functions; each convention is defined here and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

__all__ = [
    "BILLING_PREFIX",
    "EFFORTS",
    "RAW_INPUT",
    "letters_and_digits",
    "nearest_effort",
    "raw_input",
    "raw_input_schema",
    "without_billing",
]

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""How hard a model may think, in order."""

RAW_INPUT = "input"
"""The one argument under which a model writes the raw text of a custom tool."""

BILLING_PREFIX = "x-anthropic-billing-header:"
"""The head of a line that some harnesses put into the system prompt; it varies between requests, so a prompt that
keeps it never shares a cached prefix."""

_RUN = re.compile(r"(?:[ \t]*[^\s;]*=[^\s;]*;)+[ \t]*")


def nearest_effort(wanted: str, offered: Iterable[str]) -> str | None:
    """The offered effort that is closest to the wanted one; None where either is unknown."""
    if wanted not in EFFORTS:
        return None
    rank = EFFORTS.index(wanted)
    known = [effort for effort in offered if effort in EFFORTS]
    return min(known, key=lambda effort: abs(EFFORTS.index(effort) - rank), default=None)


def raw_input_schema() -> dict[str, Any]:
    """The schema under which a custom tool is shown to a model."""
    return {"type": "object", "properties": {RAW_INPUT: {"type": "string"}}, "required": [RAW_INPUT]}


def raw_input(text: str) -> dict[str, str]:
    """The arguments of a custom tool that is given this text."""
    return {RAW_INPUT: text}


def letters_and_digits(call_id: str) -> str:
    """The part of a tool-call id that every client returns: some strip all other characters. Ids are compared by it."""
    return "".join(filter(str.isalnum, call_id))


def without_billing(text: str) -> str:
    """A system text without billing headers: a header goes with its `key=value;` run, and with its line where that is
    all the line holds. What follows on the same line is the prompt and stays. A header of another form goes with its
    line."""
    if BILLING_PREFIX not in text:
        return text
    kept: list[str] = []
    after_header = False
    for line in text.split("\n"):
        body = line.lstrip(" \t")
        if body.startswith(BILLING_PREFIX):
            run = _RUN.match(body, len(BILLING_PREFIX))
            rest = body[run.end() :] if run is not None else ""
            if rest:
                kept.append(rest)
            after_header = not rest
        elif line or not after_header:
            kept.append(line)
            after_header = False
    return "\n".join(kept)
