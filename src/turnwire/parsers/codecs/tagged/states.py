"""The states and tags of a tagged call syntax, and what its table compiles to.

Promise: compiling a table twice gives one plan; a plan holds no text of a turn.
"""

from __future__ import annotations

import re
from enum import auto
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from turnwire.parsers.codecs.attributes import read_attribute
from turnwire.parsers.scanner import Scanner
from turnwire.parsers.symbols import Symbol

if TYPE_CHECKING:
    from turnwire.parsers.codecs.tagged.table import Tagged

__all__ = ["HEADER_LIMIT", "NAME", "NEXT", "On", "State", "Tag", "TaggedPlan", "plan_of"]

HEADER_LIMIT: Final = 512
"""No tag is longer than this: a tag that has not ended by then is not one."""

NAME: Final = re.compile(r"[^\s<>{}\[\]()\"'`,;=|]{1,256}")
"""What a tool may be called."""

_QUOTES: Final = "\"'"


class State(Symbol):
    """Where in a call the reader is."""

    SECTION = auto()  # inside a section, before or between calls
    NAME = auto()  # in a call's header
    BODY = auto()  # between arguments
    KEY = auto()  # in a parameter's header
    GAP = auto()  # between a key and its value
    VALUE = auto()
    JSON = auto()  # in a body that is one JSON object
    OUT = auto()


class On(Symbol):
    """What was read, as far as it changes the state."""

    SECTION = "a section opens"
    CALL = "a call opens"
    NAME = "its name"
    PARAMETER = "a parameter opens"
    KEY = "its key"
    KEY_ALONE = "its key, where a tag comes before the value"
    VALUE_TAG = "the tag before the value"
    OTHER_TAG = "another tag"
    VALUE = "the value's end"
    NO_KEY = "no key"
    OBJECT = "an opening brace"
    OBJECT_END = "its last brace"
    CALL_END = "the call's end, inside a section"


# Every way from one state to another. From each of them calls may also be left for prose.
NEXT: Final[dict[State, dict[On, State]]] = {
    State.OUT: {On.SECTION: State.SECTION, On.CALL: State.NAME},
    State.SECTION: {On.CALL: State.NAME},
    State.NAME: {On.NAME: State.BODY},
    State.BODY: {On.PARAMETER: State.KEY, On.OBJECT: State.JSON, On.CALL_END: State.SECTION},
    State.KEY: {On.KEY: State.VALUE, On.KEY_ALONE: State.GAP, On.NO_KEY: State.BODY},
    State.GAP: {On.VALUE_TAG: State.VALUE, On.OTHER_TAG: State.BODY},
    State.VALUE: {On.VALUE: State.BODY, On.PARAMETER: State.KEY},
    State.JSON: {On.OBJECT_END: State.BODY},
}


class Tag(Symbol):
    """What a tag is."""

    SECTION_OPEN = auto()
    SECTION_CLOSE = auto()
    CALL_OPEN = auto()
    CALL_CLOSE = auto()
    PARAM_OPEN = auto()
    PARAM_CLOSE = auto()
    VALUE_OPEN = auto()
    WRONG_CLOSE = auto()
    BLANK = auto()  # a line break written as backslash and n, or a marker that carries nothing


# Which tags are looked for in which state. After a value, `BODY` says what may follow.
TAGS: Final[dict[State, frozenset[Tag]]] = {
    State.SECTION: frozenset({Tag.SECTION_OPEN, Tag.SECTION_CLOSE, Tag.CALL_OPEN, Tag.CALL_CLOSE, Tag.BLANK}),
    State.BODY: frozenset(Tag) - {Tag.WRONG_CLOSE, Tag.VALUE_OPEN},
    State.GAP: frozenset({Tag.VALUE_OPEN, Tag.PARAM_OPEN, Tag.PARAM_CLOSE, Tag.CALL_CLOSE}),
    State.VALUE: frozenset(Tag) - {Tag.VALUE_OPEN, Tag.BLANK},
}


class TaggedPlan:
    """What a table compiles to: per state a scanner, and what each marker means."""

    def __init__(self, table: Tagged) -> None:
        headers, repairs = table.headers, table.repairs
        self._table = table
        tags: dict[Tag, tuple[str, ...]] = {
            Tag.SECTION_OPEN: tuple(opener for opener, _ in table.sections),
            Tag.SECTION_CLOSE: tuple(closer for _, closer in table.sections),
            Tag.CALL_OPEN: table.call_open,
            Tag.CALL_CLOSE: table.call_close,
            Tag.PARAM_OPEN: table.param_open,
            Tag.PARAM_CLOSE: table.param_close,
            Tag.VALUE_OPEN: table.values.open,
            Tag.WRONG_CLOSE: repairs.wrong_close,
            Tag.BLANK: repairs.fillers + (("\\n",) if "\\n" in headers.name_ends and not headers.end else ()),
        }
        self.meanings: dict[State, dict[str, Tag]] = {}
        self.scanners: dict[State, Scanner] = {}
        for state, wanted in TAGS.items():
            meanings = {text: tag for tag in Tag if tag in wanted for text in tags[tag]}
            if state is State.SECTION:
                meanings |= {text: Tag.CALL_OPEN for text in repairs.loose_open if text not in meanings}
            if state is State.VALUE:
                plain = () if table.values.newlines != "none" else (Tag.PARAM_CLOSE,)
                bare = (Tag.CALL_OPEN, Tag.SECTION_OPEN, *plain)
                meanings |= {"\n" + text: tag for text, tag in meanings.items() if tag not in bare}
            self.meanings[state] = meanings
            self.scanners[state] = Scanner(meanings)
        following = [*tags[Tag.PARAM_OPEN], *tags[Tag.CALL_CLOSE], *tags[Tag.CALL_OPEN], *tags[Tag.SECTION_CLOSE]]
        stops = [headers.end, "\n", "<"] if headers.end else [*headers.name_ends, *following]
        self.header = Scanner(stops)
        self.key = Scanner([*headers.key_end, "\n"] if ">" in headers.key_end else headers.key_end)
        firsts = {text[0] for text in self.meanings[State.VALUE]}
        self.value = "[" + "".join(sorted(map(re.escape, firsts))) + r'"\\\x00-\x1f]'

    def name_in(self, header: str) -> tuple[str, bool]:
        """The tool's name in a call's header, and whether the tag closes itself (`<invoke name="ls"/>`)."""
        headers, header = self._table.headers, header.strip()
        closed = bool(headers.end) and header.endswith("/")
        if headers.name_attribute:
            return read_attribute(header, headers.name_attribute) or "", closed
        return (header.rstrip("/ ") if closed else header).strip(_QUOTES), closed

    def key_in(self, header: str) -> str:
        """The argument's name in a parameter's header."""
        attribute = self._table.headers.key_attribute
        named = read_attribute(header, attribute) if attribute else None
        return header.strip().strip(_QUOTES) if named is None else named


@lru_cache(maxsize=256)
def plan_of(table: Tagged) -> TaggedPlan:
    """The plan of a table."""
    return TaggedPlan(table)
