"""Looks ahead from a tag inside a value, to tell the value's end from markup that the value quotes.

Promise: a value ends only at a closer after which comes what may come there; a tag that opens something is text. How
far is looked ahead is bounded, and nothing is consumed: the answer to `WAIT` is more text, never another reading.
"""

from __future__ import annotations

import re
from enum import auto
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from turnwire.parsers.codecs.tagged.states import HEADER_LIMIT, NAME, State, Tag, TaggedPlan
from turnwire.parsers.scanner import WAIT, Scanner, blanks
from turnwire.parsers.symbols import Symbol

if TYPE_CHECKING:
    from turnwire.parsers.codecs.tagged.table import Tagged
    from turnwire.parsers.machine import Machine

__all__ = ["Ends", "Verdict"]

NOISE_LIMIT: Final = 128
"""How much text after a closer may be noise between two arguments; more of it belongs to the value."""

_QUOTING: Final = "\"'`\\"
_SEPARATOR: Final = re.compile(r"<[\w:-]{1,32}>\Z")
_MARKUP: Final = (Tag.CALL_OPEN, Tag.SECTION_OPEN)


class Verdict(Symbol):
    """What a tag inside a value is."""

    TEXT = auto()
    ENDS = auto()  # the value ends before it
    WAIT = auto()  # only more text can tell


class Ahead(Symbol):
    """What comes next, where it is not a tag."""

    TEXT = auto()
    END = auto()  # the output ends
    WAIT = auto()


@lru_cache(maxsize=256)
def _ends(texts: tuple[str, ...]) -> Scanner:
    return Scanner(texts)


