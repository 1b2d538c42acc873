"""Reads calls written as JSON objects, as an envelope's table describes them.

Promise: once the name is known, arguments are forwarded verbatim as they come; JSON that is not a call stays text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from turnwire.parsers.codecs.envelope.states import NEXT, On, Part, State
from turnwire.parsers.codecs.json_text import JsonString, JsonText
from turnwire.parsers.codecs.steps import CallSteps
from turnwire.parsers.dialect import Sign
from turnwire.parsers.scanner import WAIT, Scanner
from turnwire.parsers.schema import decoded, fits

if TYPE_CHECKING:
    from turnwire.parsers.codecs.envelope.table import Envelope
    from turnwire.parsers.machine import Machine

__all__ = ["EnvelopeCodec"]


FENCES: Final = ("```json", "```")
_SCALAR_END = re.compile(r"[,}\]\s<]")


class _Compiled:
    def __init__(self, table: Envelope) -> None:
        self.openers = frozenset(opener for opener, _ in table.wrappers)
        self.closers = frozenset(closer for _, closer in table.wrappers if closer)
        self.opening = Scanner([*FENCES, *self.openers])
        self.closing = Scanner([*self.closers, *self.openers, "```"])


@lru_cache(maxsize=256)
def _compiled(table: Envelope) -> _Compiled:
    return _Compiled(table)


class EnvelopeCodec(CallSteps[State, On]):
    """Reads JSON envelopes. Once the name is known, arguments are forwarded verbatim as they come."""

    def __init__(self, table: Envelope, machine: Machine) -> None:
        super().__init__(machine, STEPS, NEXT, State.OUT)
        self._table = table
        self._compiled = _compiled(table)
        self._wrapped = False
        self._fence = False
        self._lists = 0
        self._reset()

    def _reset(self) -> None:
        self._json = JsonText()
        self._part = Part.OTHER
        self._key = ""
        self._name = ""
        self._call_id = ""
        self._args: str | None = None
        self._opened = False
        self._scalar: list[str] = []
        self._seen = False
        self._inner = 0
        self._string = JsonString()
        self._begun = False
        self._verbatim = False

    # ------------------------------------------------------------------------------------------ codec interface

    def enter(self, sign: Sign) -> None:
        """After a wrapper's opener, or after a bare `{` or `[`."""
        self._reset()
        self._lists = 0
        self._fence = sign.text.startswith("```")
        self._wrapped = sign.text in self._compiled.openers
        if self._wrapped:
            self._go(On.WRAPPER)
        else:
            self._go(On.BRACE if sign.text == "{" else On.BRACKET)
            self._lists = int(sign.text == "[")

    def enter_list(self) -> None:
        """The list inside the wrapper was opened already."""
        self._lists = 1
        self._go(On.BRACKET)

    def plain(self) -> str | None:
        """Inside a string of streaming arguments, anything but quotes, cut escapes and control characters passes."""
        return JsonText.PLAIN if self._state is State.ARGUMENTS and self._json.in_string else None

    def finish(self) -> None:
        """The end of the output. Complete objects were closed as they ended; an open call is cut."""
        sink, state = self._sink, self._state
        if state is State.SCALAR:
            self._end_scalar()
        if self._opened:
            if state is State.ARGUMENTS:
                self._json.flush()
                sink.argue(self._json.take(), "")
            complete = self._args is not None and state in (State.KEY, State.ITEMS) and not self._machine.cut
            if complete:
                sink.note("rescue.missing_closer", self._name)
            sink.close_call(truncated=not complete)
            return
        if sink.on_trial:
            if self._wrapped and not self._table.weak:
                sink.accept()
                sink.note("call.truncated", self._name)
            else:
                self._refuse()

    # ---------------------------------------------------------------------------------------------------- steps

    def _disown(self) -> None:
        """A bare object turns out to be some other JSON: it is prose as a whole, so nothing inside it is a call."""
        self._machine.disown()
        self._json = JsonText()
        self._json.stack += ["["] * self._lists + ["{"] * (1 + self._inner)
        self._go(On.NO_CALL)

    def _alien(self, text: str, pos: int) -> int:
        stop = self._json.feed(text, pos)
        self._json.take()
        self._sink.say(self._machine.prose, text[pos:stop])
        if self._json.done or self._json.stuck:
            self._refuse()
        return stop

    def _give_up(self) -> None:
        """The JSON broke: prose if nothing came of it yet, otherwise the open call is malformed."""
        if self._opened:
            if self._args is not None:
                self._sink.note("rescue.missing_closer", self._name)
                self._end_object()
                return
            self._sink.close_call(truncated=False)
            self._reset()
            self._go(On.OBJECT_END)
        else:
            self._break_off("call.malformed")

    def _open(self, text: str, pos: int) -> int:
        pos = self._blank(text, pos)
        if pos == len(text):
            return pos
        char = text[pos]
        if char == "{" or char == "[":
            self._go(On.BRACE if char == "{" else On.BRACKET)
            return pos
        marker = self._compiled.opening.at(text, pos, self._machine.closing)
        if marker is WAIT:
            return pos
        if marker is not None and marker in FENCES and not self._fence:
            self._fence = True
            self._sink.keep(marker)
            return pos + len(marker)
        marker = self._compiled.closing.at(text, pos, self._machine.closing)
        if marker is WAIT:
            return pos
        if marker in self._compiled.closers and not self._table.weak:
            self._sink.accept()
            self._sink.note("call.unnamed")
            self._sink.keep(marker or "")
            self._leave()
            return pos + len(marker or "")
        self._refuse()
        return pos

    def _items(self, text: str, pos: int) -> int:
        sink = self._sink
        pos = self._blank(text, pos)
        if pos == len(text):
            return pos
        char = text[pos]
        if char == "{":
            sink.keep(char)
            self._go(On.BRACE)
            return pos + 1
        if char == "[" and not self._lists and not self._seen and sink.on_trial:
            self._lists = 1
            sink.keep(char)
            return pos + 1
        if char == "]" and self._lists:
            self._lists = 0
            sink.keep(char)
            if not self._wrapped:
                if sink.on_trial:
                    self._refuse()
                else:
                    self._leave()
            return pos + 1
        if char in ",;" and not sink.on_trial:
            sink.keep(char)
            return pos + 1
        marker = self._compiled.closing.at(text, pos, self._machine.closing)
        if marker is WAIT:
            return pos
        if marker == "```" and self._fence and marker not in self._compiled.closers:
            self._fence = False
            sink.keep(marker)
            return pos + len(marker)
        if marker is not None and marker in self._compiled.closers and self._wrapped:
            if sink.on_trial and self._table.weak:
                self._refuse()
                return pos
            if self._lists:
                sink.note("rescue.missing_closer", "]")
            sink.keep(marker)
            self._leave()
            return pos + len(marker)
        if char in "}])" and self._wrapped and not sink.on_trial:
            sink.note("rescue.duplicate_closer", char)
            sink.keep(char)
            return pos + 1
        if sink.on_trial:
            self._refuse()
        else:
            if self._lists or (self._wrapped and self._compiled.closers and not self._table.doubts.may_end):
                sink.note("rescue.missing_closer", self._name)
            self._leave()
        return pos

    def _key_step(self, text: str, pos: int) -> int:
        sink = self._sink
        pos = self._blank(text, pos)
        if pos == len(text):
            return pos
        char = text[pos]
        if char == '"' or char == "'":
            self._collect(Part.KEY, On.KEY)
            return pos
        if char == "," and self._key:
            sink.keep(char)
            return pos + 1
        if char == "}":
            sink.keep(char)
            if self._inner:
                self._inner -= 1
            else:
                self._end_object()
            return pos + 1
        self._give_up()
        return pos

    def _collect(self, part: Part, on: On) -> None:
        self._part = part
        self._json = JsonText()
        self._go(on)

    def _colon(self, text: str, pos: int) -> int:
        pos = self._blank(text, pos)
        if pos == len(text):
            return pos
        if text[pos] != ":":
            self._give_up()
            return pos
        self._sink.keep(":")
        self._go(On.COLON)
        return pos + 1

    def _value(self, text: str, pos: int) -> int:
        pos = self._blank(text, pos)
        if pos == len(text):
            return pos
        keys, char = self._table.keys, text[pos]
        part = Part.OTHER
        if keys.name_is_key:
            self._name = self._key
            part = Part.ARGUMENTS
        elif self._key in keys.name and char in "\"'":
            part = Part.NAME
        elif self._key in keys.arguments:
            part = Part.ARGUMENTS
        elif self._key in keys.id:
            part = Part.ID
        elif self._key == "function" and char == "{" and not self._name:
            self._sink.keep(char)
            self._inner += 1
            self._go(On.BRACE)
            return pos + 1
        if part is Part.ARGUMENTS:
            self._args = self._args if self._args is not None and self._opened else None
            self._may_open()
            if self._opened and char == "{" and self._args is None:
                self._json = JsonText()
                self._go(On.ARGUMENTS)
                return pos
            if self._opened and char == '"' and self._args is None:
                self._sink.note("rescue.string_arguments", self._name)
                self._json = JsonText()
                self._string = JsonString()
                self._begun = False
                self._go(On.STRING)
                return pos
        if char in "{[\"'":
            self._collect(part, On.OTHER)
        else:
            self._part = part
            self._scalar = []
            self._go(On.SCALAR)
        return pos

    def _may_open(self) -> None:
        """Open the call if its name is known and believed."""
        machine = self._machine
        if self._opened or not self._name or self._table.doubts.must_fit:
            return
        if machine.believed or self._name in machine.tools:
            self._open_call()

    def _open_call(self) -> None:
        self._machine.open_call(self._name, self._call_id)
        self._opened = True
        if self._args is not None:
            self._sink.argue(self._args, "")
            self._args = ""

    def _read(self, text: str, pos: int) -> int:
        reader = self._json
        stop = reader.feed(text, pos)
        self._sink.keep(text[pos:stop])
        if reader.done:
            self._collected(reader.take())
        elif reader.stuck:
            self._give_up()
        return stop

    def _collected(self, written: str) -> None:
        part = self._part
        self._go(On.KEY_END if part is Part.KEY else On.VALUE_END)
        if part is Part.KEY:
            self._key = str(decoded(written))
            keys = self._table.keys
            expected = self._key in (*keys.name, *keys.arguments, *keys.id, "type", "id", "tool_call_id")
            if not self._wrapped and not keys.name_is_key and self._sink.on_trial and not expected:
                self._disown()
        elif part is Part.NAME:
            self._name = str(decoded(written))
            if not self._table.doubts.needs_arguments and not self._opened and self._wrapped:
                self._may_open()
        elif part is Part.ID:
            self._call_id = str(decoded(written))
        elif part is Part.ARGUMENTS:
            self._settle_arguments(written)

    def _settle_arguments(self, written: str) -> None:
        """Arguments that could not stream: they came before the name, or as a string."""
        if written[:1] == '"':
            inner = decoded(written)
            written = inner.strip() if isinstance(inner, str) else written
            written = written or "{}"
            if self._opened:
                self._sink.note("rescue.string_arguments", self._name)
        if self._opened:
            if self._args is None:
                self._sink.argue(written, "")
                self._args = ""
        else:
            self._args = written

    def _read_scalar(self, text: str, pos: int) -> int:
        found = _SCALAR_END.search(text, pos)
        stop = len(text) if found is None else found.start()
        self._scalar.append(text[pos:stop])
        self._sink.keep(text[pos:stop])
        if found is not None:
            self._end_scalar()
        return stop

    def _end_scalar(self) -> None:
        written = "".join(self._scalar)
        self._scalar = []
        self._go(On.VALUE_END)
        if self._part is Part.ARGUMENTS:
            self._settle_arguments("{}" if written in ("null", "None", "") else written)
        elif self._part is Part.ID:
            self._call_id = written
        elif not written:
            self._give_up()

    def _arguments(self, text: str, pos: int) -> int:
        reader = self._json
        stop = reader.feed(text, pos)
        self._sink.argue(reader.take(), text[pos:stop])
        if reader.done or reader.stuck:
            if reader.rewritten:
                self._sink.note(reader.rewritten, self._name)
            if reader.done:
                self._args = ""
                self._go(On.VALUE_END)
            else:
                self._give_up()
        return stop

    def _read_string(self, text: str, pos: int) -> int:
        """Arguments inside a JSON string are decoded and then read like any others."""
        reader, inner, sink = self._string, self._json, self._sink
        stop = reader.feed(text, pos)
        piece = reader.take()
        if not self._begun:
            piece = piece.lstrip()
            if not piece and not reader.done:
                sink.keep(text[pos:stop])
                return stop
            self._begun = True
            self._verbatim = piece[:1] != "{"
        used = 0 if self._verbatim else inner.feed(piece, 0)
        written = inner.take() + (piece[used:] if not inner.done else "")
        if reader.done:
            inner.flush()
            written += inner.take()
            self._args = ""
            self._go(On.VALUE_END)
            if not sink.argued and not written:
                written = "{}"
        sink.argue(written, text[pos:stop])
        return stop

    def _end_object(self) -> None:
        """An object is complete: a call, or not."""
        sink, machine = self._sink, self._machine
        if not self._opened and self._name and not (self._table.doubts.needs_arguments and self._args is None):
            if self._table.doubts.must_fit:
                tool = machine.tools.get(self._name)
                if tool is not None and fits(decoded(self._args or "{}"), tool.schema):
                    self._open_call()
                    sink.note("rescue.bare_json", self._name)
            else:
                self._may_open()
        if not self._opened:
            if sink.on_trial:
                self._refuse()
                return
            sink.note("call.unnamed")
        else:
            if self._args is None:
                sink.argue("{}", "")
            sink.close_call()
        self._reset()
        self._seen = True
        self._go(On.OBJECT_END)


STEPS: Final[dict[State, Callable[[EnvelopeCodec, str, int], int]]] = {
    State.OPEN: EnvelopeCodec._open,
    State.ITEMS: EnvelopeCodec._items,
    State.KEY: EnvelopeCodec._key_step,
    State.COLON: EnvelopeCodec._colon,
    State.VALUE: EnvelopeCodec._value,
    State.READ: EnvelopeCodec._read,
    State.ARGUMENTS: EnvelopeCodec._arguments,
    State.STRING: EnvelopeCodec._read_string,
    State.SCALAR: EnvelopeCodec._read_scalar,
    State.ALIEN: EnvelopeCodec._alien,
}
