"""Calls written as `call:name{key:value}` in Gemma's notation, typed by its quotes and by the tool's schema.

Promise: quoted strings stream; other values wait for what ends them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from turnwire.parsers.codecs.braced.call_states import NEXT, On, State
from turnwire.parsers.codecs.braced.text import BracedText
from turnwire.parsers.codecs.steps import CallSteps
from turnwire.parsers.dialect import Sign
from turnwire.parsers.scanner import WAIT, Scanner

if TYPE_CHECKING:
    from turnwire.parsers.codecs.braced.table import Braced
    from turnwire.parsers.machine import Machine

__all__ = ["STEPS", "BracedCodec"]

NAME_LIMIT: Final = 256


_NAME = re.compile(r"""[^\s{}<>()\[\]:,;"'`]+""")


class _Compiled:
    def __init__(self, table: Braced) -> None:
        self.closers = frozenset((table.close, *table.wrong_close))
        self.marks = Scanner([table.head, *self.closers])


@lru_cache(maxsize=64)
def _compiled(table: Braced) -> _Compiled:
    return _Compiled(table)


class BracedCodec(CallSteps[State, On]):
    """Reads braced calls. Quoted strings stream; other values wait for what ends them."""

    def __init__(self, table: Braced, machine: Machine) -> None:
        super().__init__(machine, STEPS, NEXT, State.OUT)
        self._table = table
        self._compiled = _compiled(table)
        self._wrapped = False
        self._headed = False
        self._opened = False
        self._name: list[str] = []
        self._reader = BracedText(table.quote, self._compiled.closers, None)

    # ------------------------------------------------------------------------------------------ codec interface

    def enter(self, sign: Sign) -> None:
        """After the opener, or after the head of a call without one."""
        self._wrapped = sign.text == self._table.open
        self._headed = not self._wrapped
        self._name = []
        self._go(On.OPENER if self._wrapped else On.HEAD)

    def plain(self) -> str | None:
        """Inside a string, anything but its mark, quotes, backslashes and control characters passes."""
        return self._reader.plain if self._state is State.BODY and self._reader.in_string else None

    def finish(self) -> None:
        """The end of the output: a call that has its last brace is complete, any other is cut."""
        sink = self._sink
        if self._opened:
            sink.argue(self._reader.take(), "")
            sink.close_call(truncated=True)
        elif sink.on_trial:
            if self._wrapped and (self._headed or not self._name):
                sink.accept()
                sink.note("call.truncated", "".join(self._name))
            else:
                self._refuse()

    # ---------------------------------------------------------------------------------------------------- steps

    def _open(self, text: str, pos: int) -> int:
        pos = self._blank(text, pos)
        if pos == len(text):
            return pos
        marker = self._compiled.marks.at(text, pos, self._machine.closing)
        if marker is WAIT:
            return pos
        if marker is None:
            self._go(On.HEAD)
            return pos
        if marker == self._table.head:
            self._headed = True
            self._go(On.HEAD)
        else:
            self._sink.accept()
            self._sink.note("call.unnamed")
        self._sink.keep(marker)
        if self._state is State.OPEN:
            self._leave()
        return pos + len(marker)

    def _read_name(self, text: str, pos: int) -> int:
        found = _NAME.match(text, pos)
        if found is None:
            self._go(On.NAME)
            return pos
        self._name.append(found.group())
        self._sink.keep(found.group())
        return found.end()

    def _brace(self, text: str, pos: int) -> int:
        machine, sink = self._machine, self._sink
        pos = self._blank(text, pos)
        if pos == len(text):
            return pos
        name = "".join(self._name)
        marker = self._compiled.marks.at(text, pos, machine.closing) if text[pos] != "{" else None
        if marker is WAIT:
            return pos
        ends = marker is not None and marker in self._compiled.closers
        believed = name in machine.tools or (machine.believed and self._headed)
        if not name or len(name) > NAME_LIMIT or not (text[pos] == "{" or ends) or not believed:
            if text[pos] == "{" and self._wrapped and len(name) <= NAME_LIMIT:
                return self._unnamed(pos)
            self._break_off("call.unnamed", name[:NAME_LIMIT])
            return pos
        machine.open_call(name)
        self._opened = True
        if ends:
            sink.argue("{}", "")
            self._close(On.NO_ARGUMENTS)
            return pos
        self._begin()
        return pos

    def _begin(self) -> None:
        tool = self._machine.tools.get("".join(self._name))
        schema = None if tool is None else tool.schema
        self._reader = BracedText(
            self._table.quote, self._compiled.closers, schema, self._table.typed, self._sink.argued_tail
        )
        self._go(On.OBJECT)

    def _unnamed(self, pos: int) -> int:
        """Arguments without a name, or of a name nobody believes: read to their end, and dropped."""
        self._sink.accept()
        self._sink.note("call.unnamed", "".join(self._name))
        self._begin()
        return pos

    def _body(self, text: str, pos: int) -> int:
        reader, sink = self._reader, self._sink
        stop = reader.feed(text, pos, self._machine.closing)
        if reader.ended:
            reader.close()
        if self._opened:
            sink.argue(reader.take(), text[pos:stop])
        else:
            sink.keep(text[pos:stop])
        if reader.done or reader.ended:
            self._close(On.OBJECT_END)
        return stop

    def _close(self, on: On) -> None:
        sink, reader = self._sink, self._reader
        name = "".join(self._name)
        if self._opened:
            for key in reader.doubled:
                sink.note("call.duplicate_argument", key)
            if reader.noisy:
                sink.note("call.noise", name)
            if reader.quoted:
                sink.note("rescue.quoted_closer", name)
            if reader.run_on:
                sink.note("rescue.missing_comma", name)
            if reader.unclosed:
                sink.note("rescue.missing_closer", name)
            sink.close_call()
        self._opened = False
        self._reader = BracedText(self._table.quote, self._compiled.closers, None)
        self._go(on)

    def _after_calls(self, text: str, pos: int) -> int:
        """After a call: its closer, a brace too many, another call, or something else."""
        sink = self._sink
        pos = self._blank(text, pos)
        if pos == len(text):
            return pos
        marker = self._compiled.marks.at(text, pos, self._machine.closing)
        if marker is WAIT:
            return pos
        if marker is None:
            if text[pos] in "}," and self._wrapped:
                if text[pos] == "}":
                    sink.note("rescue.duplicate_closer", "}")
                sink.keep(text[pos])
                return pos + 1
            if self._wrapped:
                sink.note("rescue.missing_closer", self._table.close)
            self._leave()
            return pos
        sink.keep(marker)
        if marker == self._table.head:
            self._name = []
            self._headed = True
            self._go(On.HEAD)
        else:
            if marker != self._table.close:
                sink.note("rescue.wrong_closer", marker)
            self._leave()
        return pos + len(marker)


STEPS: Final[dict[State, Callable[[BracedCodec, str, int], int]]] = {
    State.OPEN: BracedCodec._open,
    State.NAME: BracedCodec._read_name,
    State.BRACE: BracedCodec._brace,
    State.BODY: BracedCodec._body,
    State.CLOSE: BracedCodec._after_calls,
}