class Ends:
    """Judges the tags inside one value after the other.

    A call that the value quotes is recognised by its opener, name and first parameter, each in its place; until it is
    closed, closers belong to it. `_depth` counts what is open of quoted calls: odd inside a call, even inside a
    parameter (0 is the value itself); `_sections` are the depths at which a quoted section is open."""

    def __init__(self, table: Tagged, plan: TaggedPlan, machine: Machine) -> None:
        self._table = table
        self._plan = plan
        self._machine = machine
        self._scanner = plan.scanners[State.BODY]
        self._meanings = plan.meanings[State.BODY]
        self._turn_ends = _ends(machine.dialect.ends)
        self._depth = 0
        self._quoted = ""
        self._sections: set[int] = set()
        self._missing: frozenset[str] = frozenset()

    def begin(self, missing: frozenset[str]) -> None:
        """A value begins; `missing` are the arguments that the call may still be given."""
        self._depth = 0
        self._quoted = ""
        self._sections = set()
        self._missing = missing

    @property
    def inside_quoted(self) -> bool:
        """Whether the text so far ends inside a call that the value quotes."""
        return self._depth > 0

    def judge(self, tag: Tag, text: str, start: int, stop: int, settled: bool) -> Verdict:
        """What the tag at `text[start:stop]` is. `settled`: the value so far is complete and no string."""
        depth = self._depth
        if tag in _MARKUP:
            return self._opener(tag, text, stop) if depth % 2 == 0 else Verdict.TEXT
        if tag is Tag.PARAM_OPEN:
            return self._param_open(text, start, stop)
        if tag is Tag.SECTION_CLOSE and depth in self._sections:
            self._sections.remove(depth)
            return Verdict.TEXT
        if depth == 0:
            if tag is Tag.PARAM_CLOSE:
                return self._own_closer(text, stop, settled)
            return self._wrong(text, stop) if tag is Tag.WRONG_CLOSE else self._forgotten(tag, text, stop)
        if tag is Tag.CALL_CLOSE and depth % 2:
            self._depth -= 1
        elif tag is Tag.PARAM_CLOSE and depth % 2 == 0:
            return self._quoted_closer(text, stop)
        return Verdict.TEXT

    # ------------------------------------------------------------------------------------------------- openers

    def _opener(self, tag: Tag, text: str, stop: int) -> Verdict:
        """A section's or a call's opener: text; it begins a quoted call if the rest of one follows."""
        if tag is Tag.SECTION_OPEN:
            opens = self._next_call(tag, text, stop)
            if opens is Verdict.ENDS:
                self._sections.add(self._depth)
            return Verdict.WAIT if opens is Verdict.WAIT else Verdict.TEXT
        opens, name = self._opens_call(text, stop)
        if opens is Verdict.WAIT:
            return Verdict.WAIT
        if opens is Verdict.ENDS and name:
            self._depth += 1
            if self._depth == 1:
                self._quoted = name
        return Verdict.TEXT

    def _param_open(self, text: str, start: int, stop: int) -> Verdict:
        """A parameter's opener: text; of a quoted call, or else the next argument after a forgotten closer, if it
        begins a line and names an argument that is still missing."""
        depth = self._depth
        fresh = text[start] == "\n" or bool(self._table.values.open)
        if depth % 2 == 0 and (depth or not fresh or not self._missing):
            return Verdict.TEXT
        opens, key = self._opens_param(text, stop)
        if opens is Verdict.WAIT:
            return Verdict.WAIT
        if depth == 0:
            return Verdict.ENDS if opens is Verdict.ENDS and key in self._missing else Verdict.TEXT
        self._depth += 1 if opens is Verdict.ENDS else -1
        return Verdict.TEXT

    # ------------------------------------------------------------------------------------------------- closers

    def _own_closer(self, text: str, stop: int, settled: bool) -> Verdict:
        """The value's own closer ends it if an argument, the call's end or the end of the output follows."""
        after, at, end = self._next(text, stop, stop)
        while after is Tag.PARAM_CLOSE:  # written twice
            after, at, end = self._next(text, end, stop)
        if after is Ahead.WAIT:
            return Verdict.WAIT
        if after is Ahead.END:
            return Verdict.ENDS
        if after is Tag.CALL_CLOSE or after is Tag.SECTION_CLOSE:
            return self._unquoted(text, end) if "\n" not in text[stop:at] else Verdict.ENDS
        if after is Tag.PARAM_OPEN:
            verdict, _ = self._opens_param(text, end)
        elif after in _MARKUP:
            verdict = self._next_call(after, text, end)
        else:
            verdict = Verdict.TEXT
        if verdict is not Verdict.TEXT:
            return verdict
        return Verdict.ENDS if settled else self._noise(text, stop)

    def _unquoted(self, text: str, end: int) -> Verdict:
        """Closers in a row are code that mentions them if a quotation mark follows at once."""
        if end == len(text):
            return Verdict.ENDS if self._machine.closing else Verdict.WAIT
        return Verdict.TEXT if text[end] in _QUOTING else Verdict.ENDS

    def _noise(self, text: str, stop: int) -> Verdict:
        """Text after a closer: noise, if on a line of its own the next missing argument or the end of the call soon
        follows; else the closer is part of the value."""
        window = text[stop : stop + NOISE_LIMIT]
        start, end = self._scanner.find(window, 0, self._machine.closing)
        if end < 0:
            more = not self._machine.closing and len(window) < NOISE_LIMIT
            return Verdict.WAIT if more else Verdict.TEXT
        tag = self._meanings[window[start:end]]
        if window[start - 1 : start] != "\n":
            return Verdict.TEXT
        if tag is Tag.PARAM_OPEN:
            opens, key = self._opens_param(text, stop + end)
            return opens if opens is Verdict.WAIT or key in self._missing else Verdict.TEXT
        return self._forgotten(tag, text, stop + end) if tag is Tag.CALL_CLOSE else Verdict.TEXT

    def _wrong(self, text: str, stop: int) -> Verdict:
        """Another format's closer ends the value if a missing argument follows, or the end of the call and the
        output."""
        after, _, end = self._next(text, stop, stop)
        if after is Ahead.WAIT:
            return Verdict.WAIT
        if after is Ahead.END:
            return Verdict.TEXT if self._machine.cut else Verdict.ENDS
        if after is Tag.PARAM_OPEN:
            opens, key = self._opens_param(text, end)
            return opens if opens is Verdict.WAIT or key in self._missing else Verdict.TEXT
        return self._forgotten(after, text, end) if after is Tag.CALL_CLOSE else Verdict.TEXT

    def _forgotten(self, tag: Tag, text: str, stop: int) -> Verdict:
        """The end of a call or section ends a value whose own closer was forgotten, if the output ends with it or
        another call follows."""
        after, _, end = self._next(text, stop, stop)
        if tag is Tag.CALL_CLOSE and after is Tag.SECTION_CLOSE:
            after, _, end = self._next(text, end, stop)
        if after is Ahead.END:
            return Verdict.TEXT if self._machine.cut else Verdict.ENDS
        if isinstance(after, Tag):
            return self._next_call(after, text, end) if after in _MARKUP else Verdict.TEXT
        return Verdict.WAIT if after is Ahead.WAIT else Verdict.TEXT

    def _quoted_closer(self, text: str, stop: int) -> Verdict:
        """A closer inside a quoted call. It is the value's own if the output ends with the closers that follow, or if
        an argument follows that is missing and that the quoted tool does not have."""
        after, _, end = self._next(text, stop, stop)
        if after is Ahead.WAIT:
            return Verdict.WAIT
        if after is Tag.PARAM_OPEN:
            opens, key = self._opens_param(text, end)
            if opens is Verdict.WAIT:
                return Verdict.WAIT
            tool = self._machine.tools.get(self._quoted)
            known = tool is None or key in self._machine.properties(self._quoted)
            if self._depth == 2 and key in self._missing and not known:
                return Verdict.ENDS
            self._depth -= opens is Verdict.ENDS
            return Verdict.TEXT
        closes = after is Tag.CALL_CLOSE
        if after is Tag.CALL_CLOSE:
            after, _, end = self._next(text, end, stop)
        if after is Tag.SECTION_CLOSE:
            after, _, end = self._next(text, end, stop)
        if after is Ahead.WAIT:
            return Verdict.WAIT
        if after is Ahead.END and not self._machine.cut:
            return Verdict.ENDS
        if closes:
            self._depth -= 1
        elif after is Tag.PARAM_CLOSE:
            self._depth -= 2
        return Verdict.TEXT

    # -------------------------------------------------------------------------------------------- what comes next

    def _next(self, text: str, pos: int, origin: int) -> tuple[Tag | Ahead, int, int]:
        """What comes after whitespace, and where it begins and ends. `origin` is where looking ahead began."""
        closing = self._machine.closing
        while True:
            at = blanks(text, pos)
            if at - origin > HEADER_LIMIT:
                return Ahead.TEXT, at, at
            if at == len(text):
                return Ahead.END if closing else Ahead.WAIT, at, at
            marker = self._scanner.at(text, at, closing)
            if marker is WAIT:
                return Ahead.WAIT, at, at
            if marker is None:
                return self._turn_end(text, at), at, at
            if self._meanings[marker] is not Tag.BLANK:
                return self._meanings[marker], at, at + len(marker)
            pos = at + len(marker)

    def _turn_end(self, text: str, at: int) -> Ahead:
        """An end-of-turn text counts as the end of the output where nothing follows it."""
        closing = self._machine.closing
        marker = self._turn_ends.at(text, at, closing)
        if marker is None:
            return Ahead.TEXT
        if marker is not WAIT and blanks(text, at + len(marker)) < len(text):
            return Ahead.TEXT
        return Ahead.END if closing else Ahead.WAIT

    def _next_call(self, tag: Tag, text: str, end: int) -> Verdict:
        """Whether another call follows a section's or a call's opener."""
        if tag is Tag.SECTION_OPEN:
            after, _, end = self._next(text, end, end)
            if after is not Tag.CALL_OPEN:
                return Verdict.WAIT if after is Ahead.WAIT else Verdict.TEXT
        return self._opens_call(text, end)[0]

    def _opens_call(self, text: str, pos: int) -> tuple[Verdict, str]:
        """Whether name and first parameter (or the end) of a call follow its opener (`ENDS`), and the name. A call
        that is whole in its one tag has no name here: there is nothing in it to be closed."""
        plan, closing, headers = self._plan, self._machine.closing, self._table.headers
        start, stop = plan.header.find(text, pos, closing)
        if stop < 0:
            more = not closing and start - pos <= HEADER_LIMIT
            return (Verdict.WAIT if more else Verdict.TEXT), ""
        marker = text[start:stop]
        if start - pos > HEADER_LIMIT or (headers.end and marker != headers.end):
            return Verdict.TEXT, ""
        name, closed = plan.name_in(text[pos:start])
        if not headers.end:  # a sister format may have a tag of its own after the name
            name = _SEPARATOR.sub("", name)
        if NAME.fullmatch(name) is None:
            return Verdict.TEXT, ""
        if closed:
            return Verdict.ENDS, ""
        after, _, end = self._next(text, stop if headers.end or marker in headers.name_ends else start, stop)
        if after is Tag.PARAM_OPEN:
            return self._opens_param(text, end)[0], name
        if after is Tag.CALL_CLOSE:
            return Verdict.ENDS, name
        return (Verdict.WAIT if after is Ahead.WAIT else Verdict.TEXT), ""

    def _opens_param(self, text: str, pos: int) -> tuple[Verdict, str]:
        """Whether a key follows a parameter's opener (`ENDS`), and the key."""
        plan, closing, table = self._plan, self._machine.closing, self._table
        start, stop = plan.key.find(text, pos, closing)
        if stop < 0:
            more = not closing and start - pos <= HEADER_LIMIT
            return (Verdict.WAIT if more else Verdict.TEXT), ""
        header = text[pos:start]
        attribute = table.headers.key_attribute
        if attribute and not (header[:1].isspace() or header.startswith(attribute)):  # another, longer tag
            return Verdict.TEXT, ""
        key = plan.key_in(header)
        known = key in self._missing
        if start - pos > HEADER_LIMIT or not (known or (text[start:stop] != "\n" and NAME.fullmatch(key))):
            return Verdict.TEXT, ""
        if not table.values.open:
            return Verdict.ENDS, key
        at = blanks(text, stop)
        marker = plan.scanners[State.GAP].at(text, at, closing)
        if marker is WAIT or (at == len(text) and not closing):
            return (Verdict.WAIT if at - stop <= HEADER_LIMIT else Verdict.TEXT), key
        return (Verdict.ENDS if marker in table.values.open else Verdict.TEXT), key
