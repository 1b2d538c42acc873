"""The vocabulary of routed formats: headers, routes, the states of their reader, and what a table compiles to.

Promise: compiling a table twice gives one plan; a plan holds no text of a turn.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from enum import auto
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from turnwire.parsers.scanner import Scanner, prose_pattern
from turnwire.parsers.symbols import Symbol

if TYPE_CHECKING:
    from turnwire.parsers.codecs.channels.table import Channels

__all__ = ["NEXT", "ChannelsPlan", "Header", "On", "Part", "Route", "State", "plan_of"]


class Header(msgspec.Struct, frozen=True):
    """What a rule decides by."""

    text: str
    """The header with its inner markers."""
    body: str = ""
    """The marker that ended it."""
    tools: Collection[str] = ()
    """The names of the tools on offer."""
    inside: bool = False
    """Whether it is inside a body rather than between messages."""


class Route(msgspec.Struct, frozen=True):
    """Where a body goes."""

    kind: Literal["text", "reasoning", "call", "drop"]
    """`drop`: nowhere if it ends as a call does, because it names no tool; else it is text."""
    name: str = ""
    broken: bool = False
    """The header was not quite as the format asks."""
    unsure: bool = False
    """It is a call only if its body is JSON."""


class State(Symbol):
    """Where the reader is."""

    LEAD = auto()  # before a message
    HEADER = auto()
    BODY = auto()  # in text or a thought
    CALL = auto()  # at the beginning of a call's body
    JSON = auto()
    INNER = auto()  # another codec reads a call's body
    HANDED = auto()  # another codec reads to the end
    DROP = auto()
    VERBATIM = auto()  # in a call that is left in the text


class On(Symbol):
    """What was read, as far as it changes the state."""

    HEADER = "a header begins"
    TEXT = "a body that is text or a thought"
    BARE = "a channel without its special tokens"
    CALL = "a header that names a tool"
    SIGN = "a call in a syntax of its own"
    ARGUMENTS = "JSON arguments"
    NOBODY = "a call that names no tool"
    LEFT = "a call that is to stay in the text"
    END = "the end of the message"


# Every way from one state to another.
NEXT: Final[dict[State, dict[On, State]]] = {
    State.LEAD: {On.HEADER: State.HEADER, On.TEXT: State.BODY, On.BARE: State.HANDED},
    State.HEADER: {On.TEXT: State.BODY, On.CALL: State.CALL, On.NOBODY: State.DROP, On.LEFT: State.VERBATIM},
    State.BODY: {On.HEADER: State.HEADER, On.END: State.LEAD},
    State.CALL: {On.SIGN: State.INNER, On.ARGUMENTS: State.JSON, On.TEXT: State.BODY},
    State.INNER: {On.END: State.LEAD, On.NOBODY: State.DROP},
    State.JSON: {On.END: State.LEAD},
    State.DROP: {On.END: State.LEAD},
    State.VERBATIM: {On.END: State.LEAD},
}


class Part(Symbol):
    """What a marker is."""

    OPEN = auto()
    INNER = auto()
    BODY = auto()
    CLOSE = auto()
    HINT = auto()


class ChannelsPlan:
    """What a table compiles to: what each marker is, and a scanner for each place."""

    def __init__(self, table: Channels) -> None:
        texts = {
            Part.HINT: tuple(hint for hint in table.hints.words if hint),
            Part.OPEN: table.opens,
            Part.INNER: table.inner,
            Part.BODY: table.bodies,
            Part.CLOSE: table.closes,
        }
        self.parts = {text: part for part, markers in texts.items() for text in markers}
        marks = [text for text, part in self.parts.items() if part is not Part.HINT]
        solid = [text for text in marks if text.strip()]
        self.lead = Scanner([*solid, *texts[Part.HINT]])
        self.header = Scanner(marks)
        self.solid = Scanner(solid)
        self.closes = Scanner(table.closes)
        self.next = (*table.opens, *table.inner)
        self.body: dict[str, Scanner] = {}
        self.plain: dict[str, str] = {}
        for kind in ("text", "reasoning"):
            known = solid if kind in table.breaks else table.closes
            self.body[kind] = Scanner(known)
            self.plain[kind] = prose_pattern(known)
        self.hopeless = re.compile(table.hints.hopeless)
        self.lead_in = re.compile(table.hints.lead_in)
        self.signs = {sign.text: sign for sign in table.calls.signs} if table.calls else {}
        self.calls = Scanner([*self.signs, *solid])


@lru_cache(maxsize=64)
def plan_of(table: Channels) -> ChannelsPlan:
    return ChannelsPlan(table)
