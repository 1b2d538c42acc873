"""Turns written as nested elements whose tags are between special tokens, with typed arguments (XTML).

Promise: thought, answer and calls come in the order they were written; string values stream.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from turnwire.parsers.codecs.arguments import JSON_TEXT, Arguments
from turnwire.parsers.codecs.attributes import read_attribute
from turnwire.parsers.codecs.json_text import JsonText
from turnwire.parsers.codecs.steps import Steps
from turnwire.parsers.codecs.xtml.states import (
    CLOSE,
    ELEMENTS,
    END,
    ENDERS,
    NEXT,
    OPEN,
    PROSE,
    SEP,
    TAG_LIMIT,
    On,
    State,
    Tag,
)
from turnwire.parsers.dialect import Sign, Start
from turnwire.parsers.scanner import Scanner, blanks, prose_pattern
from turnwire.parsers.schema import STRING, Shape
from turnwire.parsers.sink import BLANKS
from turnwire.turns import BlockKind

if TYPE_CHECKING:
    from turnwire.parsers.codecs.xtml.table import Xtml
    from turnwire.parsers.machine import Machine

__all__ = ["STEPS", "XtmlCodec"]

_WORD = re.compile(r"\s*([A-Za-z_]*)(\s?)")


_MARKERS = Scanner((OPEN, CLOSE, SEP, END))
_TAGS = Scanner((OPEN, CLOSE, END))
_PROSE = prose_pattern((OPEN,))
_VALUE = r'[<"\\\x00-\x1f]'


class XtmlCodec(Steps[State, On]):
    """Reads a whole turn. String values stream; others wait for their closer."""

    def __init__(self, table: Xtml, machine: Machine) -> None:
        super().__init__(STEPS, NEXT, State.PROSE)
        self._machine = machine
        self._sink = machine.sink
        self._table = table
        self._args = Arguments(machine)
        self._kind: BlockKind = "text"
        self._element = ""
        self._name = ""
        self._json = JsonText()
        self._noisy = False

    # ------------------------------------------------------------------------------------------ codec interface

    def begin(self, start: Start) -> None:
        """The output begins inside a thought or in text."""
        if start.state == "reasoning":
            self._enter("think")

    def enter(self, sign: Sign) -> None:
        """A router is in charge from the beginning on: no sign leads to it."""

    def plain(self) -> str | None:
        """Prose without the beginning of a marker passes, and so does a streaming string."""
        if self._state is State.PROSE:
            return _PROSE if self._sink.kind == self._kind else None
        if self._state is State.VALUE:
            return _VALUE if self._args.streaming else None
        return JsonText.PLAIN if self._state is State.JSON and self._json.in_string else None

    def finish(self) -> None:
        """The end of the output: a call whose arguments all have their closers is complete."""
        sink = self._sink
        if self._state is State.CALL and not self._machine.cut:
            sink.note("rescue.missing_closer", self._name)
            self._close_call()
        elif self._state in (State.CALL, State.VALUE, State.JSON):
            self._json.flush()
            sink.argue(self._json.take(), "")
            sink.close_call(truncated=True)

    # ----------------------------------------------------------------------------------------------------- tags

    def _tag(self, text: str, pos: int) -> Tag | bool | None:
        """The tag whose marker begins at `pos`; None if it is none, True if only more text can tell."""
        marker = OPEN if text.startswith(OPEN, pos) else CLOSE
        window = text[pos + len(marker) : pos + len(marker) + TAG_LIMIT]
        closing = self._machine.closing
        start, stop = _MARKERS.find(window, 0, closing)
        body = window[:start]
        word, gap = _WORD.match(body).groups()  # type: ignore[union-attr]
        ended = (bool(gap) and bool(word)) or stop >= 0 or _WORD.fullmatch(body) is None
        if word not in ELEMENTS if ended else not any(name.startswith(word) for name in ELEMENTS):
            return None
        at = pos + len(marker)
        if stop < 0:
            if not closing:
                return True if len(window) < TAG_LIMIT else None
            return Tag(marker, word, body, len(text), whole=False, cut=word not in ELEMENTS)
        if window[start:stop] != SEP:
            return Tag(marker, word, body, at + start, whole=False)
        return Tag(marker, word, body, at + stop)

    def _enter(self, element: str) -> None:
        self._element = element
        kind = PROSE.get(element, "text")
        self._kind = kind if self._table.thoughts else "text"
        self._go(On.PROSE)

    # ---------------------------------------------------------------------------------------------------- prose

    def _prose(self, text: str, pos: int) -> int:
        sink = self._sink
        start, stop = _TAGS.find(text, pos, self._machine.closing)
        if start > pos:
            if sink.held and text[pos:start].strip(BLANKS):
                self._go_on()
            sink.say(self._kind, text[pos:start])
        if stop < 0:
            return start
        marker = text[start:stop]
        if marker == END:
            sink.mark(marker)
            return stop
        tag = self._tag(text, start)
        if tag is True:
            return start
        if not isinstance(tag, Tag):
            sink.say(self._kind, marker)
            return stop
        return self._apply(tag, text, start)

    def _apply(self, tag: Tag, text: str, start: int) -> int:
        """A tag in prose."""
        sink, raw = self._sink, text[start : tag.stop]
        if tag.cut:
            sink.mark(raw)
            return tag.stop
        opens = tag.marker == OPEN
        if opens and tag.name in ("tools", "call") and not self._table.tools:
            sink.close_prose()
            sink.say("text", raw)
            self._go(On.LEFT)
            return tag.stop
        if opens and tag.name == "call" and read_attribute(tag.header, "tool") is None:
            sink.say(self._kind, raw)
            return tag.stop
        if opens and tag.name in ("tools", "call"):
            self._leave_prose(tag)
            if tag.name == "tools":
                sink.keep(raw)
                self._noisy = False
                self._go(On.TOOLS)
            else:
                self._open_call(tag, raw)
                sink.note("rescue.missing_wrapper", self._name)
            return tag.stop
        if opens and tag.name in PROSE:
            sink.release()
            if self._element == tag.name:
                sink.mark(raw)
            else:
                sink.close_prose()
                sink.keep(raw)
                if self._element:
                    sink.note("rescue.missing_closer", self._element)
                self._enter(tag.name)
            return tag.stop
        if not opens and tag.name == "think" and sink.held:
            self._go_on()
        if not opens and tag.name == self._element:
            sink.close_prose(raw)
            self._enter("")
        else:
            sink.mark(raw)
        if not tag.whole and not self._machine.closing:
            sink.note("rescue.missing_closer", SEP)
        return tag.stop

    def _go_on(self) -> None:
        """The thought goes on after calls it quoted: they were part of it."""
        raw = self._sink.take_back()
        self._enter("think")
        self._sink.say(self._kind, raw)

    def _leave_prose(self, tag: Tag) -> None:
        if self._element == "think":
            self._sink.hold()
        self._sink.close_prose()
        if self._element == "think":
            self._sink.note("rescue.call_in_reasoning", read_attribute(tag.header, "tool") or "")
        self._enter("")

    # ---------------------------------------------------------------------------------------------------- calls

    def _tools(self, text: str, pos: int) -> int:
        return self._between(text, pos, "section.noise")

    def _call(self, text: str, pos: int) -> int:
        if not self._args.keys and not self._noisy:
            stop = blanks(text, pos)
            if text[stop : stop + 1] == "{":
                self._sink.keep(text[pos:stop])
                self._begin_json()
                return stop
        return self._between(text, pos, "call.noise")

    def _between(self, text: str, pos: int, noise: str) -> int:
        """Between calls or arguments only tags have a meaning."""
        sink = self._sink
        stop = blanks(text, pos)
        if stop > pos:
            sink.keep(text[pos:stop])
            return stop
        start, stop = _TAGS.find(text, pos, self._machine.closing)
        if start > pos:
            self._noise(noise)
            sink.keep(text[pos:start])
            return start
        if stop < 0:
            return start
        if text[start:stop] == END:
            self._end_calls()
            return start
        tag = self._tag(text, start)
        if tag is True:
            return start
        if not isinstance(tag, Tag):
            self._noise(noise)
            sink.keep(text[start:stop])
            return stop
        if tag.cut:
            sink.keep(text[start : tag.stop])
            return tag.stop
        return self._structure(tag, text, start)

    def _noise(self, code: str) -> None:
        if not self._noisy:
            self._sink.note(code, self._name)
            self._noisy = True

    def _structure(self, tag: Tag, text: str, start: int) -> int:
        """A tag between calls or between arguments."""
        sink, raw = self._sink, text[start : tag.stop]
        inside = self._state is State.CALL
        move = (tag.marker, tag.name)
        if move == (OPEN, "call"):
            if inside:
                sink.note("rescue.missing_closer", self._name)
                self._close_call()
            self._open_call(tag, raw)
        elif move == (OPEN, "argument") and inside:
            self._open_value(tag, raw)
        elif move == (OPEN, "json") and inside:
            sink.keep(raw)
            self._begin_json()
        elif move == (CLOSE, "call") and inside:
            sink.keep(raw)
            self._close_call()
        elif move in ((CLOSE, "tools"), (CLOSE, "message")) or (tag.marker == OPEN and tag.name in PROSE):
            self._end_calls()
            if move != (CLOSE, "tools"):
                return start
            sink.keep(raw)
        else:
            if move not in ((CLOSE, "json"), (CLOSE, "argument")):
                self._noise("call.noise")
            sink.keep(raw)
        return tag.stop

    def _end_calls(self) -> None:
        if self._state is State.CALL:
            self._sink.note("rescue.missing_closer", self._name)
            self._close_call()
        self._enter("")

    def _open_call(self, tag: Tag, raw: str) -> None:
        self._sink.keep(raw)
        name = _decoded(read_attribute(tag.header, "tool") or "")
        if not name:
            self._sink.note("call.unnamed")
            self._go(On.UNNAMED)
            return
        self._machine.open_call(name)
        self._name = name
        self._args.begin(name)
        self._noisy = False
        self._go(On.CALL)

    def _close_call(self) -> None:
        self._args.close()
        self._sink.close_call()
        self._go(On.CALL_END)

    def _open_value(self, tag: Tag, raw: str) -> None:
        key = _decoded(read_attribute(tag.header, "key") or "")
        stated = read_attribute(tag.header, "type")
        shape = self._args.shape(key)
        if stated == "string":
            shape = STRING if shape.types is None or "string" in shape.types else shape
        elif stated is not None:
            shape = Shape(frozenset({stated})) if stated != "json" else JSON_TEXT
        self._args.open(key, shape, raw)
        self._noisy = False
        self._go(On.ARGUMENT)

    def _value(self, text: str, pos: int) -> int:
        args = self._args
        start, stop = _TAGS.find(text, pos, self._machine.closing)
        if start > pos:
            args.write(text[pos:start], text[pos:start])
        if stop < 0:
            return start
        tag = self._tag(text, start) if text[start:stop] != END else None
        if tag is True:
            return start
        if isinstance(tag, Tag) and tag.cut:
            self._sink.keep(text[start : tag.stop])
            return tag.stop
        if isinstance(tag, Tag) and (tag.marker, tag.name) == (CLOSE, "argument"):
            args.end(text[start : tag.stop])
            self._go(On.ARGUMENT_END)
            return tag.stop
        if isinstance(tag, Tag) and (tag.marker, tag.name) in ENDERS:
            self._sink.note("rescue.missing_closer", args.key)
            args.end("")
            self._go(On.ARGUMENT_END)
            return start
        args.write(text[start:stop], text[start:stop])
        return stop

    def _begin_json(self) -> None:
        self._json = JsonText()
        self._go(On.OBJECT)

    def _read_json(self, text: str, pos: int) -> int:
        stop = self._args.read_object(self._json, text, pos)
        if self._json.done or self._json.stuck:
            self._go(On.OBJECT_END)
        return stop

    def _verbatim(self, text: str, pos: int) -> int:
        self._sink.say("text", text[pos:])
        return len(text)


def _decoded(attribute: str) -> str:
    return attribute.replace("&quot;", '"').replace("&amp;", "&")


STEPS: Final[dict[State, Callable[[XtmlCodec, str, int], int]]] = {
    State.PROSE: XtmlCodec._prose,
    State.TOOLS: XtmlCodec._tools,
    State.CALL: XtmlCodec._call,
    State.VALUE: XtmlCodec._value,
    State.JSON: XtmlCodec._read_json,
    State.VERBATIM: XtmlCodec._verbatim,
}
