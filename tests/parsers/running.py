"""Runs a text through a parser in many cuts and checks the laws that hold for every text."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from turnwire.parsers import Dialect, Parser, Start
from turnwire.turns import (
    BlockClosed,
    BlockDelta,
    BlockOpened,
    Event,
    Finished,
    FinishReason,
    Note,
    Tool,
    ToolCallClosed,
)


@dataclass
class Block:
    """One merged block of a parse."""

    kind: str
    text: str = ""
    name: str = ""
    call_id: str = ""
    malformed: bool = False
    raw: str = ""


@dataclass
class Turn:
    """A whole parse: blocks in order, notes in order, and what ended it."""

    blocks: list[Block] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    reason: str = ""
    tail: str = ""

    def of(self, kind: str) -> list[Block]:
        return [block for block in self.blocks if block.kind == kind]

    def text(self, kind: str) -> str:
        return "".join(block.text for block in self.of(kind))


def cut(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def random_cut(text: str, seed: int) -> list[str]:
    dice = random.Random(seed)
    pieces, at = [], 0
    while at < len(text):
        step = dice.choice((1, 1, 2, 3, 5, 8, 13, 40))
        pieces.append(text[at : at + step])
        at += step
    return pieces


def events_of(
    dialect: Dialect, pieces: Iterable[str], tools: Sequence[Tool] = (), start: Start | None = None,
    reason: FinishReason = "stop",
) -> list[Event]:  # fmt: skip
    parser = Parser(dialect, tools, start)
    events: list[Event] = []
    for piece in pieces:
        events += parser.feed(piece)
    return events + parser.finish(reason)


def gathered_events_of(
    dialect: Dialect, pieces: Iterable[str], tools: Sequence[Tool] = (), start: Start | None = None,
    reason: FinishReason = "stop",
) -> list[Event]:  # fmt: skip
    """The same by somebody who passes on what is only more of the open block, and tells it four pieces at a time."""
    parser = Parser(dialect, tools, start)
    events: list[Event] = []
    gathered: list[str] = []

    def tell() -> None:
        if gathered:
            said = "".join(gathered)
            events.append(BlockDelta(parser.sink.index, said, said))
            parser.more(said)
            gathered.clear()

    for piece in pieces:
        search = parser.plain()
        if search is not None and search(piece) is None:
            gathered.append(piece)
            if len(gathered) == 4:
                tell()
        else:
            tell()
            events += parser.feed(piece)
    tell()
    return events + parser.finish(reason)


def merge(events: Sequence[Event], text: str) -> Turn:
    """The merged turn; asserts that blocks are disciplined and that no character is lost."""
    turn = Turn()
    current: Block | None = None
    joined: list[str] = []
    for at, event in enumerate(events):
        joined.append(getattr(event, "raw", ""))
        if isinstance(event, BlockOpened):
            assert current is None, "a block opened inside another"
            assert event.index == len(turn.blocks), "indexes count from 0 in order"
            current = Block(event.kind, "", event.name, event.call_id, False, event.raw)
            turn.blocks.append(current)
        elif isinstance(event, BlockDelta):
            assert current is not None, "a delta outside a block"
            assert event.index == len(turn.blocks) - 1
            assert event.text, "an empty delta"
            current.text += event.text
            current.raw += event.raw
        elif isinstance(event, BlockClosed):
            assert current is not None, "closed twice"
            assert current.kind == event.kind
            assert event.index == len(turn.blocks) - 1
            current.raw += event.raw
            current = None
        elif isinstance(event, ToolCallClosed):
            assert current is not None, "closed twice"
            assert current.kind == "tool_call"
            assert current.text == event.arguments, "the deltas joined are the arguments"
            assert current.name == event.name
            current.malformed = event.malformed
            current.raw += event.raw
            current = None
        elif isinstance(event, Note):
            turn.notes.append(f"{len(turn.blocks)}:{event.code}")
        elif isinstance(event, Finished):
            assert at == len(events) - 1, "Finished comes last"
            assert current is None, "a block was left open"
            turn.reason, turn.tail = event.reason, event.raw
    assert turn.reason, "exactly one Finished"
    assert "".join(joined) == text, "the raw text is lost or doubled"
    for block in turn.blocks:
        if block.kind != "tool_call":
            assert block.text.strip(" \t\r\n"), "whitespace alone opened a block"
    return turn


def parse(
    dialect: Dialect, text: str, tools: Sequence[Tool] = (), start: Start | None = None, reason: FinishReason = "stop"
) -> Turn:
    """The turn, after checking that every cut of the text gives the same one."""
    whole = merge(events_of(dialect, [text], tools, start, reason), text)
    cuts = [cut(text, size) for size in (1, 2, 3, 7)] + [random_cut(text, seed) for seed in range(3)]
    for pieces in cuts:
        other = merge(events_of(dialect, pieces, tools, start, reason), text)
        assert other == whole, f"cut {pieces!r}: {other} instead of {whole}"
    for pieces in (cuts[1], cuts[-1]):
        other = merge(gathered_events_of(dialect, pieces, tools, start, reason), text)
        assert other == whole, f"gathered, cut {pieces!r}: {other} instead of {whole}"
    return whole
