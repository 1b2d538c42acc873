"""The tags and states of XTML, and the ways between the states.

Promise: every way from one state to another is here.
"""

from __future__ import annotations

from enum import auto
from typing import Final

import msgspec

from turnwire.parsers.symbols import Symbol
from turnwire.turns import BlockKind

__all__ = ["CLOSE", "ELEMENTS", "END", "ENDERS", "NEXT", "OPEN", "PROSE", "SEP", "TAG_LIMIT", "On", "State", "Tag"]

OPEN: Final = "<|open|>"
CLOSE: Final = "<|close|>"
SEP: Final = "<|sep|>"
END: Final = "<|end_of_msg|>"
TAG_LIMIT: Final = 512
"""No tag is longer than this: one that has not ended by then is not one."""

PROSE: Final[dict[str, BlockKind]] = {"think": "reasoning", "response": "text"}
ELEMENTS: Final = (*PROSE, "message", "tools", "call", "argument", "json")
# Tags that end an argument whose own closer is missing.
ENDERS: Final = frozenset({(CLOSE, "call"), (CLOSE, "tools"), (CLOSE, "message"), (OPEN, "argument"), (OPEN, "call")})


class Tag(msgspec.Struct, frozen=True):
    """A tag that was read: `marker` opens or closes element `name`; the text goes on at `stop`. A `cut` tag is the
    beginning of one at the end of the output. `whole`: it ended as it should."""

    marker: str
    name: str
    header: str
    stop: int
    whole: bool = True
    cut: bool = False


class State(Symbol):
    """Where the reader is."""

    PROSE = auto()
    TOOLS = auto()  # between calls
    CALL = auto()  # between arguments
    VALUE = auto()
    JSON = auto()
    VERBATIM = auto()


class On(Symbol):
    """What was read, as far as it changes the state."""

    PROSE = "a thought, an answer or nothing opens"
    TOOLS = "the calls open"
    CALL = "a call opens"
    UNNAMED = "a call without a name"
    LEFT = "calls that are to stay in the text"
    ARGUMENT = "an argument opens"
    ARGUMENT_END = "its end"
    OBJECT = "a JSON object begins"
    OBJECT_END = "its last brace"
    CALL_END = "the call's end"


# Every way from one state to another.
NEXT: Final[dict[State, dict[On, State]]] = {
    State.PROSE: {
        On.PROSE: State.PROSE,
        On.TOOLS: State.TOOLS,
        On.CALL: State.CALL,
        On.UNNAMED: State.TOOLS,
        On.LEFT: State.VERBATIM,
    },
    State.TOOLS: {On.CALL: State.CALL, On.UNNAMED: State.TOOLS, On.PROSE: State.PROSE},
    State.CALL: {On.ARGUMENT: State.VALUE, On.OBJECT: State.JSON, On.CALL_END: State.TOOLS},
    State.VALUE: {On.ARGUMENT_END: State.CALL},
    State.JSON: {On.OBJECT_END: State.CALL},
}
