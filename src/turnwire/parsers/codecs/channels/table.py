"""The table of a routed format: its markers, the rule that turns a header into a route, and how it may be broken.

Promise: a table is data and one small function; two equal tables read every text alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from turnwire.parsers.codecs.channels.bare import BareChannels
from turnwire.parsers.codecs.channels.reader import ChannelsCodec
from turnwire.parsers.codecs.channels.states import Header, Route
from turnwire.parsers.dialect import RouterCodec, Start, Syntax

if TYPE_CHECKING:
    from turnwire.parsers.machine import Machine

__all__ = ["Channels", "Hints", "Stages"]


class Hints(msgspec.Struct, frozen=True):
    """How a header is known whose opener is missing, and how a broken one is read."""

    words: tuple[str, ...] = ()
    """Words by which the output may begin with a header whose opener the prompt holds ("": anything may)."""
    hopeless: str = r"(?!)"
    """A pattern: such a header is given up as soon as it matches."""
    lead_in: str = ""
    """A pattern: what is structure at the beginning of a broken header."""


class Stages(msgspec.Struct, frozen=True):
    """What is kept apart from text."""

    thoughts: bool = True
    tools: bool = True
    joined: bool = False
    """Both always are: the format cannot be read without."""


class Channels(msgspec.Struct, frozen=True, kw_only=True):
    """A routed format: messages of one of `opens`, a header, one of `bodies`, a body, one of `closes`."""

    opens: tuple[str, ...]
    bodies: tuple[str, ...]
    closes: tuple[str, ...]
    rule: Callable[[Header], Route | None]
    """Turns a header into a route, or None where it is not a header."""
    inner: tuple[str, ...] = ()
    """Markers inside headers, which may also begin one whose opener is missing."""
    call_closes: tuple[str, ...] = ()
    """The closers that only a call has."""
    breaks: tuple[str, ...] = ("text", "reasoning")
    """The bodies that an opener ends although they were not closed."""
    calls: Syntax | None = None
    """The syntax of a call's body; without it, or where its sign is missing, the body is the JSON arguments of the tool
    in the header."""
    raw: bool = True
    """A call's body that is not JSON is malformed arguments; otherwise it is text."""
    closed: bool = True
    """A call's body must be closed; otherwise the next opener is enough."""
    bare: BareChannels | None = None
    """How the format reads if its special tokens were left out."""
    hints: Hints = Hints()
    stages: Stages = Stages()

    def codec(self, machine: Machine) -> RouterCodec:
        """A reader for one turn."""
        return ChannelsCodec(self, machine)

    def start(self, prompt_tail: str) -> Start:
        """After the last opener of the prompt; what is there already is the header's beginning."""
        tail = prompt_tail
        begin = max((tail.rfind(mark) + len(mark) for mark in self.opens if mark in tail), default=len(tail))
        header = tail[begin:]
        return Start("header", "" if any(mark in header for mark in self.closes) else header)

    def without_calls(self) -> Channels:
        """The same table, with calls left in the text as written, where the format can be read so."""
        return self if self.stages.joined else replace(self, stages=replace(self.stages, tools=False))

    def without_reasoning(self) -> Channels:
        """The same table, with thoughts left in the text, where the format can be read so."""
        return self if self.stages.joined else replace(self, stages=replace(self.stages, thoughts=False))
