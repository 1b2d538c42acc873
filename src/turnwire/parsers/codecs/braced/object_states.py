"""The states of the reader of an object in Gemma's notation, and the ways between them.

Promise: every way from one state to another is here.
"""

from __future__ import annotations

from enum import auto
from typing import Final

from turnwire.parsers.symbols import Symbol

__all__ = ["NEXT", "On", "State"]


class State(Symbol):
    """Where in the object the reader is."""

    KEY = auto()
    VALUE = auto()
    BARE = auto()  # in a value without quotes
    STRING = auto()
    QUOTED = auto()  # in a value in JSON's quotes
    AFTER = auto()  # after a value
    DONE = auto()


class On(Symbol):
    """What was read, as far as it changes the state."""

    OBJECT = "an object opens, or the next member comes"
    LIST = "a list opens, or the next element comes"
    KEY = "a key and its colon"
    MARK = "the string mark"
    QUOTE = "a double quote"
    OTHER = "any other character"
    VALUE_END = "the value's end, or a closing bracket"
    LAST = "the last bracket, or the closer of the call"


# Every way from one state to another.
NEXT: Final[dict[State, dict[On, State]]] = {
    State.KEY: {On.KEY: State.VALUE, On.VALUE_END: State.AFTER, On.LAST: State.DONE},
    State.VALUE: {
        On.MARK: State.STRING,
        On.QUOTE: State.QUOTED,
        On.OTHER: State.BARE,
        On.OBJECT: State.KEY,
        On.LIST: State.VALUE,
        On.VALUE_END: State.AFTER,
    },
    State.BARE: {On.KEY: State.VALUE, On.VALUE_END: State.AFTER},
    State.STRING: {On.VALUE_END: State.AFTER},
    State.QUOTED: {On.VALUE_END: State.AFTER},
    State.AFTER: {On.OBJECT: State.KEY, On.LIST: State.VALUE, On.VALUE_END: State.AFTER, On.LAST: State.DONE},
}
