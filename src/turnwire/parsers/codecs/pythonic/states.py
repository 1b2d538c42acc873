"""The states of a reader of Python calls, and the ways between them.

Promise: every way from one state to another is here.
"""

from __future__ import annotations

from enum import auto
from typing import Final

from turnwire.parsers.symbols import Symbol

__all__ = ["NEXT", "On", "State"]


class State(Symbol):
    """Where in the calls the reader is."""

    ITEMS = auto()  # before, between and after calls
    NAME = auto()
    PAREN = auto()  # after a name
    KEY = auto()  # before an argument or the end of the call
    WORD = auto()  # in an argument's name
    EQUALS = auto()  # after it
    START = auto()  # before a value
    VALUE = auto()
    ECHO = auto()  # after the closer, in what may repeat the calls
    OUT = auto()


class On(Symbol):
    """What was read, as far as it changes the state."""

    OPENER = "a wrapper or a bracket opens"
    LETTER = "a letter"
    NAME = "the end of the name"
    PAREN = "an opening parenthesis"
    KEY = "the end of the key"
    EQUALS = "an equals sign"
    VALUE = "what begins a value"
    VALUE_END = "the value's end"
    CALL_END = "a closing parenthesis, or what takes its place"
    CLOSER = "the closer, where calls may be repeated"


# Every way from one state to another. From each of them calls may also be left for prose.
NEXT: Final[dict[State, dict[On, State]]] = {
    State.OUT: {On.OPENER: State.ITEMS},
    State.ITEMS: {On.LETTER: State.NAME, On.CLOSER: State.ECHO},
    State.NAME: {On.NAME: State.PAREN},
    State.PAREN: {On.PAREN: State.KEY},
    State.KEY: {On.LETTER: State.WORD, On.VALUE: State.VALUE, On.CALL_END: State.ITEMS},
    State.WORD: {On.KEY: State.EQUALS},
    State.EQUALS: {On.EQUALS: State.START, On.VALUE: State.VALUE},
    State.START: {On.VALUE: State.VALUE},
    State.VALUE: {On.VALUE: State.VALUE, On.VALUE_END: State.KEY, On.CALL_END: State.ITEMS},
}
