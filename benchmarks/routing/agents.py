"""Agents as traces of turns: shared scaffolds, tool waits, fan-outs of sub-agents, compaction.

Promise: the same seed gives the same agents, whatever policy serves them: every random number belongs to its
conversation. Sizes are tokens, times are seconds.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec

SCAFFOLDS = (15_000, 35_000, 50_000)
SUB_SCAFFOLD = 35_000
COMPACT_AT = 110_000
VOCABULARY = 100_000


class Turn(msgspec.Struct):
    """One request: its prompt, how long its answer will be, and how long its tool runs afterwards. `shared`:
    it begins with the scaffold of all sub-agents; `fan_out` are sub-agents that it starts, which have to end before the
    next turn if they are `awaited`."""

    prompt: list[int]
    output: int
    wait: float
    shared: bool = False
    fan_out: tuple[Agent, ...] = ()
    awaited: bool = True


class Agent:
    """A conversation. `turns` yields one request after another; each is sent the id list of the answer."""

    def __init__(self, name: str, seed: str, *, sub: bool = False) -> None:
        self.name = name
        self._dice = random.Random(f"{seed}/{name}")
        self._sub = sub

    def turns(self) -> Iterator[Turn]:
        """Its turns, one after another."""
        dice = self._dice
        size = SUB_SCAFFOLD if self._sub else dice.choice(SCAFFOLDS)
        shared = scaffold(f"sub-{size}" if self._sub else f"main-{size}", size)
        context = [*shared, *self._tokens(300, 2_500)]
        for _ in range(dice.randint(3, 6) if self._sub else dice.randint(8, 24)):
            output = int(min(dice.lognormvariate(5.2, 0.8), 3_000)) + 8
            fan_out: tuple[Agent, ...] = ()
            if not self._sub and dice.random() < 0.06:
                count = dice.choice((4, 8))
                fan_out = tuple(Agent(f"{self.name}/{dice.random()}", "sub", sub=True) for number in range(count))
            yield Turn(context, output, min(dice.lognormvariate(0.7, 1.1), 120.0), self._sub, fan_out)
            answer = self._tokens(output, output)
            if len(context) + output > COMPACT_AT:
                context = [*shared, *self._tokens(2_000, 4_000)]
            else:
                context = [*context, *answer, *self._tokens(50, int(min(dice.lognormvariate(6.8, 1.0), 12_000)) + 51)]

    def _tokens(self, least: int, most: int) -> list[int]:
        dice = self._dice
        start = dice.randrange(VOCABULARY)
        # Runs of consecutive ids: as good as random ones for telling prefixes apart, and quick to make.
        return [(start + place) % VOCABULARY for place in range(dice.randint(least, most))]


_SCAFFOLDS: dict[str, list[int]] = {}


def scaffold(name: str, size: int) -> list[int]:
    """The tokens that all conversations of a kind begin with."""
    if name not in _SCAFFOLDS:
        start = random.Random(name).randrange(VOCABULARY)
        _SCAFFOLDS[name] = [(start + place) % VOCABULARY for place in range(size)]
    return _SCAFFOLDS[name]
