"""The states and tags of a tagged call syntax, and what its table compiles to."""

from __future__ import annotations

import re
from enum import Enum, auto
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from turnwire.parsers.scanner import Scanner

if TYPE_CHECKING:
    from turnwire.parsers.codecs.tagged import Tagged

__all__ = ["FOLLOWERS", "State", "Tag", "TaggedPlan", "plan_of", "read_attribute"]


class State(Enum):
    """Where in a call the reader stands."""

    SECTION = auto()  # inside a section, before or between calls
    NAME = auto()  # in a call's header
    BODY = auto()  # between arguments
    KEY = auto()  # in a parameter's header
    GAP = auto()  # between a key and its value
    VALUE = auto()
    AFTER = auto()  # behind what looks like the end of a value
    JSON = auto()  # in a body that is one JSON object
    OUT = auto()


class Tag(Enum):
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


# A closer ends a value only if one of these follows it (or the end of the output); otherwise it is part of the value.
FOLLOWERS: Final[dict[Tag, frozenset[Tag]]] = {
    Tag.PARAM_CLOSE: frozenset(
        {Tag.PARAM_OPEN, Tag.PARAM_CLOSE, Tag.CALL_CLOSE, Tag.CALL_OPEN, Tag.SECTION_CLOSE, Tag.SECTION_OPEN}
    ),
    Tag.WRONG_CLOSE: frozenset({Tag.PARAM_OPEN, Tag.CALL_CLOSE}),
    Tag.CALL_CLOSE: frozenset({Tag.CALL_OPEN, Tag.SECTION_CLOSE, Tag.SECTION_OPEN}),
    Tag.SECTION_CLOSE: frozenset({Tag.CALL_OPEN, Tag.SECTION_OPEN}),
}

# Which tags are looked for in which state.
TAGS: Final[dict[State, frozenset[Tag]]] = {
    State.SECTION: frozenset({Tag.SECTION_OPEN, Tag.SECTION_CLOSE, Tag.CALL_OPEN, Tag.CALL_CLOSE, Tag.BLANK}),
    State.BODY: frozenset(Tag) - {Tag.WRONG_CLOSE, Tag.VALUE_OPEN},
    State.GAP: frozenset({Tag.VALUE_OPEN, Tag.PARAM_OPEN, Tag.PARAM_CLOSE, Tag.CALL_CLOSE}),
    State.VALUE: frozenset(Tag) - {Tag.VALUE_OPEN, Tag.BLANK},
    State.AFTER: frozenset(Tag) - {Tag.VALUE_OPEN, Tag.WRONG_CLOSE},
}


class TaggedPlan:
    """What a table compiles to: per state a scanner, and what each marker means."""

    def __init__(self, table: Tagged) -> None:
        tags: dict[Tag, tuple[str, ...]] = {
            Tag.SECTION_OPEN: tuple(opener for opener, _ in table.sections),
            Tag.SECTION_CLOSE: tuple(closer for _, closer in table.sections),
            Tag.CALL_OPEN: table.call_open,
            Tag.CALL_CLOSE: table.call_close,
            Tag.PARAM_OPEN: table.param_open,
            Tag.PARAM_CLOSE: table.param_close,
            Tag.VALUE_OPEN: table.value_open,
            Tag.WRONG_CLOSE: table.wrong_close,
            Tag.BLANK: table.fillers + (("\\n",) if "\\n" in table.name_ends and not table.header_end else ()),
        }
        self.meanings: dict[State, dict[str, Tag]] = {}
        self.scanners: dict[State, Scanner] = {}
        for state, wanted in TAGS.items():
            meanings = {text: tag for tag in Tag if tag in wanted for text in tags[tag]}
            if state is State.SECTION:
                meanings |= {text: Tag.CALL_OPEN for text in table.loose_open if text not in meanings}
            if state is State.VALUE:
                plain = () if table.newlines != "none" else (Tag.PARAM_CLOSE,)
                bare = (Tag.CALL_OPEN, Tag.SECTION_OPEN, *plain)
                meanings |= {"\n" + text: tag for text, tag in meanings.items() if tag not in bare}
            self.meanings[state] = meanings
            self.scanners[state] = Scanner(meanings)
        following = [*tags[Tag.PARAM_OPEN], *tags[Tag.CALL_CLOSE], *tags[Tag.CALL_OPEN], *tags[Tag.SECTION_CLOSE]]
        stops = [table.header_end, "\n", "<"] if table.header_end else [*table.name_ends, *following]
        self.header = Scanner(stops)
        self.key = Scanner([*table.key_end, "\n"] if ">" in table.key_end else table.key_end)
        firsts = {text[0] for text in self.meanings[State.VALUE]}
        self.value = "[" + "".join(sorted(map(re.escape, firsts))) + r'"\\\x00-\x1f]'


@lru_cache(maxsize=256)
def plan_of(table: Tagged) -> TaggedPlan:
    return TaggedPlan(table)


@lru_cache(maxsize=64)
def _attribute(name: str) -> re.Pattern[str]:
    return re.compile(rf"""(?:^|[\s"']){name}\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'/>]+))""")


def read_attribute(header: str, name: str) -> str | None:
    """The value of an attribute in a tag's header."""
    found = _attribute(name).search(header)
    return None if found is None else next((value for value in found.groups() if value is not None), None)
