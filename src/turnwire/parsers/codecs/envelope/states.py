"""The states of a JSON envelope's reader, and the ways between them.

Promise: every way from one state to another is here.
"""

from __future__ import annotations

from enum import auto
from typing import Final

from turnwire.parsers.symbols import Symbol

__all__ = ["NEXT", "On", "Part", "State"]


class State(Symbol):
    """Where in the JSON the reader is."""

    OPEN = auto()  # after the opener: an object or a list must come
    ITEMS = auto()  # before, between and after objects
    KEY = auto()  # in an object, before a key or the end
    COLON = auto()
    VALUE = auto()
    READ = auto()  # in a key or a value that is being collected
    ARGUMENTS = auto()  # in arguments that stream
    STRING = auto()  # in arguments that came as a JSON string
    SCALAR = auto()  # in a number or a word
    ALIEN = auto()  # in JSON that is not a call: prose, to its end
    OUT = auto()


class Part(Symbol):
    """What is being collected."""

    KEY = auto()
    NAME = auto()
    ID = auto()
    ARGUMENTS = auto()
    OTHER = auto()


class On(Symbol):
    """What was read, as far as it changes the state."""

    WRAPPER = "a wrapper opens"
    BRACE = "an opening brace"
    BRACKET = "an opening bracket"
    KEY = "a quote, where a key must come"
    KEY_END = "the key's end"
    COLON = "a colon"
    OTHER = "a value that is collected"
    SCALAR = "a number or a word"
    ARGUMENTS = "the arguments, with the name known"
    STRING = "the arguments as a string"
    VALUE_END = "the value's end"
    OBJECT_END = "the object's end, or where it breaks"
    NO_CALL = "a key that no call has"


_BREAKS: Final = {On.OBJECT_END: State.ITEMS}

# Every way from one state to another. From each of them calls may also be left for prose.
NEXT: Final[dict[State, dict[On, State]]] = {
    State.OUT: {On.WRAPPER: State.OPEN, On.BRACE: State.KEY, On.BRACKET: State.ITEMS},
    State.OPEN: {On.BRACKET: State.ITEMS, On.BRACE: State.ITEMS},
    State.ITEMS: {On.BRACE: State.KEY},
    State.KEY: {On.KEY: State.READ, **_BREAKS},
    State.COLON: {On.COLON: State.VALUE, On.NO_CALL: State.ALIEN, **_BREAKS},
    State.VALUE: {
        On.OTHER: State.READ,
        On.SCALAR: State.SCALAR,
        On.ARGUMENTS: State.ARGUMENTS,
        On.STRING: State.STRING,
        On.BRACE: State.KEY,
    },
    State.READ: {On.KEY_END: State.COLON, On.VALUE_END: State.KEY, **_BREAKS},
    State.ARGUMENTS: {On.VALUE_END: State.KEY, **_BREAKS},
    State.STRING: {On.VALUE_END: State.KEY},
    State.SCALAR: {On.VALUE_END: State.KEY},
}
