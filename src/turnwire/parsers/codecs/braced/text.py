"""Follows an object in Gemma's notation (`{key:<|"|>text<|"|>,n:3}`) piece by piece and writes it as JSON.

Promise: quoted strings come out byte for byte and as they come; no character is looked at more than a bounded number
of times.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from turnwire.parsers.codecs.braced.ends import (
    LOOK,
    OPENS_STRING,
    RUN_ON,
    bare_key,
    ends_output,
    ends_string,
    key_follows,
)
from turnwire.parsers.codecs.braced.object_states import NEXT, On, State
from turnwire.parsers.codecs.json_text import JsonText
from turnwire.parsers.codecs.steps import Steps
from turnwire.parsers.scanner import WAIT, Scanner, blanks
from turnwire.parsers.schema import ANY, Shape, escape, quote, shape_of, write
from turnwire.parsers.subschema import element, has_member, member

__all__ = ["BracedText"]


_CLOSERS: Final = {"{": "}", "[": "]"}
_WORDS: Final = {"true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"}
_NUMBER: Final = Shape(frozenset({"number"}))
_KEY = re.compile(r"[^:{}\[\],<]+")
_OBJECT_END = re.compile(r"[,}<]")
_LIST_END = re.compile(r"[,\]<]")


class BracedText(Steps[State, On]):
    """One object. `feed` consumes from its `{` to its `}` (`done`), or stops before one of `closers` (`ended`)
    or before text that more text must explain.

    Text between two `quote` marks is a string, byte for byte; with `typed` the schema may still make something else of
    it. Anything else is a number or a word, typed by the schema; what is neither is a string."""

    def __init__(
        self, quote_mark: str, closers: frozenset[str], schema: Any, typed: bool = False, told: Callable[[], str] = str
    ) -> None:
        super().__init__(STEPS, NEXT, State.VALUE)
        self.done = False
        self.ended = False
        self.noisy = False
        self.unclosed = False
        self.run_on = False
        self.quoted = False
        self.doubled: list[str] = []
        self._mark = quote_mark
        self._closers = closers
        self._marks = Scanner([quote_mark, *closers])
        self._end = Scanner([quote_mark])
        self._ends = Scanner(closers)
        self._typed = typed
        self._told = told  # the end of what was taken already
        self._root = schema
        self._kinds: list[str] = []
        self._depths = {"{": 0, "[": 0}
        self._schemas: list[Any] = []
        self._counts: list[int] = []
        self._keys: set[str] = set()
        self._closing = False
        self._held: list[str] = []
        self._json = JsonText()
        self._streams = True
        self._inner = 0  # strings that are open in a call which the string quotes
        self._schema: Any = schema
        self.out: list[str] = []
        first = re.escape(quote_mark[0])
        self.plain = rf'[{first}"\\\x00-\x1f]'

    @property
    def in_string(self) -> bool:
        """Whether the text read so far ends inside a string whose characters are forwarded as they come."""
        return self._state is State.STRING and self._streams

    def take(self) -> str:
        """What to forward since the last take."""
        text = "".join(self.out)
        self.out.clear()
        return text

    def feed(self, text: str, pos: int, closing: bool = False) -> int:
        """Consume from `pos`; the position after the last character consumed."""
        self._closing = closing
        return self.run(text, pos)

    def close(self) -> None:
        """Close what the model left open."""
        if self._state is State.BARE:
            self._end_bare()
        elif self._state is State.VALUE and self._kinds[-1:] == ["{"]:
            self._begin()
            self._end_bare()
        while self._kinds:
            self.unclosed = True
            self._pop()

    # -------------------------------------------------------------------------------------------------- structure

    def _shape(self) -> Shape:
        return ANY if self._schema is None else shape_of(self._schema, self._root)

    def _begin(self) -> None:
        """A value begins; in a list, the comma before it is written now."""
        if self._kinds and self._kinds[-1] == "[":
            self._counts[-1] += 1
            if self._counts[-1] > 1:
                self.out.append(", ")

    def _push(self, kind: str) -> None:
        self._begin()
        self._kinds.append(kind)
        self._depths[kind] += 1
        self._schemas.append(self._schema)
        self._counts.append(0)
        self.out.append(kind)
        self._inside()

    def _inside(self) -> None:
        """A key or an element is next."""
        self._held = []
        if self._kinds[-1] == "{":
            self._go(On.OBJECT)
        else:
            self._go(On.LIST)
            self._schema = element(self._schemas[-1], self._root)

    def _pop(self) -> None:
        kind = self._kinds.pop()
        self._depths[kind] -= 1
        self.out.append(_CLOSERS[kind])
        self._schemas.pop()
        self._counts.pop()
        self.done = not self._kinds
        self._go(On.LAST if self.done else On.VALUE_END)

    def _shut(self, char: str) -> None:
        """A closing bracket; inner brackets that it passes over are closed for the model."""
        kind = "{" if char == "}" else "["
        if not self._depths[kind]:
            self.noisy = True
            return
        while self._kinds[-1] != kind:
            self.unclosed = True
            self._pop()
        self._pop()

    def _at_mark(self, text: str, pos: int) -> str | None:
        """The quote mark or closer at `pos`; a closer ends the reading."""
        marker = self._marks.at(text, pos, self._closing)
        if marker in self._closers and marker is not None and marker is not WAIT:
            self.ended = True
        return marker

    def _read_key(self, text: str, pos: int) -> int:
        found = _KEY.match(text, pos)
        if found is not None:
            self._held.append(found.group())
            return found.end()
        char = text[pos]
        if char == ":":
            self._name("".join(self._held).strip().strip("\"'"))
            return pos + 1
        if char == "<":
            marker = self._at_mark(text, pos)
            if marker is WAIT or self.ended:
                return pos
            if marker == self._mark:
                return pos + len(marker)
            self._held.append(char)
            return pos + 1
        self.noisy = self.noisy or bool("".join(self._held).strip())
        self._held = []
        if char in "}]":
            self._shut(char)
        elif char != ",":
            self.noisy = True
        return pos + 1

    def _name(self, key: str) -> None:
        """The name of a member; its value is next."""
        self._counts[-1] += 1
        self.out.append((", " if self._counts[-1] > 1 else "") + quote(key) + ": ")
        if len(self._kinds) == 1:
            if key in self._keys:
                self.doubled.append(key)
            self._keys.add(key)
        self._schema = member(self._schemas[-1], self._root, key)
        self._held = []
        self._go(On.KEY)

    def _value(self, text: str, pos: int) -> int:
        pos = blanks(text, pos)
        if pos == len(text):
            return pos
        char = text[pos]
        if char in "{[":
            self._push(char)
            return pos + 1
        if self._kinds[-1] == "[" and char in ",]}":
            if char != ",":
                self._shut(char)
            return pos + 1
        if char == '"':
            self._begin()
            self._json = JsonText()
            self._go(On.QUOTE)
            return pos
        if char == "<":
            marker = self._at_mark(text, pos)
            if marker is WAIT or self.ended:
                return pos
            if marker == self._mark:
                self._begin()
                self._open_string()
                return pos + len(marker)
        self._begin()
        self._held = []
        self._go(On.OTHER)
        return pos

    # ----------------------------------------------------------------------------------------------------- values

    def _open_string(self) -> None:
        types = self._shape().types
        self._streams = not self._typed or types is None or "string" in types
        self._held = []
        self._inner = 0
        if self._streams:
            self.out.append('"')
        self._go(On.MARK)

    def _say_string(self, text: str) -> None:
        if self._streams:
            self.out.append(escape(text))
        else:
            self._held.append(text)

    def _tail(self) -> str:
        """The end of the string so far."""
        told = self._told() + "".join(self.out) if self._streams else "".join(self._held)
        return told[-LOOK:]

    def _missing(self, key: str) -> bool:
        """Whether a key names a member of the object that it does not have yet."""
        if len(self._kinds) == 1 and key in self._keys:
            return False
        return has_member(self._schemas[-1], self._root, key)

    def _string(self, text: str, pos: int) -> int:
        start, stop = self._end.find(text, pos, self._closing)
        if start > pos:
            self._say_string(text[pos:start])
        if stop < 0:
            return start
        ends = ends_string(text, stop, self._closing, self._kinds[-1], self._ends, self._mark, self._missing)
        if ends and self._inner:  # of a call that the string quotes, unless the output ends here
            ends = ends_output(text, stop, self._closing, self._ends)
            if ends is False:
                self._inner -= 1
        elif ends is False:
            self._inner += OPENS_STRING.search(self._tail()) is not None
        if ends is None:
            return start
        if not ends:
            self.quoted = True
            self._say_string(self._mark)
            return stop
        self.out.append('"' if self._streams else write("".join(self._held), self._shape()))
        self._go(On.VALUE_END)
        return stop

    def _quoted(self, text: str, pos: int) -> int:
        reader = self._json
        stop = reader.feed(text, pos)
        self.out.append(reader.take())
        if reader.done:
            self._go(On.VALUE_END)
        return stop

    def _bare(self, text: str, pos: int) -> int:
        inside = self._kinds[-1]
        found = (_OBJECT_END if inside == "{" else _LIST_END).search(text, pos)
        if found is None:
            self._held.append(text[pos:])
            return len(text)
        at = found.start()
        if at > pos:
            self._held.append(text[pos:at])
        char = text[at]
        if char == "<":
            marker = self._at_mark(text, at)
            if marker is WAIT or self.ended:
                return at
            if marker == self._mark:
                held = "".join(self._held).strip()
                found = RUN_ON.fullmatch(held) if inside == "{" else None
                if found is not None and not found[3] and self._missing(found[2]):
                    self._end_run_on(found[1], found[2])
                    return at
                self.out.append(quote(held))
                self.noisy = True
                self._go(On.VALUE_END)
                return at + len(marker)
        elif char != "," or inside == "[":
            self._end_bare()
            return at
        else:
            follows = key_follows(text, at + 1, self._closing)
            if follows is None:
                return at
            if follows:
                self._end_bare()
                return at
        self._held.append(char)
        return at + 1

    def _end_bare(self) -> None:
        text = "".join(self._held).strip()
        self._held = []
        found = RUN_ON.fullmatch(text) if self._kinds[-1] == "{" else None
        if found is not None and self._missing(found[2]):  # the comma between two arguments is missing
            self._end_run_on(found[1], found[2])
            text = found[3]
        self.out.append(_written(text, self._shape()))
        self._go(On.VALUE_END)

    def _end_run_on(self, value: str, key: str) -> None:
        """A value without quotes is followed by a key, with no comma between them."""
        self.run_on = True
        self.out.append(_written(value, self._shape()))
        self._name(key)

    def _after(self, text: str, pos: int) -> int:
        pos = blanks(text, pos)
        if pos == len(text):
            return pos
        char = text[pos]
        if char == ",":
            self._inside()
        elif char in "}]":
            self._shut(char)
        else:
            if char == "<":
                marker = self._at_mark(text, pos)
                if marker is WAIT or self.ended:
                    return pos
            if self._kinds[-1] == "{" and not self.noisy:
                key = bare_key(text, pos, self._closing)
                if key is None:
                    return pos
                if key:
                    self.run_on = True
                    self._inside()
                    return pos
            self.noisy = True
        return pos + 1


def _written(text: str, shape: Shape) -> str:
    """A value without quotes as JSON."""
    word = _WORDS.get(text)
    if word == "null" and text not in shape.strings:
        return word
    if shape.types is not None:
        return write(text, shape)
    if word is not None:
        return word
    number = write(text, _NUMBER)
    return number if number[:1] != '"' else quote(text)


STEPS: Final[dict[State, Callable[[BracedText, str, int], int]]] = {
    State.KEY: BracedText._read_key,
    State.VALUE: BracedText._value,
    State.BARE: BracedText._bare,
    State.STRING: BracedText._string,
    State.QUOTED: BracedText._quoted,
    State.AFTER: BracedText._after,
}
