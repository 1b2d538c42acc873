"""Calls written as Python (`[f(a=1), g(b="x")]`), in a wrapper, in brackets, or one to a line.

Promise: a call opens with its first value, and strings stream; what is not a call stays text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from turnwire.parsers.codecs.envelope import Envelope, EnvelopeCodec
from turnwire.parsers.codecs.pythonic.states import NEXT, On, State
from turnwire.parsers.codecs.pythonic.text import PythonText
from turnwire.parsers.codecs.steps import CallSteps
from turnwire.parsers.dialect import Sign
from turnwire.parsers.scanner import WAIT, Scanner
from turnwire.parsers.schema import quote

if TYPE_CHECKING:
    from turnwire.parsers.codecs.pythonic.table import PythonCalls
    from turnwire.parsers.machine import Machine

__all__ = ["STEPS", "PythonCallsCodec"]

NAME_LIMIT: Final = 256


_NAME = re.compile(r"[\w.\-]+")
_KEY = re.compile(r"[\w\-]+")
_LITERAL: Final = "\"'[{(+-.0123456789TFNtfnrRbBuU"


class _Compiled:
    def __init__(self, table: PythonCalls) -> None:
        self.openers = frozenset(opener for opener, _ in table.wrappers)
        self.closers = frozenset(closer for _, closer in table.wrappers if closer)
        self.closing = Scanner(self.closers)


@lru_cache(maxsize=64)
def _compiled(table: PythonCalls) -> _Compiled:
    return _Compiled(table)


class PythonCallsCodec(CallSteps[State, On]):
    """Reads Python calls. A call is opened with the first value of its first argument, and strings stream."""

    def __init__(self, table: PythonCalls, machine: Machine) -> None:
        super().__init__(machine, STEPS, NEXT, State.OUT)
        self._table = table
        self._compiled = _compiled(table)
        self._sign = Sign("[")
        self._closer = ""
        self._wrapped = False
        self._anyone = False
        self._list = False
        self._closed = False
        self._echo: list[str] = []
        self._echoed = 0
        self._from = 0
        self._reset()

    def _reset(self) -> None:
        self._name: list[str] = []
        self._key: list[str] = []
        self._count = 0
        self._opened = False
        self._whole = False
        self._reader = PythonText()

    # ------------------------------------------------------------------------------------------ codec interface

    def enter(self, sign: Sign) -> None:
        """After a wrapper's opener, or after a bracket."""
        machine, sink = self._machine, self._sink
        self._reset()
        self._sign = sign
        self._wrapped = sign.text in self._compiled.openers
        self._closer = dict(self._table.wrappers).get(sign.text, "")
        self._list = not self._wrapped
        self._closed = False
        self._echo = []
        self._anyone = self._wrapped or sink.trial_begins_line or not machine.tools
        self._go(On.OPENER)
        if not self._wrapped and machine.prose == "reasoning":
            self._refuse()

    def run(self, text: str, pos: int) -> int:
        """Consume text while calls are being read; what an echo would repeat is remembered."""
        state = self._state
        if not self._table.echoes or state is State.ECHO:
            return super().run(text, pos)
        self._from = pos
        stop = super().run(text, pos)
        if self._state is not State.ECHO:
            self._echo.append(text[pos:stop])
        return stop

    def plain(self) -> str | None:
        """Inside a string, anything but quotes, backslashes and control characters passes."""
        if self._state is State.VALUE and self._reader.in_string and not self._table.echoes:
            return PythonText.PLAIN
        return None

    def finish(self) -> None:
        """The end of the output. Calls were closed as they ended; an open one is cut."""
        sink = self._sink
        if self._opened:
            self._reader.finish()
            sink.argue(self._reader.take(), "")
            sink.close_call(truncated=True)
        elif self._state is State.ECHO and self._echoed == len(self._echo[0]):
            sink.accept()
            sink.note("call.echo")
        elif sink.on_trial:
            if self._state is State.ECHO:
                self._no_echo()
            elif self._wrapped:
                sink.accept()
                sink.note("call.truncated", "".join(self._name))
            else:
                self._refuse()
        elif self._state is not State.ITEMS:
            sink.note("call.truncated", "".join(self._name))

    # ---------------------------------------------------------------------------------------------------- around

    def _items(self, text: str, pos: int) -> int:
        sink = self._sink
        pos = self._blank(text, pos)
        if pos == len(text):
            return pos
        char, first = text[pos], sink.on_trial
        if char == "{" and first and self._wrapped and self._table.json is not None:
            return self._hand_over(self._table.json, pos)
        if char == "[" and self._wrapped and not self._list:
            self._list = True
            self._closed = False
        elif char == "]" and self._list:
            self._list = False
            self._closed = True
            if not self._wrapped:
                sink.keep(char)
                if first:
                    self._refuse()
                else:
                    self._leave()
                return pos + 1
        elif char in ",;" and not first:
            pass
        elif (char.isalpha() or char == "_") and not self._closed:
            self._reset()
            self._go(On.LETTER)
            return pos
        else:
            return self._after_calls(text, pos)
        sink.keep(char)
        return pos + 1

    def _after_calls(self, text: str, pos: int) -> int:
        """Something that is not a call: the closer, a closer too many, or what follows the calls."""
        sink, first = self._sink, self._sink.on_trial
        marker = self._compiled.closing.at(text, pos, self._machine.closing)
        if marker is WAIT:
            return pos
        if marker is not None and self._wrapped:
            if first:
                sink.accept()
                sink.note("call.unnamed")
            if self._list:
                sink.note("rescue.missing_closer", "]")
            sink.keep(marker)
            if self._table.echoes and not first:
                self._begin_echo(text[self._from : pos])
            else:
                self._leave()
            return pos + len(marker)
        if first:
            self._refuse()
        elif text[pos] in ")]}" and not self._closed:
            sink.note("rescue.duplicate_closer", text[pos])
            sink.keep(text[pos])
            return pos + 1
        else:
            if self._list or self._closer:
                sink.note("rescue.missing_closer", self._closer)
            self._leave()
        return pos

    def _hand_over(self, table: Envelope, pos: int) -> int:
        """JSON in the place of calls: its own codec reads on."""
        codec = EnvelopeCodec(table, self._machine)
        self._hand(codec)
        codec.enter(self._sign)
        if self._list:
            codec.enter_list()
        return pos

    # ------------------------------------------------------------------------------------------------------ a call

    def _read_name(self, text: str, pos: int) -> int:
        found = _NAME.match(text, pos)
        if found is None:
            self._go(On.NAME)
            return pos
        self._name.append(found.group())
        self._sink.keep(found.group())
        return found.end()

    def _paren(self, text: str, pos: int) -> int:
        sink, machine = self._sink, self._machine
        pos = self._blank(text, pos)
        if pos == len(text):
            return pos
        name = "".join(self._name)
        method = self._table.method
        if method and name not in machine.tools and name.removesuffix(method) in machine.tools:
            name = name.removesuffix(method)
        self._name = [name]
        right = text[pos] == "(" and len(name) <= NAME_LIMIT
        if not sink.on_trial:
            if not right:
                sink.note("call.unnamed", name[:NAME_LIMIT])
                self._leave()
                return pos
        elif not right or not (name in machine.tools or (machine.believed and self._anyone)):
            self._refuse()
            return pos
        sink.keep("(")
        self._go(On.PAREN)
        return pos + 1

    def _open(self) -> None:
        if not self._opened:
            self._machine.open_call(self._name[0])
            self._opened = True

    def _doubted(self) -> bool:
        """Whether what cannot be read as arguments shows that no call was meant."""
        return self._sink.on_trial and not (self._wrapped and self._name[0] in self._machine.tools)

    def _read_key(self, text: str, pos: int) -> int:
        sink = self._sink
        pos = self._blank(text, pos)
        if pos == len(text):
            return pos
        char = text[pos]
        if char == ")":
            sink.keep(char)
            self._close()
            return pos + 1
        if char == "," and self._count:
            sink.keep(char)
            return pos + 1
        if _KEY.match(char):
            self._key = []
            self._go(On.LETTER)
            return pos
        if char == "{" and not self._count and (self._name[0] in self._machine.tools or not sink.on_trial):
            self._whole = True
            return self._begin_value(pos, "")
        if self._doubted():
            self._refuse()
            return pos
        return self._stuck(text, pos) if self._opened else self._begin_value(pos, "{")

    def _read_word(self, text: str, pos: int) -> int:
        found = _KEY.match(text, pos)
        if found is None:
            self._go(On.KEY)
            return pos
        self._key.append(found.group())
        self._sink.keep(found.group())
        return found.end()

    def _equals(self, text: str, pos: int) -> int:
        sink = self._sink
        pos = self._blank(text, pos)
        if pos == len(text):
            return pos
        if text[pos] == "=":
            sink.keep("=")
            self._go(On.EQUALS)
            return pos + 1
        if self._doubted():
            self._refuse()
            return pos
        return self._begin_value(pos, "{" + "".join(self._key))

    def _start(self, text: str, pos: int) -> int:
        pos = self._blank(text, pos)
        if pos == len(text):
            return pos
        if text[pos] not in _LITERAL and self._doubted():
            self._refuse()
            return pos
        return self._begin_value(pos, ("{" if not self._count else ", ") + quote("".join(self._key)) + ": ")

    def _begin_value(self, pos: int, written: str) -> int:
        self._open()
        self._count += 1
        self._sink.argue(written, "")
        self._reader = PythonText(lines=self._wrapped and not self._list)
        self._go(On.VALUE)
        return pos

    def _value(self, text: str, pos: int) -> int:
        reader, sink = self._reader, self._sink
        stop = reader.feed(text, pos, self._machine.closing)
        sink.argue(reader.take(), text[pos:stop])
        if reader.done:
            self._go(On.VALUE_END)
        elif reader.stuck:
            return self._stuck(text, stop)
        return stop

    def _stuck(self, text: str, pos: int) -> int:
        """A character that cannot be here: the closer of the calls, or something no JSON comes of."""
        sink, char = self._sink, text[pos]
        marker = self._compiled.closing.at(text, pos, self._machine.closing) if self._wrapped else None
        if marker is WAIT:
            return pos
        if marker is not None or (char == "]" and self._list):
            sink.note("rescue.missing_closer", self._name[0])
            self._close()
            return pos
        self._reader.swallow(char)
        sink.argue(self._reader.take(), char)
        self._go(On.VALUE)
        return pos + 1

    def _close(self) -> None:
        sink, reader = self._sink, self._reader
        self._open()
        reader.finish()
        sink.argue(reader.take(), "")
        if reader.quoted:
            sink.note("rescue.quoted_closer", self._name[0])
        if reader.repaired:
            sink.note("rescue.missing_closer", self._name[0])
        if not self._whole:
            sink.argue("}" if self._count else "{}", "")
        sink.close_call()
        self._reset()
        self._go(On.CALL_END)

    # ------------------------------------------------------------------------------------------------------ an echo

    def _begin_echo(self, read: str) -> None:
        """The calls are closed; `read` is their text that came in this piece."""
        self._echo = ["".join((*self._echo, read)).strip()]
        self._echoed = 0
        self._sink.begin_trial("")
        self._go(On.CLOSER)

    def _no_echo(self) -> None:
        self._state = State.OUT
        self._machine.refuse_rest()

    def _read_echo(self, text: str, pos: int) -> int:
        """After the closer: the calls once more, word for word, or something else."""
        calls = self._echo[0]
        if not self._echoed:
            pos = self._blank(text, pos)
        size = min(len(calls) - self._echoed, len(text) - pos)
        if text[pos : pos + size] != calls[self._echoed : self._echoed + size]:
            self._no_echo()
            return pos
        self._sink.keep(text[pos : pos + size])
        self._echoed += size
        pos += size
        if self._echoed < len(calls) or pos == len(text):
            return pos
        found = self._compiled.closing.at(text, pos, self._machine.closing)
        if found is WAIT:
            return pos
        self._sink.accept()
        self._sink.note("call.echo")
        if found is not None:
            self._sink.keep(found)
            pos += len(found)
        self._leave()
        return pos


STEPS: Final[dict[State, Callable[[PythonCallsCodec, str, int], int]]] = {
    State.ITEMS: PythonCallsCodec._items,
    State.NAME: PythonCallsCodec._read_name,
    State.PAREN: PythonCallsCodec._paren,
    State.KEY: PythonCallsCodec._read_key,
    State.WORD: PythonCallsCodec._read_word,
    State.EQUALS: PythonCallsCodec._equals,
    State.START: PythonCallsCodec._start,
    State.VALUE: PythonCallsCodec._value,
    State.ECHO: PythonCallsCodec._read_echo,
}
