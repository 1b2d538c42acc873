"""The table of a Python-call syntax: its wrappers, and what its models do beside it.

Promise: a table is data alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from turnwire.parsers.codecs.envelope import Envelope
from turnwire.parsers.codecs.pythonic.reader import PythonCallsCodec
from turnwire.parsers.dialect import Codec, Sign

if TYPE_CHECKING:
    from turnwire.parsers.machine import Machine

__all__ = ["PythonCalls"]


class PythonCalls(msgspec.Struct, frozen=True):
    """The table of a Python-call syntax.

    `wrappers` are pairs of opener and closer (empty: the calls end themselves); inside one, brackets around the calls
    may be missing. `bare`: a list in brackets counts without a wrapper; in the middle of a line it does only if its
    first tool is offered. `json` reads the JSON that some models put into the wrapper instead. `echoes`: models that
    repeat the calls after the closer; an exact repetition is left out. `method` is a suffix of built-in tools' names
    (`search.call(…)`)."""

    wrappers: tuple[tuple[str, str], ...] = ()
    bare: bool = False
    json: Envelope | None = None
    echoes: bool = False
    method: str = ""

    @property
    def signs(self) -> tuple[Sign, ...]:
        """Wrapper openers, and the bare bracket."""
        return tuple(Sign(opener) for opener, _ in self.wrappers) + ((Sign("["),) if self.bare else ())

    @property
    def closers(self) -> tuple[str, ...]:
        """What ends calls."""
        return tuple(closer for _, closer in self.wrappers if closer)

    def codec(self, machine: Machine) -> Codec:
        """A reader for one turn."""
        return PythonCallsCodec(self, machine)
