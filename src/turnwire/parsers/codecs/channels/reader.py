"""Reads messages whose header says what their body is: a thought, text, or a call.

Promise: a header that is none stays in the body it is in; a call's arguments stream as they come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from turnwire.parsers.codecs.channels.bare import BareChannels
from turnwire.parsers.codecs.channels.json_body import JsonBody
from turnwire.parsers.codecs.channels.states import NEXT, Header, On, Part, State, plan_of
from turnwire.parsers.codecs.steps import Steps
from turnwire.parsers.dialect import Codec, Sign, Start
from turnwire.parsers.scanner import WAIT, blanks
from turnwire.turns import BlockKind

if TYPE_CHECKING:
    from turnwire.parsers.codecs.channels.table import Channels
    from turnwire.parsers.machine import Machine

__all__ = ["STEPS", "ChannelsCodec"]

HEADER_LIMIT: Final = 512
"""No header is longer than this: one that has not ended by then is broken."""


class ChannelsCodec(Steps[State, On]):
    """Reads a whole turn of routed messages."""

    def __init__(self, table: Channels, machine: Machine) -> None:
        super().__init__(STEPS, NEXT, State.LEAD)
        self._table = table
        self._plan = plan_of(table)
        self._machine = machine
        self._sink = machine.sink
        self._json = JsonBody(machine, table.closes, self._plan.next, table.closed)
        self._inner: Codec | None = None
        self._kind: BlockKind = "text"
        self._back = State.LEAD
        self._header: list[str] = []
        self._length = 0
        self._implicit = False
        self._first = True
        self._name = ""
        self._index = -1
        self._expected = True

    # ------------------------------------------------------------------------------------------ codec interface

    def begin(self, start: Start) -> None:
        """The output begins between messages, inside a thought, or inside the header that the prompt began."""
        self._expected = start.state == "header"
        if start.state == "reasoning" and self._table.stages.thoughts:
            self._kind = "reasoning"
            self._go(On.TEXT)
            return
        at, marker = max(((start.header.rfind(mark), mark) for mark in self._table.bodies), default=(-1, ""))
        if at >= 0:
            self._sink.begin_trial("")
            self._open_header(start.header[:at])
            self._route(marker)
        elif any(mark in start.header for mark in self._table.inner):
            self._sink.begin_trial("")
            self._open_header(start.header)

    def enter(self, sign: Sign) -> None:
        """A router is in charge from the beginning on: no sign leads to it."""

    def run(self, text: str, pos: int) -> int:
        """Consume text, once the codec of a call's body has handed back."""
        if self._state is State.INNER:
            self._inner_done()
        return super().run(text, pos)

    def plain(self) -> str | None:
        """In a body, text without the beginning of a marker passes."""
        if self._state is State.BODY:
            return self._plan.plain[self._kind] if self._sink.kind == self._kind else None
        if self._state is State.JSON:
            return self._json.plain()
        return None

    def finish(self) -> None:
        """The end of the output. A header without a body is structure, unless it only looked like one."""
        if self._state is State.JSON:
            self._json.finish()
        elif self._state is State.INNER:
            self._inner_done()
        elif self._state is State.HEADER:
            route = self._table.rule(Header("".join(self._header), "", self._machine.tools, self._back is State.BODY))
            if self._implicit or route is None:
                self._sink.reject(self._kind if self._back is State.BODY else "text")
            elif route.kind in ("call", "drop"):
                self._sink.note("call.truncated")
        elif self._state in (State.CALL, State.DROP) and self._sink.on_trial:
            self._sink.reject("text")
        elif self._state is State.CALL:
            self._sink.note("call.truncated", self._name)

    # ---------------------------------------------------------------------------------------------------- steps

    def _lead(self, text: str, pos: int) -> int:
        sink = self._sink
        stop = blanks(text, pos)
        if stop > pos:
            sink.say("text", text[pos:stop])
        if stop == len(text):
            return stop
        pos = stop
        marker = self._plan.lead.at(text, pos, self._machine.closing)
        if marker is WAIT:
            return pos
        part = None if marker is None else self._plan.parts[marker]
        if marker is None or part is Part.HINT:
            if part is Part.HINT or ("" in self._table.hints.words and self._first):
                sink.begin_trial("")
                self._implicit = True
                self._back = State.LEAD
                self._open_header("")
            elif self._first and self._table.bare is not None:
                return self._try_bare(self._table.bare, text, pos)
            else:
                self._outside()
            return pos
        self._first = False
        if part is Part.CLOSE:
            sink.close_prose(marker)
        else:
            self._message(marker, State.LEAD)
        return pos + len(marker)

    def _try_bare(self, bare: BareChannels, text: str, pos: int) -> int:
        """The output may begin with a channel whose special tokens were left out."""
        begins = bare.begins(text, pos, self._machine.closing)
        if begins:
            self._sink.note("rescue.header", "special tokens are missing")
            self._machine.hand(bare.codec(self._machine))
            self._go(On.BARE)
        elif begins is False:
            self._outside()
        return pos

    def _outside(self) -> None:
        """Text that belongs to no message."""
        if self._expected:
            self._sink.note("rescue.header")
        self._first = False
        self._kind = "text"
        self._go(On.TEXT)

    def _message(self, marker: str, back: State) -> None:
        """A marker begins a message."""
        self._sink.begin_trial(marker)
        self._implicit = False
        self._expected = True
        self._back = back
        part = self._plan.parts[marker]
        self._open_header(marker if part is Part.INNER else "")
        if part is Part.BODY:
            self._route(marker)

    def _open_header(self, text: str) -> None:
        self._header = [text] if text else []
        self._length = len(text)
        self._go(On.HEADER)

    def _read_header(self, text: str, pos: int) -> int:
        sink, plan = self._sink, self._plan
        start, stop = plan.header.find(text, pos, self._machine.closing)
        if start > pos:
            sink.keep(text[pos:start])
            self._header.append(text[pos:start])
            self._length += start - pos
            if self._implicit and plan.hopeless.match("".join(self._header)):
                self._reject()
                return start
            if self._length > HEADER_LIMIT:
                self._broken()
                return start
        if stop < 0:
            return start
        marker = text[start:stop]
        part = plan.parts[marker]
        if part is Part.OPEN or part is Part.CLOSE:
            self._broken()
            return start
        sink.keep(marker)
        if part is Part.BODY:
            self._route(marker)
        else:
            self._implicit = False
            self._header.append(marker)
            self._length += len(marker)
        return stop

    def _reject(self) -> None:
        """It was not a header: the text on trial belongs to the body it is in."""
        if self._back is State.BODY:
            self._sink.reject(self._kind)
            self._go(On.TEXT)
        else:
            self._sink.reject("text")
            self._outside()
        self._implicit = False

    def _broken(self) -> None:
        """A header that does not end: what is structure in it says the route, the rest is the body."""
        if self._implicit:
            self._reject()
            return
        sink = self._sink
        header = "".join(self._header)
        found = self._plan.lead_in.match(header)
        lead = header[: found.end()] if found is not None else ""
        route = self._table.rule(Header(lead, "", self._machine.tools, self._back is State.BODY))
        if route is None or (not lead and self._back is State.BODY):
            self._reject()
            return
        rest = header[len(lead) :]
        sink.shorten_trial(lead, self._table.opens)
        sink.accept()
        if rest.strip() or route.kind == "call":
            sink.note("rescue.header", lead.strip())
        self._kind = "reasoning" if route.kind == "reasoning" and self._table.stages.thoughts else "text"
        self._go(On.TEXT)
        if rest:
            sink.say(self._kind, rest)

    def _route(self, marker: str) -> None:
        """The header is complete and its body begins."""
        sink, table = self._sink, self._table
        header = Header("".join(self._header), marker, self._machine.tools, self._back is State.BODY)
        route = table.rule(header)
        if route is None:
            self._reject()
            return
        self._implicit = False
        self._expected = True
        self._first = False
        if route.kind in ("call", "drop") and not table.stages.tools:
            self._quote()
            return
        if route.unsure:
            self._name = route.name
            self._go(On.CALL)
            return
        sink.accept()
        if route.broken:
            sink.note("rescue.header", header.text.strip())
        if route.kind == "call":
            self._name = route.name
            self._go(On.CALL)
            if marker in self._plan.signs:
                self._enter(marker)
            elif table.calls is None:
                self._begin_json()
        elif route.kind == "drop":
            sink.begin_trial("")
            self._name = header.text.strip()
            self._go(On.NOBODY)
        else:
            self._kind = "reasoning" if route.kind == "reasoning" and table.stages.thoughts else "text"
            self._go(On.TEXT)

    def _quote(self) -> None:
        """A call that is to stay in the text, header and all."""
        self._sink.quote_trial()
        self._go(On.LEFT)

    def _enter(self, marker: str) -> None:
        """The body is written in the table's own call syntax."""
        if self._table.calls is None:
            return
        if self._inner is None:
            self._inner = self._table.calls.codec(self._machine)
        self._index = self._sink.index
        self._go(On.SIGN)
        self._machine.hand(self._inner)
        self._inner.enter(self._plan.signs[marker])

    def _begin_json(self) -> None:
        self._json.begin(self._name)
        self._go(On.ARGUMENTS)

    def _body(self, text: str, pos: int) -> int:
        sink, plan = self._sink, self._plan
        start, stop = plan.body[self._kind].find(text, pos, self._machine.closing)
        if start > pos:
            sink.say(self._kind, text[pos:start])
        if stop < 0:
            return start
        marker = text[start:stop]
        part = plan.parts[marker]
        if sink.ticked():
            sink.say(self._kind, marker)
        elif part is Part.CLOSE:
            sink.close_prose(marker)
            self._go(On.END)
        elif part is Part.BODY and (len(self._table.bodies) == 1 or self._same(marker)):
            sink.mark(marker)
        else:
            self._message(marker, State.BODY)
        return stop

    def _same(self, marker: str) -> bool:
        """Whether a body marker inside a body means what is being read already."""
        route = self._table.rule(Header("", marker, self._machine.tools, True))
        return route is None or route.kind == self._kind

    def _call(self, text: str, pos: int) -> int:
        """At the beginning of a call's body: its sign, or the arguments alone."""
        sink = self._sink
        stop = blanks(text, pos)
        if stop > pos:
            sink.keep(text[pos:stop])
        if stop == len(text):
            return stop
        if sink.on_trial:
            if text[stop] == "{":
                self._begin_json()
            else:
                self._reject()
            return stop
        marker = self._plan.calls.at(text, stop, self._machine.closing)
        if marker is WAIT:
            return stop
        if marker is not None and marker in self._plan.signs:
            sink.keep(marker)
            self._enter(marker)
            return stop + len(marker)
        if self._table.raw or text[stop] == "{" or (marker is not None and self._name in self._machine.tools):
            self._begin_json()
        else:
            sink.note("rescue.header", self._name)
            self._kind = "text"
            self._go(On.TEXT)
        return stop

    def _inner_done(self) -> None:
        """The codec of a call's body has handed back."""
        if self._sink.index == self._index:
            self._sink.note("call.unnamed", self._name)
            self._go(On.NOBODY)
        else:
            self._go(On.END)

    def _read_json(self, text: str, pos: int) -> int:
        pos = self._json.run(text, pos)
        if self._json.done:
            self._go(On.END)
        return pos

    def _drop(self, text: str, pos: int) -> int:
        """What is left of a body after its calls, or a body that may be a call to nobody: its closer tells."""
        sink = self._sink
        start, stop = self._plan.solid.find(text, pos, self._machine.closing)
        sink.keep(text[pos:start])
        if stop < 0:
            return start
        if sink.on_trial and text[start:stop] in self._table.call_closes:
            sink.accept()
            sink.note("call.unnamed", self._name)
        sink.reject("text")
        self._go(On.END)
        return start

    def _verbatim(self, text: str, pos: int) -> int:
        start, stop = self._plan.closes.find(text, pos, self._machine.closing)
        if stop < 0:
            self._sink.say("text", text[pos:start])
            return start
        self._sink.say("text", text[pos:stop])
        self._go(On.END)
        return stop


STEPS: Final[dict[State, Callable[[ChannelsCodec, str, int], int]]] = {
    State.LEAD: ChannelsCodec._lead,
    State.HEADER: ChannelsCodec._read_header,
    State.BODY: ChannelsCodec._body,
    State.CALL: ChannelsCodec._call,
    State.JSON: ChannelsCodec._read_json,
    State.DROP: ChannelsCodec._drop,
    State.VERBATIM: ChannelsCodec._verbatim,
}
