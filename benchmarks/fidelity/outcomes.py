"""The result files of tool loops over gateways that come and go, and of the three laws.

Promise: what was tried, what held and what was said of it, for each layout and habit; what was tried and broken of each
law, for each checkout.
"""

from __future__ import annotations

import msgspec


class Count(msgspec.Struct):
    """Pairs of turns in a tool loop of one layout and habit; verdicts `said` of them, the `false` ones, and what did
    not hold."""

    layout: str
    habit: str
    pairs: int = 0
    held: int = 0
    said: int = 0
    false: int = 0
    broken: list[str] = []

    def add(self, other: Count) -> None:
        self.pairs += other.pairs
        self.held += other.held
        self.said += other.said
        self.false += other.false
        self.broken = [*self.broken, *other.broken]


class Restarts(msgspec.Struct):
    """One run over a folder of templates."""

    command: str
    taken: str
    templates: int
    counts: list[Count]


class Law(msgspec.Struct):
    """How often a law was tried and how often it was broken, with some of the places."""

    name: str
    tried: int
    broken: int
    places: list[str] = []


class Laws(msgspec.Struct):
    """One run: the laws as each checkout kept them, by the checkout's name."""

    command: str
    taken: str
    checkouts: dict[str, list[Law]]
