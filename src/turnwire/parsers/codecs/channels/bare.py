"""Channels as they read once an engine has left their special tokens out: words glued to words.

Promise: such text is only looked for where the output begins so.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import auto
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from turnwire.parsers.codecs.channels.json_body import JsonBody
from turnwire.parsers.codecs.steps import Steps
from turnwire.parsers.dialect import Sign
from turnwire.parsers.scanner import Scanner, prose_pattern
from turnwire.parsers.symbols import Symbol
from turnwire.turns import BlockKind

if TYPE_CHECKING:
    from turnwire.parsers.machine import Machine

__all__ = ["BareChannels"]

HEADER_LIMIT: Final = 192


class BareChannels(msgspec.Struct, frozen=True):
    """The table: what each channel's text is, and the word that comes before a channel from the second message on.
    A message that is a call goes on with ` to=`, the tool, and its JSON."""

    channels: tuple[tuple[str, Literal["text", "reasoning"]], ...]
    speaker: str

    def begins(self, text: str, pos: int, closing: bool) -> bool | None:
        """Whether the output begins so: with a channel glued to a word, or to a recipient. None: not yet known."""
        rest = text[pos : pos + 32]
        for channel, _ in self.channels:
            if not rest.startswith(channel):
                if not closing and channel.startswith(rest):
                    return None
                continue
            after = rest[len(channel) :]
            if after[:1].isupper() or after[:1].isdigit() or after.startswith(" to="):
                return True
            return None if not closing and " to=".startswith(after) else False
        return False

    def codec(self, machine: Machine) -> BareChannelsCodec:
        """A reader for the rest of the turn."""
        return BareChannelsCodec(self, machine)


class State(Symbol):
    """Where the reader is."""

    LEAD = auto()  # before the first channel
    BODY = auto()
    HEADER = auto()  # after a channel that may have a recipient
    JSON = auto()


class On(Symbol):
    """What was read, as far as it changes the state."""

    CHANNEL = "a channel"
    RECIPIENT = "a recipient"
    TEXT = "anything else"
    OBJECT_END = "the call's end"


# Every way from one state to another.
NEXT: Final[dict[State, dict[On, State]]] = {
    State.LEAD: {On.CHANNEL: State.HEADER},
    State.HEADER: {On.RECIPIENT: State.JSON, On.TEXT: State.BODY},
    State.BODY: {On.CHANNEL: State.HEADER},
    State.JSON: {On.OBJECT_END: State.BODY},
}

_RECIPIENT = re.compile(r" to=(?:functions\.)?([^\s{<]{1,128}?)(?:\s+(?:json|code))?\s*\Z")


class _Compiled:
    def __init__(self, table: BareChannels) -> None:
        self.kinds: dict[str, BlockKind] = {}
        for channel, kind in table.channels:
            self.kinds[channel] = self.kinds[table.speaker + channel] = kind
        self.first = Scanner(channel for channel, _ in table.channels)
        self.dividers = tuple(table.speaker + channel for channel, _ in table.channels)
        self.body = Scanner(self.dividers)
        self.plain = prose_pattern(self.dividers)


@lru_cache(maxsize=16)
def _compiled(table: BareChannels) -> _Compiled:
    return _Compiled(table)


class BareChannelsCodec(Steps[State, On]):
    """Reads to the end of the turn."""

    def __init__(self, table: BareChannels, machine: Machine) -> None:
        super().__init__(STEPS, NEXT, State.LEAD)
        self._machine = machine
        self._sink = machine.sink
        self._compiled = _compiled(table)
        self._json = JsonBody(machine, (), self._compiled.dividers, closed=False)
        self._kind: BlockKind = "text"

    def enter(self, sign: Sign) -> None:
        """No sign leads here: another codec hands over."""

    def plain(self) -> str | None:
        """Text in which no divider begins passes, and so does a JSON string."""
        if self._state is State.BODY:
            return self._compiled.plain if self._sink.kind == self._kind else None
        return self._json.plain() if self._state is State.JSON else None

    def finish(self) -> None:
        """The end of the output."""
        if self._state is State.JSON:
            self._json.finish()

    def _channel(self, marker: str) -> None:
        self._sink.close_prose(marker)
        self._kind = self._compiled.kinds[marker]
        self._go(On.CHANNEL)

    def _lead(self, text: str, pos: int) -> int:
        marker = self._compiled.first.at(text, pos, True) or self._compiled.dividers[0]  # `begins` has seen one
        self._channel(marker)
        return pos + len(marker)

    def _header(self, text: str, pos: int) -> int:
        """After a channel: a recipient makes a call, anything else is the body."""
        rest = text[pos : pos + HEADER_LIMIT]
        if not rest.startswith(" to="):
            if self._machine.closing or not " to=".startswith(rest):
                self._go(On.TEXT)
            return pos
        brace = rest.find("{")
        if brace < 0 and len(rest) < HEADER_LIMIT and not self._machine.closing:
            return pos
        found = _RECIPIENT.match(rest[:brace]) if brace >= 0 else None
        if found is None:
            self._go(On.TEXT)
            return pos
        self._sink.keep(rest[:brace])
        self._json.begin(found[1])
        self._go(On.RECIPIENT)
        return pos + brace

    def _body(self, text: str, pos: int) -> int:
        start, stop = self._compiled.body.find(text, pos, self._machine.closing)
        if start > pos:
            self._sink.say(self._kind, text[pos:start])
        if stop < 0:
            return start
        self._channel(text[start:stop])
        return stop

    def _read_json(self, text: str, pos: int) -> int:
        pos = self._json.run(text, pos)
        if self._json.done:
            self._kind = "text"
            self._go(On.OBJECT_END)
        return pos


STEPS: Final[dict[State, Callable[[BareChannelsCodec, str, int], int]]] = {
    State.LEAD: BareChannelsCodec._lead,
    State.BODY: BareChannelsCodec._body,
    State.HEADER: BareChannelsCodec._header,
    State.JSON: BareChannelsCodec._read_json,
}
