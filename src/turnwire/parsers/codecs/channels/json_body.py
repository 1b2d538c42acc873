"""Arguments that fill a message body: JSON up to the marker that ends the message.

Promise: they are forwarded as they come; a marker inside a JSON string ends the body only where the next message
begins and what follows cannot be the rest of the string.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from enum import auto
from typing import TYPE_CHECKING, Final

from turnwire.parsers.codecs.json_text import JsonText, plain_string
from turnwire.parsers.codecs.steps import Steps
from turnwire.parsers.scanner import WAIT, Scanner, blanks
from turnwire.parsers.symbols import Symbol

if TYPE_CHECKING:
    from turnwire.parsers.machine import Machine

__all__ = ["JsonBody"]

# The rest of a JSON string as far as it can be one; possessive, so it never backtracks.
_REST: Final = re.compile(r'(?:[^"\\\x00-\x1f]|\\[^\x00-\x1f])*+')
_LOOK_AHEAD: Final = 4096


class State(Symbol):
    """Where in the body the reader is."""

    OPEN = auto()  # before the first visible character
    JSON = auto()
    QUOTED = auto()  # after an end marker inside a JSON string
    RAW = auto()  # in a body that is not a JSON object
    AFTER = auto()  # after the JSON
    DONE = auto()


class On(Symbol):
    """What was read, as far as it changes the state."""

    BEGIN = "the body begins"
    BRACE = "an opening brace"
    OTHER = "any other character"
    OBJECT_END = "the last brace"
    MARKER = "an end marker inside a string"
    QUOTED = "what shows that it was text"
    END = "an end marker"


# Every way from one state to another.
NEXT: Final[dict[State, dict[On, State]]] = {
    State.DONE: {On.BEGIN: State.OPEN},
    State.OPEN: {On.BRACE: State.JSON, On.OTHER: State.RAW, On.END: State.DONE},
    State.JSON: {On.OBJECT_END: State.AFTER, On.MARKER: State.QUOTED, On.END: State.DONE},
    State.QUOTED: {On.QUOTED: State.JSON, On.END: State.DONE},
    State.RAW: {On.END: State.DONE},
    State.AFTER: {On.END: State.DONE},
}


class JsonBody(Steps[State, On]):
    """Reads the body of one call after the other. `closers` end a body and belong to it; `openers` begin the next
    message; `closed` says whether the format asks for a closer before one. Inside a JSON string a closer counts only if
    the output ends or the next message begins after it, and the string does not go on after that."""

    def __init__(self, machine: Machine, closers: Iterable[str], openers: Iterable[str], closed: bool = True) -> None:
        super().__init__(STEPS, NEXT, State.DONE)
        self._machine = machine
        self._sink = machine.sink
        self._closers = frozenset(closers)
        self._closed = closed
        self._openers = Scanner(openers)
        markers = [*self._closers, *openers]
        self._markers = Scanner(markers)
        self._plain = plain_string("".join(sorted({re.escape(marker[0]) for marker in markers})))
        self._name = ""
        self._json = JsonText()
        self._held: list[str] = []
        self._noisy = False

    @property
    def done(self) -> bool:
        """Whether the call has ended."""
        return self._state is State.DONE

    def begin(self, name: str) -> None:
        """The body of a call of tool `name` begins here."""
        self._machine.open_call(name)
        self._name = name
        self._json = JsonText()
        self._held = []
        self._noisy = False
        self._state = State.DONE
        self._go(On.BEGIN)

    def plain(self) -> str | None:
        """Inside a string, anything but quotes, cut escapes, control characters and markers passes."""
        return self._plain if self._state is State.JSON and self._json.in_string else None

    def finish(self) -> None:
        """The end of the output: complete JSON is a call, anything else is cut. That the closer is missing means
        nothing here: engines keep the token they stop at to themselves."""
        sink, state = self._sink, self._state
        if state is State.AFTER:
            sink.close_call()
        elif state is not State.DONE:
            self._json.flush()
            sink.argue(self._json.take(), "")
            for piece in self._held:
                sink.keep(piece)
            sink.close_call(truncated=state in (State.OPEN, State.JSON) or self._machine.cut)
        self._state = State.DONE

    # ---------------------------------------------------------------------------------------------------- steps

    def _end(self, text: str, start: int, stop: int) -> int:
        """The marker at `start` ends the body; it is consumed if it belongs to it."""
        sink, marker = self._sink, text[start:stop]
        if marker in self._closers:
            sink.keep(marker)
        else:
            if self._closed:
                sink.note("rescue.missing_closer", self._name)
            stop = start
        self._close()
        return stop

    def _close(self) -> None:
        reader = self._json
        reader.flush()
        self._sink.argue(reader.take(), "")
        if reader.rewritten:
            self._sink.note(reader.rewritten, self._name)
        self._sink.close_call()
        self._go(On.END)

    def _open(self, text: str, pos: int) -> int:
        stop = blanks(text, pos)
        if stop > pos:
            self._sink.keep(text[pos:stop])
        if stop == len(text):
            return stop
        marker = self._markers.at(text, stop, self._machine.closing)
        if marker is WAIT:
            return stop
        if marker is not None:
            self._sink.argue("{}", "")
            return self._end(text, stop, stop + len(marker))
        self._go(On.BRACE if text[stop] == "{" else On.OTHER)
        return stop

    def _read_json(self, text: str, pos: int) -> int:
        reader, sink = self._json, self._sink
        start, stop = self._markers.find(text, pos, self._machine.closing)
        piece = text[pos:start]
        read = reader.feed(piece, 0)
        sink.argue(reader.take(), piece[:read])
        if reader.done:
            self._go(On.OBJECT_END)
            return pos + read
        if read < len(piece):  # a `<` where no JSON has one
            sink.argue(piece[read], piece[read])
            return pos + read + 1
        if stop < 0:
            return start
        if not reader.in_string:
            return self._end(text, start, stop)
        self._held = [text[start:stop]]
        self._go(On.MARKER)
        return stop

    def _quoted(self, text: str, pos: int) -> int:
        """After a marker inside a string: what follows says whether it was one."""
        stop = blanks(text, pos)
        if stop > pos:
            self._held.append(text[pos:stop])
        if stop == len(text):
            return stop
        marker = self._openers.at(text, stop, self._machine.closing)
        if marker is WAIT:
            return stop
        ends = marker is not None and self._held[0] in self._closers
        if ends:
            goes_on = self._goes_on(text, stop)
            if goes_on is None:
                return stop
            ends = not goes_on
        held = self._held
        self._held = []
        if ends:
            for piece in held:
                self._sink.keep(piece)
            self._close()
            return stop
        raw = "".join(held)
        self._json.feed(raw, 0)
        self._sink.argue(self._json.take(), raw)
        self._go(On.QUOTED)
        return stop

    def _goes_on(self, text: str, pos: int) -> bool | None:
        """Whether the string goes on at `pos`, where a message could begin; None where more text is needed. A string
        has its line ends and quotes escaped, and after its own quote comes what JSON has there; another message's text
        has neither."""
        stop = _REST.match(text, pos, pos + _LOOK_AHEAD).end()  # type: ignore[union-attr]
        if stop - pos >= _LOOK_AHEAD - 1:
            return "\\" in text[pos:stop]
        undecided = False if self._machine.closing else None
        if stop + 1 >= len(text) and text[stop:] in ("", "\\"):
            return undecided
        if text[stop] != '"':
            return False
        after = blanks(text, stop + 1)
        return text[after] in ",}]:" if after < len(text) else undecided

    def _raw(self, text: str, pos: int) -> int:
        start, stop = self._markers.find(text, pos, self._machine.closing)
        if start > pos:
            self._sink.argue(text[pos:start], text[pos:start])
        return start if stop < 0 else self._end(text, start, stop)

    def _after(self, text: str, pos: int) -> int:
        sink = self._sink
        stop = blanks(text, pos)
        if stop > pos:
            sink.keep(text[pos:stop])
            return stop
        start, stop = self._markers.find(text, pos, self._machine.closing)
        if start > pos:
            if not self._noisy:
                sink.note("call.noise", self._name)
                self._noisy = True
            sink.keep(text[pos:start])
        return start if stop < 0 else self._end(text, start, stop)


STEPS: Final[dict[State, Callable[[JsonBody, str, int], int]]] = {
    State.OPEN: JsonBody._open,
    State.JSON: JsonBody._read_json,
    State.QUOTED: JsonBody._quoted,
    State.RAW: JsonBody._raw,
    State.AFTER: JsonBody._after,
}
