"""Reads calls written as tags around each argument, as a tagged syntax's table describes them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from turnwire.parsers.codecs.arguments import JSON_TEXT, QUOTED, Arguments
from turnwire.parsers.codecs.envelope_codec import EnvelopeCodec
from turnwire.parsers.codecs.json_text import JsonText
from turnwire.parsers.codecs.steps import CallSteps
from turnwire.parsers.codecs.tags import FOLLOWERS, State, Tag, plan_of, read_attribute
from turnwire.parsers.dialect import Sign
from turnwire.parsers.scanner import WAIT, blanks
from turnwire.parsers.schema import STRING, Shape

if TYPE_CHECKING:
    from turnwire.parsers.codecs.tagged import Tagged
    from turnwire.parsers.machine import Machine

__all__ = ["STEPS", "TaggedCodec"]

HEADER_LIMIT: Final = 512
"""No tag is longer than this: a tag that has not ended by then is not one."""

_NAME = re.compile(r"[^\s<>{}\[\]()\"'`,;=|]{1,256}")
_QUOTES = "\"'"


class TaggedCodec(CallSteps[State]):
    """Reads tagged calls. String values stream; others wait for their closer."""

    def __init__(self, table: Tagged, machine: Machine) -> None:
        super().__init__(machine, STEPS, State.OUT)
        self._table = table
        self._plan = plan_of(table)
        self._args = Arguments(machine, table.unwraps)
        self._sign = Sign("")
        self._wrapped = False
        self._name = ""
        self._header = ""
        self._after: list[str] = []
        self._closer = Tag.PARAM_CLOSE
        self._skip = False
        self._led = False
        self._nested = 0
        self._nested_calls = 0
        self._json = JsonText()

    # ------------------------------------------------------------------------------------------ codec interface

    def enter(self, sign: Sign) -> None:
        """Behind a section opener, or behind a call opener that came alone."""
        self._sign = sign
        self._wrapped = sign.text not in self._table.call_open
        self._state = State.SECTION if self._wrapped else State.NAME

    def plain(self) -> str | None:
        """A streaming string value forwards anything but tags, quotes, backslashes and control characters."""
        if self._state is State.VALUE and self._args.streaming and not self._skip:
            return self._plan.value
        return JsonText.PLAIN if self._state is State.JSON and self._json.in_string else None

    def finish(self) -> None:
        """The end of the output: a value that has its closer is complete, any other is cut."""
        sink = self._sink
        certain = self._closer is Tag.PARAM_CLOSE or (self._closer is not Tag.PARAM_OPEN and not self._machine.cut)
        if self._state is State.AFTER and certain:
            self._end_value()
        state = self._state
        if state in (State.SECTION, State.NAME, State.OUT):
            if sink.trial is not None:
                sink.accept()
                sink.note("call.truncated")
        elif state is State.BODY and not self._machine.cut:
            sink.note("rescue.missing_closer", self._name)
            self._close()
        else:
            if state is State.JSON:
                self._json.flush()
                sink.argue(self._json.take(), "")
            if state is State.AFTER:
                for piece in self._after:
                    sink.keep(piece)
            sink.close_call(truncated=True)

    # ------------------------------------------------------------------------------------------- around the calls

    def _section(self, text: str, pos: int) -> int:
        sink = self._sink
        pos = self._blank(text, pos)
        if pos == len(text):
            return pos
        marker = self._plan.scanners[State.SECTION].at(text, pos, self._machine.closing)
        if marker is WAIT:
            return pos
        if marker is None and self._table.lists is not None and text[pos] in "{[" and sink.trial is not None:
            self._state = State.OUT
            codec = EnvelopeCodec(self._table.lists, self._machine)
            codec.enter(self._sign)
            self._machine.hand(codec)
            return pos
        tag = None if marker is None else self._plan.meanings[State.SECTION][marker]
        if marker is None or tag is Tag.SECTION_OPEN or (tag is Tag.CALL_CLOSE and sink.trial is not None):
            self._break_off("rescue.missing_closer", self._name)
            return pos
        if tag is Tag.CALL_OPEN:
            self._state = State.NAME
        elif tag is Tag.CALL_CLOSE:
            sink.note("rescue.duplicate_closer", marker)
        elif tag is Tag.SECTION_CLOSE and sink.trial is not None:
            sink.accept()
            sink.note("call.unnamed")
        sink.keep(marker)
        if tag is Tag.SECTION_CLOSE:
            self._leave()
        return pos + len(marker)

    def _read_name(self, text: str, pos: int) -> int:
        table, closing = self._table, self._machine.closing
        start, stop = self._plan.header.find(text, pos, closing)
        marker = text[start:stop] if stop > 0 else ""
        if start - pos > HEADER_LIMIT or (table.header_end and marker == "<"):
            self._break_off("call.unnamed", self._name)
            return pos
        if stop < 0:
            return self._named(text, pos, start, start) if closing and not table.header_end else pos
        return self._named(text, pos, start, stop if table.header_end or marker in table.name_ends else start)

    def _named(self, text: str, pos: int, start: int, stop: int) -> int:
        table, machine = self._table, self._machine
        header = text[pos:start].strip()
        closed = bool(table.header_end) and header.endswith("/")
        if table.name_attribute:
            name = read_attribute(header, table.name_attribute) or ""
        else:
            name = header.rstrip("/ ").strip(_QUOTES) if closed else header.strip(_QUOTES)
        half = len(name) // 2
        if table.doubled and name not in machine.tools and name[half:] == "." + name[:half]:
            name = name[:half]
        if _NAME.fullmatch(name) is None or not self._believes(name):
            self._break_off("call.unnamed", self._name)
            return pos
        self._sink.keep(text[pos:stop])
        self._open_call(name)
        self._name = name
        self._args.begin(name)
        self._state = State.BODY
        if closed:
            self._end_call()
        return stop

    def _believes(self, name: str) -> bool:
        return self._machine.believed or name in self._machine.tools

    def _open_call(self, name: str) -> None:
        self._machine.open_call(name)

    def _end_call(self) -> None:
        self._close()
        if self._table.sections:
            self._wrapped = True
            self._state = State.SECTION
        else:
            self._leave()

    def _close(self) -> None:
        self._args.close()
        self._sink.close_call()

    # -------------------------------------------------------------------------------------------- between arguments

    def _body(self, text: str, pos: int) -> int:
        sink, closing = self._sink, self._machine.closing
        pos = self._blank(text, pos)
        if pos == len(text):
            return pos
        scanner = self._plan.scanners[State.BODY]
        marker = scanner.at(text, pos, closing)
        if marker is WAIT:
            return pos
        if marker is None:
            if self._table.json_body and text[pos] == "{" and not self._args.keys and not self._skip:
                self._json = JsonText()
                self._state = State.JSON
                return pos
            start, _ = scanner.find(text, pos, closing)
            if start > pos:
                if not self._skip:
                    self._skip = True
                    sink.note("call.noise", self._name)
                sink.keep(text[pos:start])
            return start
        self._skip = False
        tag = self._plan.meanings[State.BODY][marker]
        if tag is Tag.BLANK:
            sink.keep(marker)
            return pos + len(marker)
        if tag is Tag.PARAM_OPEN or tag is Tag.PARAM_CLOSE or tag is Tag.CALL_CLOSE:
            sink.keep(marker)
            if tag is Tag.PARAM_OPEN:
                self._state = State.KEY
            elif tag is Tag.CALL_CLOSE:
                self._end_call()
            else:
                sink.note("rescue.duplicate_closer", marker)
            return pos + len(marker)
        sink.note("rescue.missing_closer", self._name)
        self._close()
        if tag is Tag.SECTION_CLOSE:
            sink.keep(marker)
            self._leave()
            return pos + len(marker)
        if tag is Tag.CALL_OPEN and self._wrapped:
            self._state = State.SECTION
        else:
            self._leave()
        return pos

    def _read_key(self, text: str, pos: int) -> int:
        start, stop = self._plan.key.find(text, pos, self._machine.closing)
        if start - pos > HEADER_LIMIT:
            self._sink.note("call.noise", self._name)
            self._state = State.BODY
            return pos
        if stop < 0:
            return pos
        self._header = text[pos:start]
        if text[start:stop] == "\n":
            self._sink.note("rescue.missing_closer", self._header)
            stop = start
        if self._table.value_open:
            self._sink.keep(text[pos:stop])
            self._state = State.GAP
        else:
            self._open_value(text[pos:stop])
        return stop

    def _key_in(self, header: str) -> str:
        attribute = self._table.key_attribute
        named = read_attribute(header, attribute) if attribute else None
        return header.strip().strip(_QUOTES) if named is None else named

    def _open_value(self, raw: str) -> None:
        table = self._table
        key = self._key_in(self._header)
        shape = self._args.shape(key)
        stated = read_attribute(self._header, table.type_attribute) if table.type_attribute else None
        if stated in ("true", "string"):
            shape = STRING if shape.types is None or "string" in shape.types else shape
        elif stated is not None:
            shape = JSON_TEXT if stated == "false" else Shape(frozenset({stated}))
        if table.guess:
            shape = JSON_TEXT if shape.types is None else QUOTED if shape.types == STRING.types else shape
        self._args.open(key, shape, raw)
        self._nested = self._nested_calls = 0
        self._skip = table.newlines != "none"
        self._led = False
        self._state = State.VALUE

    def _gap(self, text: str, pos: int) -> int:
        pos = self._blank(text, pos)
        if pos == len(text):
            return pos
        scanner = self._plan.scanners[State.GAP]
        marker = scanner.at(text, pos, self._machine.closing)
        if marker is WAIT:
            return pos
        if marker is None:
            start, _ = scanner.find(text, pos, self._machine.closing)
            self._sink.keep(text[pos:start])
            return start
        if self._plan.meanings[State.GAP][marker] is Tag.VALUE_OPEN:
            self._open_value(marker)
            return pos + len(marker)
        self._sink.note("call.noise", self._header)
        self._state = State.BODY
        return pos

    # ------------------------------------------------------------------------------------------------ in a value

    def _value(self, text: str, pos: int) -> int:
        args = self._args
        if self._skip:
            self._skip = False
            if text[pos] == "\n":
                self._sink.keep("\n")
                self._led = True
                pos += 1
        start, stop = self._plan.scanners[State.VALUE].find(text, pos, self._machine.closing)
        if start > pos:
            args.write(text[pos:start], text[pos:start])
        if stop < 0:
            return start
        marker = text[start:stop]
        tag = self._plan.meanings[State.VALUE][marker]
        if tag in (Tag.SECTION_OPEN, Tag.CALL_OPEN, Tag.PARAM_OPEN):
            self._inner_open(tag, marker)
            return stop
        if tag is Tag.PARAM_CLOSE and marker[0] == "\n" and self._table.newlines == "paired" and not self._led:
            args.write("\n", "\n")
            marker = marker[1:]
        if tag is Tag.PARAM_CLOSE and self._nested:
            self._nested -= 1
        elif tag in (Tag.CALL_CLOSE, Tag.SECTION_CLOSE) and self._nested_calls:
            self._nested_calls -= 1
        elif not (tag is Tag.PARAM_CLOSE and self._nested_calls):
            self._after = [marker]
            self._closer = tag
            self._state = State.AFTER
            return stop
        args.write(marker, marker)
        return stop

    def _inner_open(self, tag: Tag, marker: str) -> None:
        """An opener inside a value: quoted markup, or the next argument after a forgotten closer."""
        fresh = marker[0] == "\n" or bool(self._table.value_open)
        if tag is Tag.PARAM_OPEN and fresh and not self._nested and not self._nested_calls:
            self._after = [marker]
            self._closer = tag
            self._state = State.AFTER
            return
        self._args.write(marker, marker)
        if tag is Tag.PARAM_OPEN:
            self._nested += marker[0] == "\n"
        else:
            self._nested_calls += 1

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
        if marker is not None and self._plan.meanings[State.AFTER][marker] is Tag.BLANK:
            self._after.append(marker)
            return pos + len(marker)
        follows = marker is not None and self._plan.meanings[State.AFTER][marker] in FOLLOWERS[self._closer]
        settled = self._closer is Tag.PARAM_CLOSE and not self._args.streaming and self._args.typed()[:1] != '"'
        if follows or settled:
            self._end_value()
        else:
            self._sink.note("rescue.quoted_closer", self._args.key)
            self._resume()
        return pos

    def _resume(self) -> None:
        """It was no closer: it is part of the value, and so is what followed."""
        said = "".join(self._after)
        self._args.write(said, said)
        self._state = State.VALUE

    def _next_key(self, text: str, pos: int) -> int:
        """Behind a parameter opener inside a value: it ends the value if it names an argument still to come."""
        start, stop = self._plan.key.find(text, pos, self._machine.closing)
        if stop < 0 and start - pos < HEADER_LIMIT and not self._machine.closing:
            return pos
        key = self._key_in(text[pos:start])
        if (
            0 < stop <= pos + HEADER_LIMIT
            and key in self._machine.properties(self._name)
            and key not in self._args.keys
        ):
            self._sink.note("rescue.missing_closer", self._args.key)
            self._args.end("".join(self._after))
            self._state = State.KEY
        else:
            self._resume()
            self._nested += 1
        return pos

    def _end_value(self) -> None:
        """A value ended with a closer; what stands behind it has not been read."""
        self._args.end("".join(self._after))
        self._state = State.BODY
        if self._closer is Tag.WRONG_CLOSE:
            self._sink.note("rescue.wrong_closer", self._args.key)
        elif self._closer is not Tag.PARAM_CLOSE:
            self._sink.note("rescue.missing_closer", self._args.key)
            if self._closer is Tag.CALL_CLOSE:
                self._end_call()
            else:
                self._close()
                self._leave()

    def _read_json(self, text: str, pos: int) -> int:
        reader = self._json
        stop = reader.feed(text, pos)
        self._sink.argue(reader.take(), text[pos:stop])
        if reader.done or reader.stuck:
            self._args.given()
            self._state = State.BODY
        return stop


STEPS: Final[dict[State, Callable[[TaggedCodec, str, int], int]]] = {
    State.SECTION: TaggedCodec._section,
    State.NAME: TaggedCodec._read_name,
    State.BODY: TaggedCodec._body,
    State.KEY: TaggedCodec._read_key,
    State.GAP: TaggedCodec._gap,
    State.VALUE: TaggedCodec._value,
    State.AFTER: TaggedCodec._read_after,
    State.JSON: TaggedCodec._read_json,
}
