"""What decides about a marker by the text after it: the end of the turn, and a thought in mid-sentence.

Promise: at most whitespace is consumed before the decision, and none of it is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from turnwire.parsers.scanner import blanks

if TYPE_CHECKING:
    from turnwire.parsers.machine import Machine
    from turnwire.parsers.prose import Prose

__all__ = ["Ending", "Opening"]

_STOPS: Final = frozenset(" \t.,;:!?)]}>\"'`/|*")
"""What follows a marker that a sentence mentions."""


class Ending:
    """Reads on after an end-of-turn marker: if anything visible follows, the marker was text."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def plain(self) -> str | None:
        """Nothing passes unseen."""
        return None

    def finish(self) -> None:
        """The turn ends with its marker, which is structure."""

    def run(self, text: str, pos: int) -> int:
        """Consume whitespace."""
        stop = blanks(text, pos)
        self._machine.sink.keep(text[pos:stop])
        if stop < len(text):
            self._machine.refuse()
        return stop


class Opening:
    """Reads on after a reasoning opener in mid-sentence: where a space or a stop follows at once, the text mentions
    the marker; anything else is a thought."""

    def __init__(self, prose: Prose, machine: Machine) -> None:
        self._prose = prose
        self._machine = machine

    def plain(self) -> str | None:
        """Nothing passes unseen."""
        return None

    def finish(self) -> None:
        """A thought without text."""
        self._prose.opened()

    def run(self, text: str, pos: int) -> int:
        """Look at one character; consume nothing."""
        if text[pos] in _STOPS:
            self._prose.mentioned()
        else:
            self._prose.opened()
        return pos
