"""The table of a tagged syntax (`<parameter=k>v</parameter>`): its tags, headers, values and known repairs.

Promise: a table is data alone; two equal tables read every text alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from turnwire.parsers.codecs.envelope import Envelope
from turnwire.parsers.codecs.tagged.reader import TaggedCodec
from turnwire.parsers.dialect import Codec, Sign

if TYPE_CHECKING:
    from turnwire.parsers.machine import Machine

__all__ = ["Headers", "Repairs", "Tagged", "Values"]


class Headers(msgspec.Struct, frozen=True):
    """How the names of tools and of arguments are in their tags."""

    end: str = ">"
    """What ends a call's header. Empty: the name runs up to one of `name_ends` or the next tag."""
    name_ends: tuple[str, ...] = ("\n", "\\n")
    """What ends a name that has no `end`."""
    key_end: tuple[str, ...] = (">",)
    """What ends a parameter's header."""
    name_attribute: str = ""
    """The attribute that holds the tool's name. Empty: the header is the name."""
    key_attribute: str = ""
    """The attribute that holds the argument's name. Empty: the header is the name."""
    doubled: bool = False
    """Whether the tool's name may be written twice, `name.name`."""


class Values(msgspec.Struct, frozen=True):
    """How a value is written between its tags."""

    open: tuple[str, ...] = ()
    """The tag between key and value, where the format has one."""
    newlines: Literal["none", "both", "paired"] = "none"
    """Which line breaks around a value belong to the format: none, one on both sides, or one at the end only if there
    is one at the beginning."""
    type_attribute: str = ""
    """The attribute that types a value: "true" or "false" (is it a string), or the name of a JSON type."""
    guess: bool = False
    """Whether a value that the schema does not type is JSON if it can be, and a string may be in quotes."""


class Repairs(msgspec.Struct, frozen=True):
    """What models get wrong in this syntax and is still understood."""

    bare: bool = True
    """Calls without a section are believed when the tool is offered."""
    json_body: bool = False
    """A call's body may be one JSON object."""
    unwraps: tuple[str, ...] = ()
    """A lone parameter of such a name that the schema does not have, with an object that fits the schema, is the
    arguments themselves."""
    loose_open: tuple[str, ...] = ()
    """Misspelt openers of calls, accepted inside a section."""
    wrong_close: tuple[str, ...] = ()
    """Closers of other formats, accepted where a parameter must end."""
    fillers: tuple[str, ...] = ()
    """Markers around each call that carry nothing; the first of them takes the place of a missing section."""
    lists: Envelope | None = None
    """How JSON is read that is in a section instead of calls."""


class Tagged(msgspec.Struct, frozen=True, kw_only=True):
    """A tagged syntax: the spellings of each tag, and how headers, values and mistakes are read."""

    call_open: tuple[str, ...]
    call_close: tuple[str, ...]
    param_open: tuple[str, ...]
    param_close: tuple[str, ...]
    sections: tuple[tuple[str, str], ...] = ()
    """Pairs that wrap one or more calls."""
    headers: Headers = Headers()
    values: Values = Values()
    repairs: Repairs = Repairs()

    @property
    def signs(self) -> tuple[Sign, ...]:
        """Section openers; call openers too, as a rescue where the format asks for a section."""
        wrapped = tuple(Sign(opener) for opener, _ in self.sections)
        if not self.sections:
            return tuple(Sign(opener) for opener in self.call_open)
        alone = tuple(Sign(opener, "line", rescue=True) for opener in self.call_open if self.repairs.bare)
        return wrapped + tuple(Sign(filler, rescue=True) for filler in self.repairs.fillers[:1]) + alone

    @property
    def closers(self) -> tuple[str, ...]:
        """What ends calls."""
        return tuple(closer for _, closer in self.sections if closer) + self.call_close

    def codec(self, machine: Machine) -> Codec:
        """A reader for one turn."""
        return TaggedCodec(self, machine)
