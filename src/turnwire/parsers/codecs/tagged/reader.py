"""Reads calls written as tags around each argument, as a tagged syntax's table describes them.

Promise: string values stream as they come, but for a tail that may be their end; other values wait for their closer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from turnwire.parsers.codecs.arguments import JSON_TEXT, QUOTED, Arguments
from turnwire.parsers.codecs.attributes import read_attribute
from turnwire.parsers.codecs.envelope import EnvelopeCodec
from turnwire.parsers.codecs.json_text import JsonText
from turnwire.parsers.codecs.steps import CallSteps
from turnwire.parsers.codecs.tagged.ends import Ends, Verdict
from turnwire.parsers.codecs.tagged.states import HEADER_LIMIT, NAME, NEXT, On, State, Tag, plan_of
from turnwire.parsers.dialect import Sign
from turnwire.parsers.scanner import WAIT
from turnwire.parsers.schema import STRING, Shape

if TYPE_CHECKING:
    from turnwire.parsers.codecs.tagged.table import Tagged
    from turnwire.parsers.machine import Machine

__all__ = ["STEPS", "TaggedCodec"]


class TaggedCodec(CallSteps[State, On]):
    """Reads tagged calls of one turn."""

    def __init__(self, table: Tagged, machine: Machine) -> None:
        super().__init__(machine, STEPS, NEXT, State.OUT)
        self._table = table
        self._plan = plan_of(table)
        self._args = Arguments(machine, table.repairs.unwraps)
        self._ends = Ends(table, self._plan, machine)
        self._json = JsonText()
        self._sign = Sign("")
        self._wrapped = False
        self._name = ""
        self._header = ""
        self._noisy = False
        self._leading = False  # the line break before a value may come
        self._led = False  # it came

    # ------------------------------------------------------------------------------------------ codec interface

    def enter(self, sign: Sign) -> None:
        """After a section opener, or after a call opener that came alone."""
        self._sign = sign
        self._wrapped = sign.text not in self._table.call_open
        self._go(On.SECTION if self._wrapped else On.CALL)

    def plain(self) -> str | None:
        """A streaming string value forwards anything but tags, quotes, backslashes and control characters."""
        if self._state is State.VALUE and self._args.streaming and not self._leading:
            return self._plan.value
        return JsonText.PLAIN if self._state is State.JSON and self._json.in_string else None

    def finish(self) -> None:
        """The end of the output: a call all of whose values are closed is complete, any other is cut."""
        sink, state = self._sink, self._state
        if state in (State.SECTION, State.NAME, State.OUT):
            if sink.on_trial:
                sink.accept()
                sink.note("call.truncated")
        elif state is State.BODY and not self._machine.cut:
            sink.note("rescue.missing_closer", self._name)
            self._close()
        else:
            if state is State.JSON:
                self._json.flush()
                sink.argue(self._json.take(), "")
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
        lists = self._table.repairs.lists
        if marker is None and lists is not None and text[pos] in "{[" and sink.on_trial:
            codec = EnvelopeCodec(lists, self._machine)
            self._hand(codec)
            codec.enter(self._sign)
            return pos
        tag = None if marker is None else self._plan.meanings[State.SECTION][marker]
        if marker is None or tag is Tag.SECTION_OPEN or (tag is Tag.CALL_CLOSE and sink.on_trial):
            self._break_off("rescue.missing_closer", self._name)
            return pos
        if tag is Tag.CALL_OPEN:
            self._go(On.CALL)
        elif tag is Tag.CALL_CLOSE:
            sink.note("rescue.duplicate_closer", marker)
        elif tag is Tag.SECTION_CLOSE and sink.on_trial:
            sink.accept()
            sink.note("call.unnamed")
        sink.keep(marker)
        if tag is Tag.SECTION_CLOSE:
            self._leave()
        return pos + len(marker)

    def _read_name(self, text: str, pos: int) -> int:
        headers, closing = self._table.headers, self._machine.closing
        start, stop = self._plan.header.find(text, pos, closing)
        marker = text[start:stop] if stop > 0 else ""
        if start - pos > HEADER_LIMIT or (headers.end and marker == "<"):
            self._break_off("call.unnamed", self._name)
            return pos
        if stop < 0:
            return self._named(text, pos, start, start) if closing and not headers.end else pos
        return self._named(text, pos, start, stop if headers.end or marker in headers.name_ends else start)

    def _named(self, text: str, pos: int, start: int, stop: int) -> int:
        name, closed = self._plan.name_in(text[pos:start])
        half = len(name) // 2
        if self._table.headers.doubled and name not in self._machine.tools and name[half:] == "." + name[:half]:
            name = name[:half]
        if NAME.fullmatch(name) is None or not self._believes(name):
            self._break_off("call.unnamed", self._name)
            return pos
        self._sink.keep(text[pos:stop])
        self._open_call(name)
        self._name = name
        self._args.begin(name)
        self._noisy = False
        self._go(On.NAME)
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
            self._go(On.CALL_END)
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
            if self._table.repairs.json_body and text[pos] == "{" and not self._args.keys and not self._noisy:
                self._json = JsonText()
                self._go(On.OBJECT)
                return pos
            start, _ = scanner.find(text, pos, closing)
            if start > pos:
                self._noise()
                sink.keep(text[pos:start])
            return start
        tag = self._plan.meanings[State.BODY][marker]
        if tag is Tag.BLANK or tag is Tag.PARAM_CLOSE or tag is Tag.PARAM_OPEN:
            sink.keep(marker)
            if tag is Tag.PARAM_OPEN:
                self._go(On.PARAMETER)
            elif tag is Tag.PARAM_CLOSE:
                sink.note("rescue.duplicate_closer", marker)
            return pos + len(marker)
        return self._end_body(tag, marker, pos)

    def _end_body(self, tag: Tag, marker: str, pos: int) -> int:
        """The call ends with its own closer, or with a tag that cannot be inside it."""
        sink = self._sink
        if tag is Tag.CALL_CLOSE:
            sink.keep(marker)
            self._end_call()
            return pos + len(marker)
        sink.note("rescue.missing_closer", self._name)
        self._close()
        if tag is Tag.SECTION_CLOSE:
            sink.keep(marker)
            self._leave()
            return pos + len(marker)
        if tag is Tag.CALL_OPEN and self._wrapped:
            self._go(On.CALL_END)
        else:
            self._leave()
        return pos

    def _noise(self) -> None:
        if not self._noisy:
            self._noisy = True
            self._sink.note("call.noise", self._name)

    def _read_key(self, text: str, pos: int) -> int:
        start, stop = self._plan.key.find(text, pos, self._machine.closing)
        if start - pos > HEADER_LIMIT:
            self._noise()
            self._go(On.NO_KEY)
            return pos
        if stop < 0:
            return pos
        self._header = text[pos:start]
        if text[start:stop] == "\n":
            self._sink.note("rescue.missing_closer", self._header)
            stop = start
        if self._table.values.open:
            self._sink.keep(text[pos:stop])
            self._go(On.KEY_ALONE)
        else:
            self._open_value(On.KEY, text[pos:stop])
        return stop

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
            self._open_value(On.VALUE_TAG, marker)
            return pos + len(marker)
        self._noise()
        self._go(On.OTHER_TAG)
        return pos

    # ------------------------------------------------------------------------------------------------ in a value

    def _open_value(self, on: On, raw: str) -> None:
        values, args = self._table.values, self._args
        key = self._plan.key_in(self._header)
        shape = args.shape(key)
        stated = read_attribute(self._header, values.type_attribute) if values.type_attribute else None
        if stated in ("true", "string"):
            shape = STRING if shape.types is None or "string" in shape.types else shape
        elif stated is not None:
            shape = JSON_TEXT if stated == "false" else Shape(frozenset({stated}))
        if values.guess:
            shape = JSON_TEXT if shape.types is None else QUOTED if shape.types == STRING.types else shape
        args.open(key, shape, raw)
        self._ends.begin(frozenset(self._machine.properties(self._name)) - args.keys)
        self._noisy = False
        self._leading = values.newlines != "none"
        self._led = False
        self._go(on)

    def _value(self, text: str, pos: int) -> int:
        args = self._args
        if self._leading:
            self._leading = False
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
        settled = tag is Tag.PARAM_CLOSE and not args.streaming and args.typed()[:1] != '"'
        quoted = self._ends.inside_quoted
        verdict = self._ends.judge(tag, text, start, stop, settled)
        if verdict is Verdict.WAIT:
            return start
        if verdict is Verdict.ENDS:
            self._end_value(tag, marker)
        else:
            if tag is Tag.PARAM_CLOSE and not quoted:
                self._sink.note("rescue.quoted_closer", args.key)
            args.write(marker, marker)
        return stop

    def _end_value(self, tag: Tag, marker: str) -> None:
        """The value ends at a tag: its own closer, another's, or what comes after a forgotten one."""
        args, sink = self._args, self._sink
        if tag is Tag.PARAM_CLOSE and marker[0] == "\n" and self._table.values.newlines == "paired" and not self._led:
            args.write("\n", "\n")
            marker = marker[1:]
        if tag is Tag.PARAM_OPEN:
            sink.note("rescue.missing_closer", args.key)
            args.end(marker)
            self._go(On.PARAMETER)
            return
        args.end(marker)
        self._go(On.VALUE)
        if tag is Tag.WRONG_CLOSE:
            sink.note("rescue.wrong_closer", args.key)
        elif tag is not Tag.PARAM_CLOSE:
            sink.note("rescue.missing_closer", args.key)
            if tag is Tag.CALL_CLOSE:
                self._end_call()
            else:
                self._close()
                self._leave()

    def _read_json(self, text: str, pos: int) -> int:
        stop = self._args.read_object(self._json, text, pos)
        if self._json.done or self._json.stuck:
            self._go(On.OBJECT_END)
        return stop


STEPS: Final[dict[State, Callable[[TaggedCodec, str, int], int]]] = {
    State.SECTION: TaggedCodec._section,
    State.NAME: TaggedCodec._read_name,
    State.BODY: TaggedCodec._body,
    State.KEY: TaggedCodec._read_key,
    State.GAP: TaggedCodec._gap,
    State.VALUE: TaggedCodec._value,
    State.JSON: TaggedCodec._read_json,
}
