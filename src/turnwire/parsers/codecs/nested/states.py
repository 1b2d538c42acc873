"""The states of a nested syntax's reader, and the ways between them.

Promise: every way from one state to another is here.
"""

from __future__ import annotations

from enum import auto
from typing import Final

from turnwire.parsers.symbols import Symbol

__all__ = ["NEXT", "On", "State"]


class State(Symbol):
    """Where in the calls the reader is."""

    FIRST = auto()  # after the mark that may open the calls
    SECTION = auto()  # before, between and after calls
    CONTENT = auto()  # in a call
    OUT = auto()


class On(Symbol):
    """What was read, as far as it changes the state."""

    MARK = "the mark"
    SECTION = "the calls open"
    CALL = "a call opens"
    CALL_END = "the call's end"


# Every way from one state to another. From each of them calls may also be left for prose.
NEXT: Final[dict[State, dict[On, State]]] = {
    State.OUT: {On.MARK: State.FIRST},
    State.FIRST: {On.SECTION: State.SECTION, On.CALL: State.CONTENT},
    State.SECTION: {On.CALL: State.CONTENT},
    State.CONTENT: {On.CALL_END: State.SECTION},
}
