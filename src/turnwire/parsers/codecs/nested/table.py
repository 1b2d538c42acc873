"""The table of a nested syntax: the mark before every tag, and what its tags are called.

Promise: a table is data alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from turnwire.parsers.codecs.nested.reader import NestedCodec
from turnwire.parsers.dialect import Codec, Sign

if TYPE_CHECKING:
    from turnwire.parsers.machine import Machine

__all__ = ["Nested"]


class Nested(msgspec.Struct, frozen=True):
    """The table of a nested syntax: the `mark` before every tag, the tag around all calls, the tag of a call (its
    `name` attribute is the tool), the tag of an array's element, and the key for text beside tags."""

    mark: str
    section: str = "tool_call"
    call: str = "invoke"
    item: str = "item"
    text_key: str = "$text"

    @property
    def signs(self) -> tuple[Sign, ...]:
        """The mark: what tag it belongs to is seen after it."""
        return (Sign(self.mark),)

    @property
    def closers(self) -> tuple[str, ...]:
        """What ends calls."""
        return ()

    def codec(self, machine: Machine) -> Codec:
        """A reader for one turn."""
        return NestedCodec(self, machine)
