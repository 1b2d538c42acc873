"""Calls written as JSON objects that carry the tool's name and its arguments, alone, in a list, or in a wrapper."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from turnwire.parsers.codecs.envelope_codec import EnvelopeCodec
from turnwire.parsers.dialect import Codec, Sign

if TYPE_CHECKING:
    from turnwire.parsers.machine import Machine

__all__ = ["Envelope", "EnvelopeCodec"]


class Envelope(msgspec.Struct, frozen=True):
    """The table of a JSON syntax.

    `wrappers` are pairs of opener and closer; an empty closer means that the JSON ends itself. `bare` are signs by
    which an object or a list may begin with no wrapper at all; they are taken back into the text on trial, so they
    are `{` or `[`. Inside, objects may stand alone, one after the other, or in a list. `name_is_key`: an object has
    one key, the name, and the arguments are its value. `needs_arguments`: an object without arguments is no call.
    An object under the key `function` is read as part of the envelope. `must_fit`: only an offered tool with arguments
    that fit its schema is a call, so nothing streams. `proves`: the wrapper alone shows that a call was meant.
    `may_end`: the JSON may end the calls without the closer."""

    wrappers: tuple[tuple[str, str], ...] = ()
    bare: tuple[Sign, ...] = ()
    name_keys: tuple[str, ...] = ("name",)
    argument_keys: tuple[str, ...] = ("arguments", "parameters")
    id_keys: tuple[str, ...] = ()
    name_is_key: bool = False
    needs_arguments: bool = False
    must_fit: bool = False
    proves: bool = True
    may_end: bool = False

    @property
    def signs(self) -> tuple[Sign, ...]:
        """Wrapper openers, and the bare signs."""
        return tuple(Sign(opener) for opener, _ in self.wrappers) + self.bare

    @property
    def weak(self) -> bool:
        """Whether a wrapper without a call in it is prose."""
        return self.must_fit or not self.proves

    @property
    def closers(self) -> tuple[str, ...]:
        """What ends calls."""
        return tuple(closer for _, closer in self.wrappers if closer and closer != "```")

    def codec(self, machine: Machine) -> Codec:
        """A reader for one turn."""
        return EnvelopeCodec(self, machine)
