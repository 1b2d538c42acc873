"""The table of XTML: which of its stages are on, and where its output begins.

Promise: a table is data alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from turnwire.parsers.codecs.xtml.reader import XtmlCodec
from turnwire.parsers.codecs.xtml.states import CLOSE, OPEN, SEP
from turnwire.parsers.dialect import RouterCodec, Start

if TYPE_CHECKING:
    from turnwire.parsers.machine import Machine

__all__ = ["Xtml"]


class Xtml(msgspec.Struct, frozen=True):
    """The table has nothing to vary but which stages are on: `thoughts` and `tools` say whether thoughts and calls
    are kept apart from text."""

    thoughts: bool = True
    tools: bool = True

    def codec(self, machine: Machine) -> RouterCodec:
        """A reader for one turn."""
        return XtmlCodec(self, machine)

    def start(self, prompt_tail: str) -> Start:
        """Inside a thought if the last message of the prompt leaves one open."""
        message = prompt_tail[max(prompt_tail.rfind(OPEN + "message"), 0) :]
        opened, closed = message.rfind(f"{OPEN}think{SEP}"), message.rfind(f"{CLOSE}think{SEP}")
        return Start("reasoning") if opened > closed else Start()

    def without_calls(self) -> Xtml:
        """The same, with calls and what follows them left in the text as written."""
        return replace(self, tools=False)

    def without_reasoning(self) -> Xtml:
        """The same, with thoughts left in the text."""
        return replace(self, thoughts=False)
