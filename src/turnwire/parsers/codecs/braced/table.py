"""The table of Gemma's notation: its wrapper, and the mark on both sides of a string.

Promise: a table is data alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from turnwire.parsers.codecs.braced.reader import BracedCodec
from turnwire.parsers.dialect import Codec, Sign

if TYPE_CHECKING:
    from turnwire.parsers.machine import Machine

__all__ = ["Braced"]


class Braced(msgspec.Struct, frozen=True):
    """The table of a braced syntax: the wrapper around each call, the word before the name, the mark on both sides of
    a string. `typed`: the schema may make something else of a quoted text. `wrong_close` are closers of other formats
    that are accepted. Without its wrapper a call counts at the start of a line, if the tool is offered."""

    open: str
    close: str
    quote: str
    head: str = "call:"
    typed: bool = False
    wrong_close: tuple[str, ...] = ()

    @property
    def signs(self) -> tuple[Sign, ...]:
        """The opener, and the word before the name."""
        return Sign(self.open), Sign(self.head, "line", rescue=True)

    @property
    def closers(self) -> tuple[str, ...]:
        """What ends calls."""
        return self.close, *self.wrong_close

    def codec(self, machine: Machine) -> Codec:
        """A reader for one turn."""
        return BracedCodec(self, machine)
