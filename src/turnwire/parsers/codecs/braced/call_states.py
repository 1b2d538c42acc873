"""The states of the reader of calls in Gemma's notation, and the ways between them.

Promise: every way from one state to another is here.
"""

from __future__ import annotations

from enum import auto
from typing import Final

from turnwire.parsers.symbols import Symbol

__all__ = ["NEXT", "On", "State"]


class State(Symbol):
    """Where in a call the reader is."""

    OPEN = auto()  # after the opener
    NAME = auto()
    BRACE = auto()  # after the name
    BODY = auto()
    CLOSE = auto()  # after a call
    OUT = auto()


class On(Symbol):
    """What was read, as far as it changes the state."""

    OPENER = "the opener"
    HEAD = "the word before the name, or the name at once"
    NAME = "the end of the name"
    OBJECT = "an opening brace"
    NO_ARGUMENTS = "the closer at once"
    OBJECT_END = "its last brace, or the closer"


# Every way from one state to another. From each of them calls may also be left for prose.
NEXT: Final[dict[State, dict[On, State]]] = {
    State.OUT: {On.OPENER: State.OPEN, On.HEAD: State.NAME},
    State.OPEN: {On.HEAD: State.NAME},
    State.NAME: {On.NAME: State.BRACE},
    State.BRACE: {On.OBJECT: State.BODY, On.NO_ARGUMENTS: State.CLOSE},
    State.BODY: {On.OBJECT_END: State.CLOSE},
    State.CLOSE: {On.HEAD: State.NAME},
}
