"""A turn as a client reads it from an answer, the same for every API.

Promise: blocks are in the order in which they began; each rule that the answer broke is in `problems`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from turnwire.conformance.values import parsed

__all__ = ["Block", "BlockKind", "Counts", "Message", "Problem", "ProblemKind", "Result", "Stop", "Turn", "User"]

# `sealed` is what only the server can read and a client sends back as it came.
BlockKind = Literal["thinking", "text", "call", "sealed"]
Stop = Literal["end", "calls", "limit", "other"]
# What the readers of answers check: the order of events, their fields, one finish, parts that add up to the whole.
ProblemKind = Literal["order", "fields", "finish", "agree"]


class Problem(msgspec.Struct, frozen=True):
    """A rule of the wire that an answer broke."""

    kind: ProblemKind
    detail: str


class Counts(msgspec.Struct, frozen=True):
    """Tokens as the answer states them."""

    prompt: int | None = None
    output: int | None = None
    cached: int | None = None
    total: int | None = None


class Block(msgspec.Struct):
    """A thought, a text, a call or a seal. `complete` is when a client can know that nothing more comes."""

    kind: BlockKind
    opened: float
    pieces: list[str] = []
    name: str = ""
    id: str = ""
    first: float = 0.0
    last: float = 0.0
    complete: float | None = None
    signature: str = ""
    field: str = ""

    def add(self, text: str, at: float) -> None:
        """One more piece."""
        if text:
            self.pieces.append(text)
            self.first = self.first or at
            self.last = at

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def deltas(self) -> int:
        return len(self.pieces)

    @property
    def arguments(self) -> object | None:
        """A call's arguments, or None where they are not JSON."""
        return parsed(self.text)


class Turn(msgspec.Struct):
    """What an answer said. `raw` holds what a client of the API sends back as this turn."""

    id: str = ""
    blocks: list[Block] = []
    stop: Stop | None = None
    stop_text: str = ""
    counts: Counts = Counts()
    problems: list[Problem] = []
    error: str | None = None
    ended: float = 0.0
    raw: list[dict[str, object]] = []

    def problem(self, kind: ProblemKind, detail: str) -> None:
        """Note a broken rule, each once."""
        made = Problem(kind, detail)
        if len(self.problems) < 100 and made not in self.problems:
            self.problems.append(made)

    def of(self, kind: BlockKind) -> list[Block]:
        return [block for block in self.blocks if block.kind == kind]

    def text(self, kind: BlockKind = "text") -> str:
        return "".join(block.text for block in self.of(kind))


class User(msgspec.Struct, frozen=True):
    """What a user says."""

    text: str


class Result(msgspec.Struct, frozen=True):
    """What a tool gave back."""

    call: str
    text: str
    failed: bool = False


Message = User | Result | Turn
