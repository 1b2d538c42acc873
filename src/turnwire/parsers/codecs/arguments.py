"""Writes arguments that come one by one as JSON text: strings as they arrive, other types when they are complete.

Promise: the pieces joined are one JSON object, typed by the tool's schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnwire.parsers.codecs.json_text import JsonText, lenient
from turnwire.parsers.schema import STRING, Shape, allows, decoded, escape, fits, quote, write
from turnwire.parsers.sink import is_json

if TYPE_CHECKING:
    from turnwire.parsers.machine import Machine

__all__ = ["JSON_TEXT", "QUOTED", "Arguments"]

JSON_TEXT = Shape(frozenset({"json"}))
"""A value the format itself declares to be JSON."""

QUOTED = Shape(frozenset({"quoted string"}))
"""A string that may be written as a JSON string or as it is."""

_NULLABLE = frozenset({"string", "null"})


class Arguments:
    """The arguments of one call after the other, written to the machine's sink.

    `unwraps` are names of a lone parameter that models put all arguments into: if the tool has no such property and
    the value fits the tool's schema, the value is the arguments."""

    def __init__(self, machine: Machine, unwraps: tuple[str, ...] = ()) -> None:
        self._machine = machine
        self._sink = machine.sink
        self._unwraps = unwraps
        self.begin("")

    def begin(self, name: str) -> None:
        """A call of tool `name` was opened."""
        self._name = name
        self._count = 0
        self._done = False
        self._value: list[str] = []
        self._shape = STRING
        self._wrap = False
        self._held: str | None = None
        self.key = ""
        self.keys: set[str] = set()
        self.streaming = False

    def read_object(self, reader: JsonText, text: str, pos: int) -> int:
        """More of a JSON object that holds all the arguments; how far it was read."""
        stop = reader.feed(text, pos)
        self._sink.argue(reader.take(), text[pos:stop])
        if reader.done or reader.stuck:
            self.given()
        return stop

    def shape(self, key: str) -> Shape:
        """What the tool's schema says about an argument."""
        return self._machine.shape(self._name, key)

    def open(self, key: str, shape: Shape, raw: str) -> None:
        """An argument begins; its value will have the given shape."""
        sink = self._sink
        if key in self.keys:
            sink.note("call.duplicate_argument", key)
        known = self._machine.tools.get(self._name)
        properties = self._machine.properties(self._name)
        self._wrap = not self.keys and key in self._unwraps and known is not None and key not in properties
        self.keys.add(key)
        self.key = key
        self._shape = shape
        self._value = []
        self._release()
        self.streaming = shape.streams and not self._wrap
        if self._wrap:
            sink.keep(raw)
            return
        sink.argue(self._opening(key) + ('"' if self.streaming else ""), raw)

    def _opening(self, key: str) -> str:
        self._count += 1
        return ("{" if self._count == 1 else ", ") + quote(key) + ": "

    def _release(self) -> None:
        """A held wrapper parameter is an argument like any other."""
        if self._held is not None:
            self._sink.argue(self._held, "")
            self._held = None

    def write(self, value: str, raw: str) -> None:
        """More of the value."""
        if self.streaming:
            self._sink.argue(escape(value), raw)
            return
        led = any(piece.strip() for piece in self._value[:1])
        self._value.append(value)
        self._sink.keep(raw)
        if self._shape is QUOTED and not led and not self._wrap:
            self._value = ["".join(self._value)]
            if self._value[0].strip() and self._value[0].lstrip()[0] != '"':
                self._stream()
        if self._shape.types == _NULLABLE and not self._shape.strings and not self._wrap:
            text = "".join(self._value)
            if not "null".startswith(text.lstrip()) and text.strip() != "null":
                self._stream()

    def _stream(self) -> None:
        """The value is a string after all: pass on what was held, and stream from now on."""
        self.streaming = True
        self._sink.argue('"' + escape("".join(self._value)), "")
        self._value = []

    def typed(self) -> str:
        """The value so far as JSON text."""
        text = "".join(self._value)
        if self._shape is QUOTED:
            bare = text.strip()
            return bare if bare[:1] == '"' and is_json(bare) else quote(text)
        if self._shape is not JSON_TEXT:
            return write(text, self._shape)
        bare = text.strip()
        stated = self.shape(self.key)
        value = decoded(bare)
        if is_json(bare) and (stated.types is None or allows(stated.types, value)):
            return bare
        return write(text, stated)

    def end(self, raw: str) -> None:
        """The value is complete."""
        if self.streaming:
            self._sink.argue('"', raw)
        elif self._wrap:
            self._held = self._opening(self.key) + self.typed()
            self._sink.keep(raw)
            self._wrap = False
            return
        else:
            self._sink.argue(self.typed(), raw)
        self._value = []

    def given(self) -> None:
        """The arguments were written as a whole by somebody else."""
        self._done = True
        self.keys.add("")

    def close(self) -> None:
        """The last argument was read: the object ends."""
        if self._done:
            return
        if self._held is not None:
            text = "".join(self._value).strip()
            text = text if is_json(text) else lenient(text) or text
            tool = self._machine.tools.get(self._name)
            if tool is not None and fits(decoded(text), tool.schema):
                self._sink.argue(text, "")
                self._sink.note("rescue.unwrapped_arguments", self.key)
                self._held = None
                return
            self._release()
        self._sink.argue("}" if self._count else "{}", "")
