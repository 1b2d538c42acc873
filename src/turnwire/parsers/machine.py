"""The one incremental machine: text in, ordered events out, whatever the dialect and however the text is cut."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import lru_cache
from typing import Any, Final

from turnwire.parsers.dialect import Codec, Dialect, Sign, Start
from turnwire.parsers.scanner import Scanner, blanks, prose_pattern
from turnwire.parsers.schema import ANY, Shape, shape_of
from turnwire.parsers.sink import Sink
from turnwire.turns import BlockDelta, BlockKind, Event, FinishReason, Tool

__all__ = ["Machine", "Parser"]


class Place(Enum):
    """Where the machine stands while no codec is reading."""

    TEXT = auto()
    REASONING = auto()


class Mark(Enum):
    """What a marker in prose means."""

    THINK = auto()
    THOUGHT = auto()  # a reasoning closer
    CALL = auto()
    WRAPPER = auto()
    BREAK = auto()
    CLOSER = auto()  # what ends calls, outside of calls
    FENCE = auto()
    END = auto()


# What each marker does in each place. A marker that has no entry is ordinary text there.
TRANSITIONS: Final[dict[Place, dict[Mark, str]]] = {
    Place.TEXT: {
        Mark.THINK: "_open_thought",
        Mark.THOUGHT: "_stray_closer",
        Mark.CALL: "_try_call",
        Mark.WRAPPER: "_skip_marker",
        Mark.FENCE: "_fence",
        Mark.END: "_try_end",
        Mark.CLOSER: "_repeated_closer",
    },
    Place.REASONING: {
        Mark.THINK: "_repeated_opener",
        Mark.THOUGHT: "_close_thought",
        Mark.CALL: "_try_call",
        Mark.BREAK: "_break_thought",
        Mark.FENCE: "_fence",
        Mark.END: "_try_end",
    },
}

KIND: Final[dict[Place, BlockKind]] = {Place.TEXT: "text", Place.REASONING: "reasoning"}


class _Plan:
    """What a dialect compiles to, once: a scanner and a meaning for each marker, per place."""

    def __init__(self, dialect: Dialect) -> None:
        self.scanners: dict[Place, Scanner] = {}
        self.meanings: dict[Place, dict[str, Mark]] = {}
        self.plain: dict[Place, Callable[[str], object]] = {}
        self.signs: dict[str, tuple[int, Sign]] = {}
        for number, syntax in enumerate(dialect.calls):
            for sign in syntax.signs:
                self.signs.setdefault(sign.text, (number, sign))
        reasoning = dialect.reasoning
        table: dict[Mark, tuple[str, ...]] = {
            Mark.CLOSER: tuple(closer for syntax in dialect.calls for closer in syntax.closers),
            Mark.FENCE: ("```",),
            Mark.END: dialect.ends,
            Mark.BREAK: dialect.breaks,
            Mark.THINK: reasoning.open if reasoning else (),
            Mark.THOUGHT: reasoning.close if reasoning else (),
            Mark.WRAPPER: dialect.wrappers,  # behind closers: a wrapper of the answer may end a thought as well
            Mark.CALL: tuple(self.signs),
        }
        for place, moves in TRANSITIONS.items():
            meanings = {text: mark for mark, texts in table.items() if mark in moves for text in texts if text}
            if place is Place.REASONING and reasoning is not None and reasoning.calls == "ignore":
                meanings = {text: mark for text, mark in meanings.items() if mark is not Mark.CALL}
            self.meanings[place] = meanings
            self.scanners[place] = Scanner(meanings)
            self.plain[place] = re.compile(prose_pattern(meanings)).search


@lru_cache(maxsize=256)
def _plan(dialect: Dialect) -> _Plan:
    return _Plan(dialect)


@lru_cache(maxsize=256)
def _pattern(pattern: str) -> Callable[[str], object]:
    return re.compile(pattern).search


class Machine:
    """The machine as a codec sees it: the sink, the tools, and the way back to prose. `closing`: no more text comes;
    `cut`: the output did not end by the model's own will."""

    def __init__(self, dialect: Dialect, tools: Sequence[Tool], start: Start) -> None:
        self.sink = Sink()
        self.dialect = dialect
        self.tools: dict[str, Tool] = {tool.name: tool for tool in tools}
        self.closing = False
        self.cut = False
        self._plan = _plan(dialect)
        self._place = Place.TEXT
        self._codecs: dict[int, Codec] = {}
        self._codec: Codec | None = None
        self._sign: Sign | None = None
        self._labels = False
        self._thought = False
        self._fenced = False
        self._once = dialect.reasoning is not None and dialect.reasoning.once
        self._shapes: dict[str, dict[str, Shape]] = {}
        self._read: Callable[[str, int], int] = self._prose
        self.run: Callable[[str, int], int] = self._read
        if dialect.prefix:
            self.sink.preface(dialect.prefix)
        if dialect.router is not None:
            router = dialect.router.codec(self)
            self._codec = router
            self.run = router.run
            router.begin(start)
        elif dialect.reasoning is not None:
            self._labels = bool(dialect.reasoning.labels)
            if start.state == "reasoning":
                self._place = Place.REASONING
                self._thought = True

    # ----------------------------------------------------------------------------------- what codecs may call

    def leave(self) -> None:
        """The calls are over; what follows is prose again."""
        self.sink.accept()
        self._codec = None
        pauses = self.dialect.reasoning is not None and self.dialect.reasoning.calls == "pause"
        if self._place is Place.REASONING and not pauses:
            self._place = Place.TEXT
        self.run = self._read

    def hand(self, codec: Codec) -> None:
        """Another codec reads on from here."""
        self._codec = codec
        self.run = codec.run

    def refuse(self) -> None:
        """It was no call: the text on trial is prose."""
        self._codec = None
        self.sink.reject(KIND[self._place])
        self.run = self._read

    def open_call(self, name: str, call_id: str = "") -> None:
        """A call is certain and named. Reports what is unusual about it."""
        sink = self.sink
        self._fenced = False
        reasoning = self.dialect.reasoning
        first = sink.trial is not None
        if first:
            inside = self._place is Place.REASONING
            sink.accept()
            if inside and reasoning is not None and reasoning.calls == "end":
                sink.note("rescue.call_in_reasoning", name)
            if self._sign is not None and self._sign.rescue:
                sink.note("rescue.missing_wrapper", name)
        sink.open_call(name, call_id)
        if name not in self.tools:
            sink.note("call.unknown_tool", name)

    @property
    def prose(self) -> BlockKind:
        """What text outside calls is, where the machine stands."""
        return KIND[self._place]

    @property
    def believed(self) -> bool:
        """Whether the call now on trial may name any tool; if not (it is a rescue, or stands in a code fence), only an
        offered one counts."""
        return not self._fenced and (self._sign is None or not self._sign.rescue or self._sign.any_tool)

    def properties(self, name: str) -> dict[str, Any]:
        """The schemas of a tool's arguments, by argument name."""
        tool = self.tools.get(name)
        properties = tool.schema.get("properties") if tool is not None else None
        return properties if isinstance(properties, dict) else {}

    def shape(self, name: str, argument: str) -> Shape:
        """What the schema of tool `name` says about one argument."""
        known = self._shapes.setdefault(name, {})
        shape = known.get(argument)
        if shape is None:
            properties = self.properties(name)
            tool = self.tools.get(name)
            shape = ANY
            if tool is not None:
                if argument in properties:
                    shape = shape_of(properties[argument], tool.schema)
                elif isinstance(tool.schema.get("additionalProperties"), dict):
                    shape = shape_of(tool.schema["additionalProperties"], tool.schema)
            known[argument] = shape
        return shape

    # -------------------------------------------------------------------------------------------------- prose

    def _prose(self, text: str, pos: int) -> int:
        sink = self.sink
        plan = self._plan
        while True:
            if self._labels:
                pos = self._skip_label(text, pos)
                if self._labels:
                    return pos
            place = self._place
            start, stop = plan.scanners[place].find(text, pos, self.closing)
            if start > pos:
                sink.say(KIND[place], text[pos:start])
            if stop < 0:
                return start
            marker = text[start:stop]
            getattr(self, TRANSITIONS[place][plan.meanings[place][marker]])(marker)
            pos = stop
            if self.run is not self._read:
                return pos

    def _skip_label(self, text: str, pos: int) -> int:
        """Behind a reasoning opener, or at the start of the output: swallow a label of the format, if one is there.

        A label that does not end its line is one only where the thought ends with it."""
        reasoning = self.dialect.reasoning
        labels = reasoning.labels if reasoning is not None else ()
        closers = reasoning.close if reasoning is not None else ()
        rest = text[pos : pos + 64]
        inside = self._place is Place.REASONING
        for label in labels:
            if rest.startswith(label):
                after = rest[len(label) :]
                ends = after.startswith(closers) or (self.closing and not after)
                if label[-1] == "\n" or (ends and inside):
                    if not inside:
                        self.sink.note("rescue.header", label.strip())
                        self._place = Place.REASONING
                        self._thought = True
                    self.sink.keep(label)
                    self._labels = False
                    return pos + len(label)
                if not self.closing and inside and any(closer.startswith(after) for closer in closers):
                    return pos
        if not self.closing and any(label.startswith(rest) for label in labels):
            return pos
        self._labels = False
        return pos

    def _open_thought(self, marker: str) -> None:
        if self.sink.quoted() or (self._once and (self._thought or self.sink.index >= 0)):
            self.sink.say("text", marker)
            return
        self.sink.close_prose()
        self.sink.keep(marker)
        self._place = Place.REASONING
        self._fenced = False
        self._thought = True
        self._labels = bool(self.dialect.reasoning and self.dialect.reasoning.labels)

    def _repeated_opener(self, marker: str) -> None:
        if self.sink.kind is None:
            self.sink.mark(marker)
            self._labels = bool(self.dialect.reasoning and self.dialect.reasoning.labels)
        else:
            self.sink.say("reasoning", marker)

    def _close_thought(self, marker: str) -> None:
        if self.sink.quoted():
            self.sink.say("reasoning", marker)
            return
        self.sink.close_prose(marker)
        self._place = Place.TEXT
        self._fenced = False

    def _break_thought(self, marker: str) -> None:
        reasoning = self.dialect.reasoning
        if reasoning is not None and reasoning.mentions and self.sink.mid_sentence():
            self.sink.say("reasoning", marker)
            return
        self.sink.close_prose()
        self._place = Place.TEXT
        self.sink.say("text", marker)

    def _stray_closer(self, marker: str) -> None:
        if self._once or self.sink.quoted():
            self.sink.say("text", marker)
            return
        self.sink.note("reasoning.stray_closer", marker)
        self.sink.mark(marker)

    def _repeated_closer(self, marker: str) -> None:
        if self.sink.kind is None and self.sink.after_call:
            self.sink.note("rescue.duplicate_closer", marker)
            self.sink.mark(marker)
        else:
            self.sink.say("text", marker)

    def _fence(self, marker: str) -> None:
        self._fenced = not self._fenced
        self.sink.say(self.prose, marker)

    def _skip_marker(self, marker: str) -> None:
        self.sink.mark(marker)

    def _try_call(self, marker: str) -> None:
        number, sign = self._plan.signs[marker]
        if not self._stands(sign):
            self.sink.say(KIND[self._place], marker)
            return
        codec = self._codecs.get(number)
        if codec is None:
            codec = self._codecs[number] = self.dialect.calls[number].codec(self)
        self._sign = sign
        self._codec = codec
        self.sink.begin_trial(marker)
        self.run = codec.run
        codec.enter(sign)

    def _stands(self, sign: Sign) -> bool:
        """Whether a sign is where it may be."""
        if self.sink.quoted() or (self._fenced and sign.rescue):
            return False
        reasoning = self.dialect.reasoning
        if self._place is Place.REASONING and reasoning is not None and reasoning.mentions and self.sink.mid_sentence():
            return False
        if sign.where == "anywhere":
            return True
        sink = self.sink
        if sign.where == "start":
            return sink.kind is None
        return sink.kind is None or any("\n" in piece for piece in sink.space)

    def _try_end(self, marker: str) -> None:
        self.sink.begin_trial(marker)
        self.run = self._ending

    def _ending(self, text: str, pos: int) -> int:
        """Behind an end-of-turn marker: if anything visible follows, it was text."""
        sink = self.sink
        stop = blanks(text, pos)
        sink.keep(text[pos:stop])
        if stop == len(text):
            return stop
        self.run = self._read
        sink.reject(KIND[self._place])
        return stop

    def _finish(self, reason: FinishReason) -> None:
        sink = self.sink
        if self._codec is not None:
            self._codec.finish()
            self._codec = None
        tail: list[str] = []
        if sink.trial is not None:
            sink.space.append(sink.trial[0])
            tail = sink.trial[1:]
            sink.trial = None
        sink.finish(reason, tail)


