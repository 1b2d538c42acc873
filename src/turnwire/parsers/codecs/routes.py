"""The vocabulary of routed formats: headers, routes, the places of their reader, and what a table compiles to."""

from __future__ import annotations

import re
from collections.abc import Collection
from enum import Enum, auto
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import msgspec

from turnwire.parsers.scanner import Scanner, prose_pattern

if TYPE_CHECKING:
    from turnwire.parsers.codecs.channels import Channels

__all__ = ["ChannelsPlan", "Header", "Part", "Route", "State", "plan_of"]


class Header(msgspec.Struct, frozen=True):
    """What a rule decides by: the header's text with its inner markers, the marker that ended it, the names of the
    tools on offer, and whether it stands inside a body rather than between messages."""

    text: str
    body: str = ""
    tools: Collection[str] = ()
    inside: bool = False


class Route(msgspec.Struct, frozen=True):
    """Where a body goes. `drop`: nowhere if it ends as a call does, because it names no tool; else it is text.
    `broken`: the header was not quite as the format asks. `unsure`: it is a call only if its body is JSON."""

    kind: Literal["text", "reasoning", "call", "drop"]
    name: str = ""
    broken: bool = False
    unsure: bool = False


class State(Enum):
    """Where the reader stands."""

    LEAD = auto()  # before a message
    HEADER = auto()
    BODY = auto()  # in text or a thought
    CALL = auto()  # at the beginning of a call's body
    JSON = auto()
    INNER = auto()  # another codec reads a call's body
    HANDED = auto()  # another codec reads to the end
    DROP = auto()
    VERBATIM = auto()  # in a call that is left in the text


class Part(Enum):
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
            Part.HINT: tuple(hint for hint in table.hints if hint),
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
        self.hopeless = re.compile(table.hopeless)
        self.lead_in = re.compile(table.lead_in)
        self.signs = {sign.text: sign for sign in table.calls.signs} if table.calls else {}
        self.calls = Scanner([*self.signs, *solid])


@lru_cache(maxsize=64)
def plan_of(table: Channels) -> ChannelsPlan:
    return ChannelsPlan(table)
