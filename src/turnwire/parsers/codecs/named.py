"""Calls written as a name in markers, followed by arguments that are JSON.

Promise: arguments are forwarded verbatim as they come; a header that names nothing is never made up.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import auto
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

from turnwire.parsers.codecs.envelope import Envelope
from turnwire.parsers.codecs.json_text import JsonText
from turnwire.parsers.codecs.steps import CallSteps
from turnwire.parsers.dialect import Codec, Sign
from turnwire.parsers.scanner import WAIT, Scanner, blanks
from turnwire.parsers.schema import decoded, fits
from turnwire.parsers.symbols import Symbol

if TYPE_CHECKING:
    from turnwire.parsers.machine import Machine

__all__ = ["Named"]

HEADER_LIMIT: Final = 400
"""No header is longer than this: one that has not ended by then is not one."""


_COUNTER = re.compile(r"[:_.-]?[0-9]+$")
_FOREIGN_ID = re.compile(r"(?:functions?[-_.:]?)?[0-9]+|(?:call|toolu|tool|chatcmpl|id)[-_.:][\w-]+")


class Named(msgspec.Struct, frozen=True):
    """The table of a syntax with the name outside.

    `sections` wrap calls. A call is `call_open`, a header, JSON, `call_close`. The header runs up to the first `{`
    or, where there are no arguments, up to a closer; with its whitespace reduced it is matched whole by the pattern
    `header`, with groups `name` and, where the format has them, `id` and `type`. `separators` are the markers inside
    a header that prove a call, so that its text is never shown as prose; `hopeless` is a pattern for the beginning of
    what can be no header. `noise`: text inside a section, outside calls, is left out. `infer`: a header that names no
    offered tool is given the one tool whose schema fits the arguments. `fences` may be around the JSON. `lists`:
    the section may hold a JSON list or object instead, read by that table."""

    header: str
    call_open: tuple[str, ...]
    call_close: tuple[str, ...] = ()
    sections: tuple[tuple[str, str], ...] = ()
    separators: tuple[str, ...] = ()
    hopeless: str = ""
    noise: bool = False
    infer: bool = False
    fences: bool = False
    lists: Envelope | None = None

    @property
    def signs(self) -> tuple[Sign, ...]:
        """Section openers; call openers too, as a rescue where the format asks for a section."""
        if not self.sections:
            return tuple(Sign(opener) for opener in self.call_open)
        wrapped = tuple(Sign(opener) for opener, _ in self.sections)
        return wrapped + tuple(Sign(opener, rescue=True, any_tool=True) for opener in self.call_open)

    @property
    def closers(self) -> tuple[str, ...]:
        """What ends calls."""
        return tuple(closer for _, closer in self.sections if closer) + self.call_close

    def codec(self, machine: Machine) -> Codec:
        """A reader for one turn."""
        return _NamedCodec(self, machine)


class State(Symbol):
    """Where the reader is."""

    SECTION = auto()  # inside a section, outside calls
    HEADER = auto()
    JSON = auto()
    AFTER = auto()  # after the arguments
    DROP = auto()  # in a call that cannot be read, up to its closer
    OUT = auto()


class On(Symbol):
    """What was read, as far as it changes the state."""

    SECTION = "a section opens"
    CALL = "a call opens"
    ARGUMENTS = "its name, and a brace"
    NO_ARGUMENTS = "its name alone"
    UNREADABLE = "no name"
    OBJECT_END = "the last brace"
    CALL_END = "the call's end"


# Every way from one state to another. From each of them calls may also be left for prose.
NEXT: Final[dict[State, dict[On, State]]] = {
    State.OUT: {On.SECTION: State.SECTION, On.CALL: State.HEADER},
    State.SECTION: {On.CALL: State.HEADER},
    State.HEADER: {On.ARGUMENTS: State.JSON, On.NO_ARGUMENTS: State.AFTER, On.UNREADABLE: State.DROP},
    State.JSON: {On.OBJECT_END: State.AFTER},
    State.AFTER: {On.CALL_END: State.SECTION},
    State.DROP: {On.CALL_END: State.SECTION},
}


class _Compiled:
    def __init__(self, table: Named) -> None:
        self.pattern = re.compile(table.header, re.DOTALL)
        self.hopeless = re.compile(table.hopeless) if table.hopeless else None
        self.calls = frozenset(table.call_open)
        self.closers = frozenset(table.call_close)
        self.section_openers = frozenset(opener for opener, _ in table.sections)
        self.section_closers = frozenset(closer for _, closer in table.sections if closer)
        markers = [*self.calls, *self.closers, *self.section_closers, *self.section_openers]
        self.sections = Scanner(markers)
        self.header = Scanner(["{", *markers])
        self.ends = Scanner([*self.calls, *self.closers, *self.section_closers])
        self.after = Scanner([*markers, "```"] if table.fences else markers)


@lru_cache(maxsize=256)
def _compiled(table: Named) -> _Compiled:
    return _Compiled(table)


class _NamedCodec(CallSteps[State, On]):
    """Reads calls whose name is outside; arguments are forwarded verbatim as they come."""

    def __init__(self, table: Named, machine: Machine) -> None:
        super().__init__(machine, STEPS, NEXT, State.OUT)
        self._table = table
        self._compiled = _compiled(table)
        self._wrapped = False
        self._noisy = False
        self._name = ""
        self._id = ""
        self._json = JsonText()
        self._held = False
        self._args: list[str] = []
        self._list: Codec | None = None

    # ------------------------------------------------------------------------------------------ codec interface

    def enter(self, sign: Sign) -> None:
        """After a section opener, or after a call opener."""
        self._wrapped = sign.text in self._compiled.section_openers
        self._noisy = False
        self._go(On.SECTION if self._wrapped else On.CALL)

    def plain(self) -> str | None:
        """Inside a string of the arguments, anything but quotes, cut escapes and control characters passes."""
        return JsonText.PLAIN if self._state is State.JSON and not self._held and self._json.in_string else None

    def finish(self) -> None:
        """The end of the output. Arguments that were complete make a call; others are cut."""
        sink, state = self._sink, self._state
        if state is State.JSON:
            self._json.flush()
            rest = self._json.take()
            if self._held:
                self._machine.open_call(self._name, self._id)
                rest = "".join(self._args) + rest
            sink.argue(rest, "")
            sink.close_call(truncated=True)
        elif state is State.AFTER:
            if self._compiled.closers:
                sink.note("rescue.missing_closer", self._name)
            self._close()
        elif sink.on_trial:
            if state is State.HEADER and not self._wrapped and not self._table.sections and not self._table.separators:
                self._refuse()
                return
            sink.accept()
            sink.note("call.truncated")

    # ---------------------------------------------------------------------------------------------------- steps

    def _section(self, text: str, pos: int) -> int:
        sink, compiled = self._sink, self._compiled
        pos = self._blank(text, pos)
        if pos == len(text):
            return pos
        marker = compiled.sections.at(text, pos, self._machine.closing)
        if marker is WAIT:
            return pos
        if marker is None:
            return self._between(text, pos)
        if marker in compiled.calls:
            sink.keep(marker)
            self._go(On.CALL)
            return pos + len(marker)
        if marker in compiled.section_closers:
            sink.keep(marker)
            self._leave()
            return pos + len(marker)
        if marker in compiled.closers:
            sink.note("rescue.duplicate_closer", marker)
        else:
            sink.note("rescue.missing_closer", self._name)
        sink.keep(marker)
        return pos + len(marker)

    def _between(self, text: str, pos: int) -> int:
        """Something else than a call inside a section."""
        sink = self._sink
        if not self._table.noise:
            if sink.on_trial:
                self._refuse()
            else:
                if self._compiled.section_closers:
                    sink.note("rescue.missing_closer", self._name)
                self._leave()
            return pos
        start, _ = self._compiled.sections.find(text, pos, self._machine.closing)
        if start > pos:
            if not self._noisy:
                sink.accept()
                sink.note("section.noise")
                self._noisy = True
            sink.keep(text[pos:start])
        return start

    def _header(self, text: str, pos: int) -> int:
        sink, compiled, table = self._sink, self._compiled, self._table
        if table.lists is not None:
            start = blanks(text, pos)
            if start == len(text) and not self._machine.closing:
                return pos
            if text[start : start + 1] in ("[", "{"):
                return self._hand_over(text, pos)
        start, stop = compiled.header.find(text, pos, self._machine.closing)
        hopeless = compiled.hopeless.match(text, pos, start) if compiled.hopeless else None
        if hopeless is not None or start - pos > HEADER_LIMIT:
            self._unreadable(hopeless.group() if hopeless is not None else text[pos : pos + HEADER_LIMIT])
            return pos
        if stop < 0:
            return pos
        marker = text[start:stop]
        header = text[pos:start]
        found = compiled.pattern.fullmatch(" ".join(header.split()))
        if found is None or not found.group("name"):
            self._unreadable(header)
            return pos
        groups = found.groupdict()
        self._name = groups["name"]
        self._id = groups.get("id") or ""
        sink.keep(header)
        self._json = JsonText()
        self._args = []
        self._held = table.infer and not self._known()
        if marker == "{":
            if not self._held:
                self._machine.open_call(self._name, self._id)
            self._go(On.ARGUMENTS)
        else:
            rest = (groups.get("rest") or "").strip()
            self._machine.open_call(self._name, self._id)
            sink.argue(rest or "{}", "")
            self._held = False
            self._go(On.NO_ARGUMENTS)
        return start

    def _unreadable(self, header: str) -> None:
        """A header that names nothing: prose, unless its markers prove that a call was meant."""
        table, sink = self._table, self._sink
        proven = any(separator in header for separator in table.separators)
        if sink.on_trial and not proven and not (self._wrapped and table.noise):
            self._refuse()
            return
        sink.accept()
        sink.note("call.unnamed")
        self._go(On.UNREADABLE)

    def _drop(self, text: str, pos: int) -> int:
        start, stop = self._compiled.ends.find(text, pos, self._machine.closing)
        self._sink.keep(text[pos:start])
        if stop < 0:
            return start
        marker = text[start:stop]
        self._go(On.CALL_END)
        if marker in self._compiled.closers:
            self._sink.keep(marker)
            if not self._table.sections:
                self._leave()
            return stop
        return start

    def _hand_over(self, text: str, pos: int) -> int:
        """A JSON list or object is where a name may: its own codec reads on."""
        table = self._table.lists
        if table is None:
            return pos
        codec = self._list = self._list or table.codec(self._machine)
        self._hand(codec)
        codec.enter(Sign(next(iter(opener for opener, _ in table.wrappers))))
        return pos

    def _read_json(self, text: str, pos: int) -> int:
        reader, sink = self._json, self._sink
        stop = reader.feed(text, pos)
        if self._held:
            self._args.append(reader.take())
            sink.keep(text[pos:stop])
        else:
            sink.argue(reader.take(), text[pos:stop])
        if reader.done or reader.stuck:
            if self._held:
                self._infer()
            if reader.rewritten:
                sink.note(reader.rewritten, self._name)
            self._go(On.OBJECT_END)
        return stop

    def _known(self) -> bool:
        """Whether the header says which tool is meant; a header with parts left out is completed."""
        tools = self._machine.tools
        if self._name in tools or not tools:
            return True
        spelled = _COUNTER.sub("", self._name.removeprefix("functions").lstrip("._"))
        if spelled in tools:
            self._name = spelled
            self._sink.note("rescue.header", self._id)
            return True
        return _FOREIGN_ID.fullmatch(self._name) is None

    def _infer(self) -> None:
        """Name the call after the only offered tool its arguments fit."""
        arguments = "".join(self._args)
        value = decoded(arguments)
        fitting = [tool.name for tool in self._machine.tools.values() if fits(value, tool.schema)]
        if len(fitting) == 1:
            self._name = fitting[0]
        self._machine.open_call(self._name, self._id)
        if len(fitting) == 1:
            self._sink.note("call.id_inferred", self._name)
        self._sink.argue(arguments, "")
        self._held = False

    def _after(self, text: str, pos: int) -> int:
        """After the arguments: a closer belongs to the call, anything else to what follows."""
        sink, compiled = self._sink, self._compiled
        pos = self._blank(text, pos)
        if pos == len(text):
            return pos
        marker = compiled.after.at(text, pos, self._machine.closing)
        if marker is WAIT:
            return pos
        if marker == "```":
            sink.keep(marker)
            return pos + len(marker)
        if marker is not None and marker in compiled.closers:
            sink.keep(marker)
            self._close()
            return pos + len(marker)
        if compiled.closers and marker is None:
            start, _ = compiled.after.find(text, pos, self._machine.closing)
            sink.keep(text[pos:start])
            if start > pos and not self._noisy:
                sink.note("call.noise", self._name)
                self._noisy = True
            return start
        if compiled.closers:
            sink.note("rescue.missing_closer", self._name)
        self._close()
        return pos

    def _close(self) -> None:
        self._sink.close_call()
        self._noisy = False
        if self._table.sections:
            self._go(On.CALL_END)
            self._wrapped = True
        else:
            self._leave()


STEPS: Final[dict[State, Callable[[_NamedCodec, str, int], int]]] = {
    State.SECTION: _NamedCodec._section,
    State.HEADER: _NamedCodec._header,
    State.JSON: _NamedCodec._read_json,
    State.AFTER: _NamedCodec._after,
    State.DROP: _NamedCodec._drop,
}