class Parser(Machine):
    """Parses one turn of model output.

    `feed` takes the next piece of text and answers with the events it settles; `finish` ends the turn with the
    engine's reason. For any text and any way of cutting it: the merged events are the same, the joined `raw` of all
    events is the text, each block opens once and closes once in order, and nothing is ever raised about the text."""

    def __init__(self, dialect: Dialect, tools: Sequence[Tool] = (), start: Start | None = None) -> None:
        super().__init__(dialect, tools, dialect.start if start is None else start)
        self._rest = ""
        self._quick: Callable[[str], object] | None = None

    def feed(self, text: str) -> list[Event]:
        """The events that `text` settles; deltas of one block come as one."""
        quick = self._quick
        if quick is not None and quick(text) is None and text:
            sink = self.sink
            if sink.kind == "tool_call":
                sink.parts.append(text)
            else:
                sink.last = text
            return [BlockDelta(sink.index, text, text)]
        if self._rest:
            text = self._rest + text
        self._rest = text[self._advance(text) :]
        self._quick = None if self._rest else self._plain()
        return self.sink.drain()

    def finish(self, reason: FinishReason = "stop") -> list[Event]:
        """The end of the output: everything held back is settled, and exactly one Finished comes last."""
        self.closing = True
        self.cut = reason not in ("stop", "tool_calls")
        self._quick = None
        text, self._rest = self._rest, ""
        stop = self._advance(text)
        if stop < len(text):
            self.sink.keep(text[stop:])
        self._finish(reason)
        return self.sink.drain()

    def _advance(self, text: str) -> int:
        pos, end = 0, len(text)
        while pos < end:
            run = self.run
            pos = run(text, pos)
            if self.run is run:
                break
        return pos

    def _plain(self) -> Callable[[str], object] | None:
        """What to look for to see that a piece of text needs no thought at all."""
        sink = self.sink
        if sink.pending or sink.space or sink.trial is not None or self._labels:
            return None
        if self._codec is not None:
            pattern = self._codec.plain()
            return None if pattern is None else _pattern(pattern)
        if sink.kind is not None and sink.kind == KIND.get(self._place):
            return self._plan.plain[self._place]
        return None
