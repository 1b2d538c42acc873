"""The table of a JSON syntax: what wraps the objects, under which keys they carry a call, and what is not a call.

Promise: a table is data alone; two equal tables read every text alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from turnwire.parsers.codecs.envelope.reader import EnvelopeCodec
from turnwire.parsers.dialect import Codec, Sign

if TYPE_CHECKING:
    from turnwire.parsers.machine import Machine

__all__ = ["Doubts", "Envelope", "Keys"]


class Keys(msgspec.Struct, frozen=True):
    """The keys of an object that is a call. One under the key `function` is read as part of it."""

    name: tuple[str, ...] = ("name",)
    arguments: tuple[str, ...] = ("arguments", "parameters")
    id: tuple[str, ...] = ()
    name_is_key: bool = False
    """An object has one key, the name, and the arguments are its value."""


class Doubts(msgspec.Struct, frozen=True):
    """What an object must show to be a call."""

    needs_arguments: bool = False
    """An object without arguments is not a call."""
    must_fit: bool = False
    """Only an offered tool with arguments that fit its schema is a call, so nothing streams."""
    proves: bool = True
    """The wrapper alone shows that a call was meant."""
    may_end: bool = False
    """The JSON may end the calls without the closer."""


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON syntax. Inside its wrapper, objects may be alone, one after the other, or in a list."""

    wrappers: tuple[tuple[str, str], ...] = ()
    """Pairs of opener and closer; an empty closer means that the JSON ends itself."""
    bare: tuple[Sign, ...] = ()
    """Signs by which an object or a list may begin with no wrapper at all. They are taken back into the text on trial,
    so they are `{` or `[`."""
    keys: Keys = Keys()
    doubts: Doubts = Doubts()

    @property
    def signs(self) -> tuple[Sign, ...]:
        """Wrapper openers, and the bare signs."""
        return tuple(Sign(opener) for opener, _ in self.wrappers) + self.bare

    @property
    def weak(self) -> bool:
        """Whether a wrapper without a call in it is prose."""
        return self.doubts.must_fit or not self.doubts.proves

    @property
    def closers(self) -> tuple[str, ...]:
        """What ends calls."""
        return tuple(closer for _, closer in self.wrappers if closer and closer != "```")

    def codec(self, machine: Machine) -> Codec:
        """A reader for one turn."""
        return EnvelopeCodec(self, machine)
