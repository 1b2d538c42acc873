"""Calls written as tags around each argument (`<parameter=k>v</parameter>`), typed by the tool's schema or the tag."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from turnwire.parsers.codecs.envelope import Envelope
from turnwire.parsers.codecs.tagged_codec import STEPS, TaggedCodec
from turnwire.parsers.dialect import Codec, Sign

if TYPE_CHECKING:
    from turnwire.parsers.machine import Machine

__all__ = ["STEPS", "Tagged", "TaggedCodec"]


@dataclass(frozen=True, slots=True)
class Tagged:
    """The table of a tagged syntax.

    `sections` wrap one or more calls. A call's header follows `call_open` up to `header_end`; with `name_attribute`
    the name is that attribute's value, else it is the header text itself. With no `header_end` the name runs up to
    one of `name_ends` or the next tag. A parameter's header follows `param_open` in the same way up to `key_end`, and
    `value_open` stands between key and value where the format has such a tag. `newlines` says which line breaks
    around a value belong to the format: none, one on `both` sides, or `paired` (one at the end only if there was one
    before). `type_attribute` names the attribute that types the value: "true"/"false" (is it a string) or a JSON type
    name. `bare`: calls without a section are believed when the tool is offered. `json_body`: a call's body may be one
    JSON object. `loose_open` are misspelt openers accepted inside a section, `wrong_close` closers of other formats
    accepted where a parameter must end. `unwraps`: a lone parameter of this name that the schema does not have, with
    an object that fits the schema, is the arguments themselves. `guess`: a value that the schema does not type is JSON
    if it can be, and a string may stand in quotes. `doubled`: the name may be written twice, `name.name`. `fillers`
    are markers around each call that carry nothing; the first of them stands for a missing section. `lists` reads JSON
    that stands in a section instead of calls."""

    call_open: tuple[str, ...]
    call_close: tuple[str, ...]
    param_open: tuple[str, ...]
    param_close: tuple[str, ...]
    sections: tuple[tuple[str, str], ...] = ()
    header_end: str = ">"
    name_ends: tuple[str, ...] = ("\n", "\\n")
    key_end: tuple[str, ...] = (">",)
    value_open: tuple[str, ...] = ()
    name_attribute: str = ""
    key_attribute: str = ""
    type_attribute: str = ""
    newlines: Literal["none", "both", "paired"] = "none"
    bare: bool = True
    json_body: bool = False
    unwraps: tuple[str, ...] = ()
    loose_open: tuple[str, ...] = ()
    wrong_close: tuple[str, ...] = ()
    guess: bool = False
    doubled: bool = False
    fillers: tuple[str, ...] = ()
    lists: Envelope | None = None

    @property
    def signs(self) -> tuple[Sign, ...]:
        """Section openers; call openers too, as a rescue where the format asks for a section."""
        wrapped = tuple(Sign(opener) for opener, _ in self.sections)
        if not self.sections:
            return tuple(Sign(opener) for opener in self.call_open)
        alone = tuple(Sign(opener, "line", rescue=True) for opener in self.call_open if self.bare)
        return wrapped + tuple(Sign(filler, rescue=True) for filler in self.fillers[:1]) + alone

    @property
    def closers(self) -> tuple[str, ...]:
        """What ends calls."""
        return tuple(closer for _, closer in self.sections if closer) + self.call_close

    def codec(self, machine: Machine) -> Codec:
        """A reader for one turn."""
        return TaggedCodec(self, machine)
