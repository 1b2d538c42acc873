"""The words of the table and what a cell, a rule and a report hold.

Promise: a cell never has a word without a reason; a report can be written to JSON and read back.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

__all__ = ["APIS", "WORDS", "ApiName", "Cell", "Finding", "Report", "Word", "clipped"]

ApiName = Literal["chat", "messages", "responses"]
APIS: tuple[ApiName, ...] = get_args(ApiName)
Word = Literal["preserved", "adapted", "unsupported", "broken", "unknown"]
WORDS: dict[Word, str] = {
    "preserved": "the rule holds",
    "adapted": "nothing is lost, but it comes in another form, or later than it could",
    "unsupported": "the server refuses it or does not have it, and says so",
    "broken": "something is lost or wrong, and the client is not informed",
    "unknown": "the model did not produce the turn that is needed, or nothing outside the server shows it",
}
_LONGEST = 600


class Finding(msgspec.Struct, frozen=True):
    """What a judge says of one rule: the word, why, and what was seen."""

    word: Word
    reason: str
    evidence: tuple[str, ...] = ()


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One rule on one API of one server."""

    rule: str
    api: ApiName
    word: Word
    reason: str
    evidence: tuple[str, ...] = ()
    seconds: float = 0.0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One run against one server. `scripted` says that an engine stand-in was behind it."""

    url: str
    model: str
    taken: str
    turnwire: str
    scripted: bool
    cells: list[Cell]
    server: str = ""
    version: str = ""
    flags: str = ""
    engine: str = ""

    def cell(self, rule: str, api: str) -> Cell | None:
        """The cell of a rule, or None where the rule has no meaning on that API."""
        return next((cell for cell in self.cells if (cell.rule, cell.api) == (rule, api)), None)


def clipped(text: object, most: int = _LONGEST) -> str:
    """Text of a server as evidence keeps it: bounded, and without control characters."""
    said = text if isinstance(text, str) else repr(text)
    shown = "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in said[: most + 1])
    return shown if len(said) <= most else shown[:most] + "…"
