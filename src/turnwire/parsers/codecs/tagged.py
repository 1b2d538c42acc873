"""Calls written as tags around each argument (`<parameter=k>v</parameter>`), typed by the tool's schema or the tag."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

from turnwire.parsers.codecs.json_text import JsonText
from turnwire.parsers.dialect import Codec, Sign
from turnwire.parsers.scanner import WAIT, Scanner, blanks
from turnwire.parsers.schema import STRING, Shape, escape, quote, write
from turnwire.parsers.sink import is_json

if TYPE_CHECKING:
    from turnwire.parsers.machine import Machine

__all__ = ["Tagged"]

HEADER_LIMIT: Final = 512
"""No tag is longer than this: a tag that has not ended by then is not one."""


@dataclass(frozen=True, slots=True)
class Tagged:
    """The table of a tagged syntax.

    `sections` wrap one or more calls. A call's header follows `call_open` up to `header_end`; with `name_attribute`
    the name is that attribute's value, else it is the header text itself. With no `header_end` the name runs up to
    one of `name_ends` or the next tag. A parameter's header follows `param_open` in the same way up to `key_end`, and
    `value_open` stands between key and value where the format has such a tag. `newlines` says which line breaks
    around a value belong to the format: none, one on `both` sides, or `paired` (one at the end only if there was one
    before). `type_attribute` names the attribute that types the value: "true"/"false" (is it a string) or a JSON type
    name. `bare`: calls without a section are believed when the tool is offered. `json_body`: a call's body may be one
    JSON object. `loose_open` are misspelt openers accepted inside a section, `wrong_close` closers of other formats
    accepted where a parameter must end. `unwraps`: a lone parameter of this name that the schema does not have, with
    an object that fits the schema, is the arguments themselves."""

    call_open: tuple[str, ...]
    call_close: tuple[str, ...]
    param_open: tuple[str, ...]
    param_close: tuple[str, ...]
    sections: tuple[tuple[str, str], ...] = ()
    header_end: str = ">"
    name_ends: tuple[str, ...] = ("\n", "\\n")
    key_end: tuple[str, ...] = (">",)
    value_open: tuple[str, ...] = ()
    name_attribute: str = ""
    key_attribute: str = ""
    type_attribute: str = ""
    newlines: Literal["none", "both", "paired"] = "none"
    bare: bool = True
    json_body: bool = False
    unwraps: tuple[str, ...] = ()
    loose_open: tuple[str, ...] = ()
    wrong_close: tuple[str, ...] = ()

    @property
    def signs(self) -> tuple[Sign, ...]:
        """Section openers; call openers too, as a rescue where the format asks for a section."""
        wrapped = tuple(Sign(opener) for opener, _ in self.sections)
        if not self.sections:
            return tuple(Sign(opener) for opener in self.call_open)
        return wrapped + tuple(Sign(opener, rescue=True) for opener in self.call_open if self.bare)

    def codec(self, machine: Machine) -> Codec:
        """A reader for one turn."""
        return _TaggedCodec(self, machine)


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
    State.SECTION: frozenset({Tag.SECTION_OPEN, Tag.SECTION_CLOSE, Tag.CALL_OPEN, Tag.CALL_CLOSE}),
    State.BODY: frozenset(Tag) - {Tag.WRONG_CLOSE, Tag.VALUE_OPEN},
    State.GAP: frozenset({Tag.VALUE_OPEN, Tag.PARAM_OPEN, Tag.PARAM_CLOSE, Tag.CALL_CLOSE}),
    State.VALUE: frozenset(Tag) - {Tag.VALUE_OPEN},
    State.AFTER: frozenset(Tag) - {Tag.VALUE_OPEN, Tag.WRONG_CLOSE},
}


class _Plan:
    """What a table compiles to: per state a scanner, and what each marker means."""

    __slots__ = ("closers", "header", "key", "meanings", "scanners", "value")

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
def _plan(table: Tagged) -> _Plan:
    return _Plan(table)


_NAME = re.compile(r"[^\s<>{}\[\]()\"'`,;=|]{1,256}")
_QUOTES = "\"'"


@lru_cache(maxsize=64)
def _attribute(name: str) -> re.Pattern[str]:
    return re.compile(rf"""(?:^|[\s"']){name}\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'/>]+))""")


def read_attribute(header: str, name: str) -> str | None:
    """The value of an attribute in a tag's header."""
    found = _attribute(name).search(header)
    return None if found is None else next((value for value in found.groups() if value is not None), None)


class _TaggedCodec:
    """Reads tagged calls. String values stream; others wait for their closer."""

    __slots__ = (
        "_after", "_closer", "_count", "_json", "_key", "_keys", "_led", "_machine", "_name", "_nested",
        "_nested_calls", "_opening", "_plan", "_shape", "_sink", "_skip", "_state", "_streaming", "_table", "_value",
        "_wrapped",
    )  # fmt: skip

    def __init__(self, table: Tagged, machine: Machine) -> None:
        self._table = table
        self._plan = _plan(table)
        self._machine = machine
        self._sink = machine.sink
        self._state = State.OUT
        self._wrapped = False
        self._name = ""
        self._key = ""
        self._keys: set[str] = set()
        self._count = 0
        self._shape: Shape = STRING
        self._streaming = False
        self._value: list[str] = []
        self._after: list[str] = []
        self._closer = Tag.PARAM_CLOSE
        self._skip = False
        self._led = False
        self._opening = ""
        self._nested = 0
        self._nested_calls = 0
        self._json: JsonText | None = None

    # ------------------------------------------------------------------------------------------ codec interface

    def enter(self, sign: Sign) -> None:
        """Behind a section opener, or behind a call opener that came alone."""
        self._wrapped = any(sign.text == opener for opener, _ in self._table.sections)
        self._state = State.SECTION if self._wrapped else State.NAME

    def run(self, text: str, pos: int) -> int:
        """Consume text while a call is being read."""
        end = len(text)
        while pos < end:
            state = self._state
            new = STEPS[state](self, text, pos)
            if self._state is State.OUT or (new == pos and self._state is state):
                return new
            pos = new
        return pos

    def plain(self) -> str | None:
        """A streaming string value forwards anything but tags, quotes, backslashes and control characters."""
        if self._state is State.VALUE and self._streaming and not self._skip:
            return self._plan.value
        if self._state is State.JSON and self._json is not None and self._json.in_string:
            return JsonText.PLAIN
        return None

    def finish(self) -> None:
        """The end of the output: a value that has its closer is complete, any other is cut."""
        sink, state = self._sink, self._state
        if state is State.AFTER and self._closer is not Tag.PARAM_OPEN:
            self._end_value()
            self._settle(self._closer)
            state = self._state
        if state in (State.SECTION, State.NAME, State.OUT):
            if sink.trial is not None:
                sink.accept()
                sink.note("call.truncated")
            return
        if state is State.BODY and not self._machine.cut:
            sink.note("rescue.missing_closer", self._name)
            self._close()
            return
        if state is State.JSON and self._json is not None:
            self._json.flush()
            sink.argue(self._json.take(), "")
        if state is State.AFTER:
            for piece in self._after:
                sink.keep(piece)
        sink.close_call(truncated=True)

    # ---------------------------------------------------------------------------------------------------- steps

    def _leave(self) -> None:
        self._state = State.OUT
        self._machine.leave()

    def _refuse(self) -> None:
        self._state = State.OUT
        self._machine.refuse()

    def _blank(self, text: str, pos: int) -> int:
        """The position behind whitespace, which is kept as structure."""
        stop = blanks(text, pos)
        if stop > pos:
            self._sink.keep(text[pos:stop])
        return stop

    def _section(self, text: str, pos: int) -> int:
        pos = self._blank(text, pos)
        if pos == len(text):
            return pos
        marker = self._plan.scanners[State.SECTION].at(text, pos, self._machine.closing)
        if marker is WAIT:
            return pos
        if marker is None:
            if self._sink.trial is not None:
                self._refuse()
            else:
                self._sink.note("rescue.missing_closer", self._name)
                self._leave()
            return pos
        tag = self._plan.meanings[State.SECTION][marker]
        sink = self._sink
        if tag is Tag.SECTION_CLOSE and sink.trial is None:
            sink.keep(marker)
            self._leave()
            return pos + len(marker)
        if tag is Tag.SECTION_OPEN:
            if sink.trial is not None:
                self._refuse()
            else:
                sink.note("rescue.missing_closer", self._name)
                self._leave()
            return pos
        if tag is Tag.CALL_OPEN:
            sink.keep(marker)
            self._state = State.NAME
            return pos + len(marker)
        if tag is Tag.CALL_CLOSE and sink.trial is None:
            sink.note("rescue.duplicate_closer", marker)
            sink.keep(marker)
            return pos + len(marker)
        self._refuse()
        return pos

    def _read_name(self, text: str, pos: int) -> int:
        table = self._table
        start, stop = self._plan.header.find(text, pos, self._machine.closing)
        if stop < 0:
            if start - pos > HEADER_LIMIT:
                self._bad_name()
            elif not self._machine.closing:
                return pos
            elif not table.header_end:
                return self._named(text[pos:start], text, pos, start)
            return pos
        marker = text[start:stop]
        header = text[pos:start]
        if table.header_end and marker == "<":
            self._bad_name()
            return pos
        if not table.header_end:
            return self._named(header, text, pos, stop if marker in table.name_ends else start)
        return self._named(header, text, pos, stop)

    def _named(self, header: str, text: str, pos: int, stop: int) -> int:
        table, sink, machine = self._table, self._sink, self._machine
        bare = header.strip()
        closed = bool(table.header_end) and bare.endswith("/")
        if closed:
            bare = bare[:-1].rstrip()
        name: str | None = bare
        if table.name_attribute:
            name = read_attribute(header, table.name_attribute)
        else:
            name = bare.strip(_QUOTES)
        if not name or _NAME.fullmatch(name) is None or not (machine.believed or name in machine.tools):
            self._bad_name()
            return pos
        sink.keep(text[pos:stop])
        machine.open_call(name)
        self._name = name
        self._count = 0
        self._keys.clear()
        self._state = State.BODY
        if closed:
            self._close()
            self._state = State.SECTION
            if not self._wrapped:
                self._leave()
        return stop

    def _bad_name(self) -> None:
        if self._sink.trial is not None:
            self._refuse()
        else:
            self._sink.note("call.unnamed")
            self._leave()

    def _body(self, text: str, pos: int) -> int:
        sink = self._sink
        pos = self._blank(text, pos)
        if pos == len(text):
            return pos
        scanner = self._plan.scanners[State.BODY]
        marker = scanner.at(text, pos, self._machine.closing)
        if marker is WAIT:
            return pos
        if marker is None:
            if self._table.json_body and text[pos] == "{" and not self._count:
                self._json = JsonText()
                self._state = State.JSON
                return pos
            start, _ = scanner.find(text, pos, self._machine.closing)
            if start > pos:
                if not self._skip:
                    self._skip = True
                    sink.note("call.noise", self._name)
                sink.keep(text[pos:start])
            return start
        self._skip = False
        return self._tag(self._plan.meanings[State.BODY][marker], marker, pos)

    def _tag(self, tag: Tag, marker: str, pos: int) -> int:
        """A tag between arguments."""
        sink = self._sink
        if tag is Tag.PARAM_OPEN:
            sink.keep(marker)
            self._state = State.KEY
        elif tag is Tag.CALL_CLOSE:
            sink.keep(marker)
            self._end_call()
        elif tag is Tag.PARAM_CLOSE:
            sink.note("rescue.duplicate_closer", marker)
            sink.keep(marker)
        elif tag is Tag.SECTION_CLOSE:
            sink.note("rescue.missing_closer", self._name)
            self._close()
            sink.keep(marker)
            self._leave()
        else:
            sink.note("rescue.missing_closer", self._name)
            self._close()
            if tag is Tag.CALL_OPEN and self._wrapped:
                self._state = State.SECTION
            else:
                self._leave()
            return pos
        return pos + len(marker)

    def _end_call(self) -> None:
        self._close()
        if self._wrapped or self._table.sections:
            self._wrapped = True
            self._state = State.SECTION
        else:
            self._leave()

    def _close(self) -> None:
        self._sink.argue("}" if self._count else "{}", "")
        self._sink.close_call()

    def _read_key(self, text: str, pos: int) -> int:
        table, sink = self._table, self._sink
        start, stop = self._plan.key.find(text, pos, self._machine.closing)
        if stop < 0:
            if start - pos > HEADER_LIMIT:
                sink.note("call.noise", self._name)
                self._state = State.BODY
            return pos
        header = text[pos:start]
        key: str | None
        if table.key_attribute:
            key = read_attribute(header, table.key_attribute)
        else:
            key = header.strip().strip(_QUOTES)
        if key is None:
            key = header.strip()
        if text[start:stop] == "\n":
            sink.note("rescue.missing_closer", key)
            stop = start
        if key in self._keys:
            sink.note("call.duplicate_argument", key)
        self._keys.add(key)
        self._key = key
        shape = self._machine.shape(self._name, key)
        if table.type_attribute:
            stated = read_attribute(header, table.type_attribute)
            if stated in ("true", "string"):
                shape = STRING if shape.types is None or "string" in shape.types else shape
            elif stated is not None:
                shape = Shape(frozenset({"json"})) if stated == "false" else Shape(frozenset({stated}))
        self._shape = shape
        self._streaming = shape.streams
        self._value = []
        self._nested = self._nested_calls = 0
        self._skip = table.newlines != "none"
        self._led = False
        opening = ("{" if not self._count else ", ") + quote(key) + ": " + ('"' if self._streaming else "")
        if table.value_open:
            self._opening = opening
            sink.keep(text[pos:stop])
            self._state = State.GAP
        else:
            sink.argue(opening, text[pos:stop])
            self._count += 1
            self._state = State.VALUE
        return stop

    def _gap(self, text: str, pos: int) -> int:
        sink = self._sink
        pos = self._blank(text, pos)
        if pos == len(text):
            return pos
        scanner = self._plan.scanners[State.GAP]
        marker = scanner.at(text, pos, self._machine.closing)
        if marker is WAIT:
            return pos
        if marker is None:
            start, _ = scanner.find(text, pos, self._machine.closing)
            sink.keep(text[pos:start])
            return start
        if self._plan.meanings[State.GAP][marker] is Tag.VALUE_OPEN:
            sink.argue(self._opening, marker)
            self._count += 1
            self._state = State.VALUE
            return pos + len(marker)
        sink.note("call.noise", self._key)
        self._state = State.BODY
        return pos

    def _write(self, value: str, raw: str) -> None:
        if self._streaming:
            self._sink.argue(escape(value), raw)
        else:
            self._value.append(value)
            self._sink.keep(raw)

    def _read_value(self, text: str, pos: int) -> int:
        if self._skip:
            self._skip = False
            if text[pos] == "\n":
                self._sink.keep("\n")
                self._led = True
                pos += 1
        closing = self._machine.closing
        start, stop = self._plan.scanners[State.VALUE].find(text, pos, closing)
        if start > pos:
            self._write(text[pos:start], text[pos:start])
        if stop < 0:
            return start
        marker = text[start:stop]
        tag = self._plan.meanings[State.VALUE][marker]
        if tag is Tag.PARAM_CLOSE and marker[0] == "\n" and self._table.newlines == "paired" and not self._led:
            self._write("\n", "\n")
            marker = marker[1:]
        if tag in (Tag.SECTION_OPEN, Tag.CALL_OPEN, Tag.PARAM_OPEN):
            return self._inner_open(tag, marker, text, start, stop)
        if tag is Tag.PARAM_CLOSE and self._nested:
            self._nested -= 1
        elif tag in (Tag.CALL_CLOSE, Tag.SECTION_CLOSE) and self._nested_calls:
            self._nested_calls -= 1
        elif not (tag is Tag.PARAM_CLOSE and self._nested_calls):
            self._after = [marker]
            self._closer = tag
            self._state = State.AFTER
            return stop
        self._write(marker, marker)
        return stop

    def _inner_open(self, tag: Tag, marker: str, text: str, start: int, stop: int) -> int:
        """An opener inside a value: quoted markup, or the next argument after a forgotten closer."""
        fresh = marker[0] == "\n" or bool(self._table.value_open)
        if tag is Tag.PARAM_OPEN and fresh and not self._nested and not self._nested_calls:
            self._after = [marker]
            self._closer = tag
            self._state = State.AFTER
            return stop
        self._write(marker, marker)
        if tag is Tag.PARAM_OPEN:
            self._nested += marker[0] == "\n"
        else:
            self._nested_calls += 1
        return stop

    def _read_after(self, text: str, pos: int) -> int:
        """Behind a closer inside a value: what follows says whether it was one."""
        if self._closer is Tag.PARAM_OPEN:
            return self._next_key(text, pos)
        stop = blanks(text, pos)
        if stop > pos:
            self._after.append(text[pos:stop])
            pos = stop
        if pos == len(text):
            return pos
        marker = self._plan.scanners[State.AFTER].at(text, pos, self._machine.closing)
        if marker is WAIT:
            return pos
        if marker is not None and self._plan.meanings[State.AFTER][marker] in FOLLOWERS[self._closer]:
            self._end_value()
            self._settle(self._closer)
            return pos
        if not self._streaming and self._closer is Tag.PARAM_CLOSE and self._typed("".join(self._value))[:1] != '"':
            self._end_value()
            self._settle(self._closer)
            return pos
        self._resume()
        return pos

    def _resume(self) -> None:
        """It was no closer: it is part of the value, and so is what followed."""
        self._sink.note("rescue.quoted_closer", self._key)
        said = "".join(self._after)
        self._write(said, said)
        self._state = State.VALUE

    def _next_key(self, text: str, pos: int) -> int:
        start, stop = self._plan.key.find(text, pos, self._machine.closing)
        if stop < 0 and start - pos <= HEADER_LIMIT and not self._machine.closing:
            return pos
        header = text[pos:start]
        table = self._table
        key = read_attribute(header, table.key_attribute) if table.key_attribute else header.strip().strip(_QUOTES)
        if stop > 0 and key in self._machine.properties(self._name) and key not in self._keys:
            self._sink.note("rescue.missing_closer", self._key)
            self._end_value()
            self._state = State.KEY
            return pos
        said = "".join(self._after)
        self._write(said, said)
        self._nested += 1
        self._state = State.VALUE
        return pos

    def _end_value(self) -> None:
        if self._streaming:
            self._sink.argue('"', "".join(self._after))
        else:
            text = "".join(self._value)
            self._sink.argue(self._typed(text), "".join(self._after))
        self._after = []
        self._value = []

    def _typed(self, text: str) -> str:
        types = self._shape.types or frozenset()
        if "json" not in types:
            return write(text, self._shape)
        bare = text.strip()
        if is_json(bare):
            return bare
        return write(text, self._machine.shape(self._name, self._key))

    def _settle(self, closer: Tag) -> None:
        """A value ended with `closer`; what stands behind it has not been read."""
        sink = self._sink
        self._state = State.BODY
        if closer is Tag.WRONG_CLOSE:
            sink.note("rescue.wrong_closer", self._key)
        elif closer is Tag.CALL_CLOSE:
            sink.note("rescue.missing_closer", self._key)
            self._end_call()
        elif closer is Tag.SECTION_CLOSE:
            sink.note("rescue.missing_closer", self._key)
            self._close()
            self._leave()

    def _read_json(self, text: str, pos: int) -> int:
        reader = self._json
        if reader is None:
            self._state = State.BODY
            return pos
        stop = reader.feed(text, pos)
        if reader.done:
            reader.flush()
        self._sink.argue(reader.take(), text[pos:stop])
        if reader.done or reader.stuck:
            self._json = None
            self._sink.close_call(truncated=False)
            self._state = State.SECTION
        return stop


STEPS: Final[dict[State, Callable[[_TaggedCodec, str, int], int]]] = {
    State.SECTION: _TaggedCodec._section,
    State.NAME: _TaggedCodec._read_name,
    State.BODY: _TaggedCodec._body,
    State.KEY: _TaggedCodec._read_key,
    State.GAP: _TaggedCodec._gap,
    State.VALUE: _TaggedCodec._read_value,
    State.AFTER: _TaggedCodec._read_after,
    State.JSON: _TaggedCodec._read_json,
}
