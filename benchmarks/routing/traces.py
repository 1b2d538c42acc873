"""Captured sessions as traces: how long each prompt was, how much of it was there before, and how long its tools ran.

Promise: a trace holds lengths and times of what a capture holds, and none of its words or ids. Played again it has the
same prompts by length and by what they share: with the turn before, with other conversations of the same kind, and with
nothing else. `python -m benchmarks routing --capture FOLDER` plays anybody's own capture.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from benchmarks.routing.agents import VOCABULARY, Agent, Turn, scaffold
from turnwire.capture.format import CapturedTurn
from turnwire.shared_prefix import shared_prefix

FOLDER = Path(__file__).with_name("traces")
_SIDE = frozenset({"title", "auxiliary", "background"})
_ALIKE = 0.5
"""Conversations whose first prompts share so much of the shorter one are of one kind."""


class TracedTurn(msgspec.Struct, omit_defaults=True):
    """`kept` tokens of the prompt begin the turn before and its answer; `wait` is seconds until the next request.
    `fan_out` are the conversations (by number) that it started; all of them ended before the next request where they
    are `awaited`."""

    prompt: int
    kept: int
    output: int
    wait: float = 0.0
    fan_out: tuple[int, ...] = ()
    awaited: bool = False


class TracedConversation(msgspec.Struct, omit_defaults=True):
    """`kind` names those that begin with the same `shared` tokens. `sub`: another conversation's turn starts it."""

    kind: str
    shared: int
    turns: list[TracedTurn]
    sub: bool = False


class Trace(msgspec.Struct):
    """A trace file."""

    source: str
    conversations: list[TracedConversation]


def traced(turns: Iterable[CapturedTurn], source: str) -> Trace:
    """What captured turns say, oldest first. Side requests and turns that failed are left out."""
    lines: dict[tuple[str, str, str], list[CapturedTurn]] = {}
    for turn in turns:
        if turn.turn_class not in _SIDE and not turn.failure and turn.prompt.ids:
            name = (turn.tenant, turn.session or turn.turn_id, turn.agent or "")
            lines.setdefault(name, []).append(turn)
    names = list(lines)
    firsts = [array("I", _ids(lines[name][0].prompt.ids)) for name in names]
    conversations = []
    for place, name in enumerate(names):
        kind, shared = _kind(place, firsts, lines[name][0])
        rows = [TracedTurn(len(lines[name][0].prompt.ids), 0, len(lines[name][0].output_ids))]
        for before, after in pairwise(lines[name]):
            whole = array("I", _ids([*before.prompt.ids, *before.output_ids]))
            kept = shared_prefix(whole, array("I", _ids(after.prompt.ids)))
            rows[-1].wait = round(max(after.at - before.at - before.seconds, 0.0), 3)
            rows.append(TracedTurn(len(after.prompt.ids), kept, len(after.output_ids)))
        conversations.append(TracedConversation(f"{source}-{kind}", shared, rows))
    for place, (tenant, session, agent) in enumerate(names):
        parent = lines.get((tenant, session, "")) if agent else None
        if parent:
            began = lines[names[place]][0].at
            turn = max((k for k, one in enumerate(parent) if one.at + one.seconds <= began), default=0)
            conversations[place].sub = True
            asked = conversations[names.index((tenant, session, ""))].turns[turn]
            over = lines[names[place]][-1].at <= parent[min(turn + 1, len(parent) - 1)].at
            asked.awaited = over and (asked.awaited or not asked.fan_out)
            asked.fan_out = (*asked.fan_out, place)
    return Trace(source, conversations)


def _ids(ids: Sequence[int]) -> list[int]:
    # A masked id stands for a secret.
    return [max(one, 0) for one in ids]


def _kind(place: int, firsts: Sequence[array[int]], turn: CapturedTurn) -> tuple[int, int]:
    """The first conversation of the same kind, and what they all begin with: as other conversations show it, or else
    the system text and the tools."""
    alike = {
        number: shared_prefix(firsts[place], other)
        for number, other in enumerate(firsts)
        if number != place and shared_prefix(firsts[place], other) > _ALIKE * min(len(firsts[place]), len(other))
    }
    if alike:
        return min(place, *alike), max(alike.values())
    return place, max((end for kind, _, _, end in turn.prompt.sections if kind in ("system", "tools")), default=0)


class TracedAgent(Agent):
    """A conversation of a trace, as one of many copies: what its kind shares is the same in all, the rest its own."""

    def __init__(self, trace: Trace, number: int, copy: str) -> None:
        super().__init__(f"{trace.source}/{number}/{copy}", "trace")
        self._trace = trace
        self._number = number
        self._copy = copy

    def turns(self) -> Iterator[Turn]:
        conversation = self._trace.conversations[self._number]
        said = scaffold(conversation.kind, conversation.shared)
        for place, turn in enumerate(conversation.turns):
            kept = said[: turn.kept if place else conversation.shared]
            prompt = [*kept, *self._own(turn.prompt - len(kept))]
            fan_out = tuple(TracedAgent(self._trace, number, self._copy) for number in turn.fan_out)
            yield Turn(prompt, turn.output, turn.wait, fan_out=fan_out, awaited=turn.awaited)
            said = [*prompt, *self._own(turn.output)]

    def _own(self, count: int) -> list[int]:
        start = self._dice.randrange(VOCABULARY)
        return [(start + place) % VOCABULARY for place in range(count)]


def copies(traces: Sequence[Trace], count: int) -> list[TracedAgent]:
    """So many conversations that nobody starts but their user, in turn from all traces."""
    roots = [
        (trace, number)
        for trace in traces
        for number, conversation in enumerate(trace.conversations)
        if not conversation.sub
    ]
    dice = random.Random("copies")
    return [TracedAgent(*dice.choice(roots), str(copy)) for copy in range(count)]


def shipped() -> list[Trace]:
    """The traces beside this file."""
    return [msgspec.json.decode(path.read_bytes(), type=Trace) for path in sorted(FOLDER.glob("*.json"))]
