"""Reads what is not a call: text and thoughts, their markers, and the places where a call may begin.

Promise: each marker does in each place what `TRANSITIONS` says, and is ordinary text where it has no entry. A call
inside an open thought counts only if the thought does not go on after it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import auto
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from turnwire.parsers.after_marks import Ending, Opening
from turnwire.parsers.dialect import Codec, Dialect, Sign, Start
from turnwire.parsers.scanner import Scanner, prose_pattern
from turnwire.parsers.sink import BLANKS
from turnwire.parsers.symbols import Symbol
from turnwire.turns import BlockKind

if TYPE_CHECKING:
    from turnwire.parsers.machine import Machine

__all__ = ["TRANSITIONS", "Mark", "Place", "Prose"]


class Place(Symbol):
    """Where the machine is while no codec is reading."""

    TEXT = auto()
    REASONING = auto()


class Mark(Symbol):
    """What a marker in prose means."""

    THINK = auto()
    THOUGHT = auto()  # a reasoning closer
    CALL = auto()
    WRAPPER = auto()
    BREAK = auto()
    CLOSER = auto()  # what ends calls, outside of calls
    FENCE = auto()
    END = auto()


KIND: Final[dict[Place, BlockKind]] = {Place.TEXT: "text", Place.REASONING: "reasoning"}


class _Compiled:
    """What a dialect compiles to, once: a scanner and a meaning for each marker, per place."""

    def __init__(self, dialect: Dialect) -> None:
        self.scanners: dict[Place, Scanner] = {}
        self.meanings: dict[Place, dict[str, Mark]] = {}
        self.plain: dict[Place, str] = {}
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
            Mark.WRAPPER: dialect.wrappers,  # after closers: a wrapper of the answer may end a thought as well
            Mark.CALL: tuple(self.signs),
        }
        for place, moves in TRANSITIONS.items():
            meanings = {text: mark for mark, texts in table.items() if mark in moves for text in texts if text}
            if place is Place.REASONING and reasoning is not None and reasoning.calls == "ignore":
                meanings = {text: mark for text, mark in meanings.items() if mark is not Mark.CALL}
            self.meanings[place] = meanings
            self.scanners[place] = Scanner(meanings)
            self.plain[place] = prose_pattern(meanings)


@lru_cache(maxsize=256)
def _compiled(dialect: Dialect) -> _Compiled:
    return _Compiled(dialect)


class Prose:
    """The reader of text and thoughts of one turn."""

    def __init__(self, machine: Machine, dialect: Dialect, start: Start) -> None:
        self._machine = machine
        self._sink = machine.sink
        self._dialect = dialect
        self._compiled = _compiled(dialect)
        self._codecs: dict[int, Codec] = {}
        self._place = Place.TEXT
        self._sign: Sign | None = None
        self._labels = False
        self._thought = False
        self._fenced = False
        self._spoken = 0  # reasoning openers that the text mentions, and has not yet closed
        reasoning = dialect.reasoning
        self._once = reasoning is not None and reasoning.once
        if dialect.router is None and reasoning is not None:
            self._labels = bool(reasoning.labels)
            if start.state == "reasoning":
                self._place = Place.REASONING
                self._thought = True

    # ------------------------------------------------------------------------------------------ for the machine

    @property
    def kind(self) -> BlockKind:
        """What text is here."""
        return KIND[self._place]

    @property
    def thinking(self) -> bool:
        """Whether a call that begins here begins inside a thought that it ends."""
        reasoning = self._dialect.reasoning
        return self._place is Place.REASONING and reasoning is not None and reasoning.calls == "end"

    @property
    def sign(self) -> Sign | None:
        """The sign by which the last codec was entered."""
        return self._sign

    @property
    def believed(self) -> bool:
        """Whether the call now on trial may name any tool; if not (it is a rescue, or inside a code fence), only an
        offered one counts."""
        return not self._fenced and (self._sign is None or not self._sign.rescue or self._sign.any_tool)

    def called(self) -> None:
        """A call was opened here."""
        self._fenced = False

    def resume(self) -> None:
        """The calls are over: what follows is text, or more of the thought where calls only pause it."""
        reasoning = self._dialect.reasoning
        pauses = reasoning is not None and reasoning.calls == "pause"
        if self._place is Place.REASONING and not pauses:
            self._place = Place.TEXT

    def mentioned(self) -> None:
        """The reasoning opener on trial is part of a sentence."""
        self._spoken += 1
        self._machine.refuse()

    def opened(self) -> None:
        """The reasoning opener on trial begins a thought."""
        self._machine.hand(self)
        self._sink.accept()
        self._think("")

    def settle(self) -> None:
        """The output is over: a call inside a thought counts if the model itself ended with it."""
        if self._sink.held and self._machine.cut:
            self._go_on()

    def refuse(self) -> None:
        """The text on trial is prose. After calls inside a thought it shows that the thought goes on."""
        sink = self._sink
        if sink.called and sink.trial_shows:
            self._go_on()
            return
        if not sink.called:
            sink.release()
        sink.reject(self.kind)

    # ------------------------------------------------------------------------------------------- reader interface

    def plain(self) -> str | None:
        """Text in which no marker begins passes, where a block of its kind is open."""
        if self._labels or self._sink.kind is None or self._sink.kind != self.kind:
            return None
        return self._compiled.plain[self._place]

    def finish(self) -> None:
        """The end of the output: nothing is left to read."""

    def run(self, text: str, pos: int) -> int:
        """Consume text, marker by marker, until more is needed or a codec reads on."""
        sink, compiled, machine = self._sink, self._compiled, self._machine
        while True:
            if self._labels:
                pos = self._skip_label(text, pos)
                if self._labels:
                    return pos
            place = self._place
            start, stop = compiled.scanners[place].find(text, pos, machine.closing)
            if start > pos:
                if sink.held and text[pos:start].strip(BLANKS):
                    self._go_on()
                    continue
                sink.say(KIND[place], text[pos:start])
            if stop < 0:
                return start
            marker = text[start:stop]
            TRANSITIONS[place][compiled.meanings[place][marker]](self, marker)
            pos = stop
            if machine.reader is not self:
                return pos

    # ------------------------------------------------------------------------------------------------- thoughts

    def _go_on(self) -> None:
        """The thought goes on after calls it quoted: they were part of it."""
        raw = self._sink.take_back()
        self._place = Place.REASONING
        self._sink.say("reasoning", raw)

    def _skip_label(self, text: str, pos: int) -> int:
        """After a reasoning opener, or at the start of the output: swallow a label of the format, if one is there.

        A label that does not end its line is one only where the thought ends with it."""
        reasoning, closing = self._dialect.reasoning, self._machine.closing
        labels = reasoning.labels if reasoning is not None else ()
        closers = reasoning.close if reasoning is not None else ()
        rest = text[pos : pos + 64]
        inside = self._place is Place.REASONING
        for label in labels:
            if rest.startswith(label):
                after = rest[len(label) :]
                ends = after.startswith(closers) or (closing and not after)
                if label[-1] == "\n" or (ends and inside):
                    if not inside:
                        self._sink.note("rescue.header", label.strip())
                        self._place = Place.REASONING
                        self._thought = True
                    self._sink.keep(label)
                    self._labels = False
                    return pos + len(label)
                if not closing and inside and any(closer.startswith(after) for closer in closers):
                    return pos
        if not closing and any(label.startswith(rest) for label in labels):
            return pos
        self._labels = False
        return pos

    def _open_thought(self, marker: str) -> None:
        sink = self._sink
        if self._once and (self._thought or sink.index >= 0):
            sink.say("text", marker)
            return
        if sink.quoted():
            self._speak_of(marker)
        elif sink.mid_sentence():
            sink.begin_trial(marker)
            self._machine.hand(Opening(self, self._machine))
        else:
            self._think(marker)

    def _speak_of(self, marker: str) -> None:
        """The text mentions thoughts; it does not begin one."""
        self._spoken += 1
        self._sink.say("text", marker)

    def _think(self, marker: str) -> None:
        sink = self._sink
        sink.release()
        sink.close_prose()
        sink.keep(marker)
        self._place = Place.REASONING
        self._fenced = False
        self._thought = True
        self._labels = bool(self._dialect.reasoning and self._dialect.reasoning.labels)

    def _repeated_opener(self, marker: str) -> None:
        if self._sink.kind is None:
            self._sink.mark(marker)
            self._labels = bool(self._dialect.reasoning and self._dialect.reasoning.labels)
        else:
            self._sink.say("reasoning", marker)

    def _close_thought(self, marker: str) -> None:
        if self._sink.backticked():
            self._sink.say("reasoning", marker)
            return
        self._sink.close_prose(marker)
        self._place = Place.TEXT
        self._fenced = False

    def _break_thought(self, marker: str) -> None:
        reasoning = self._dialect.reasoning
        if reasoning is not None and reasoning.mentions and self._sink.mid_sentence():
            self._sink.say("reasoning", marker)
            return
        self._sink.close_prose()
        self._place = Place.TEXT
        self._sink.say("text", marker)

    def _stray_closer(self, marker: str) -> None:
        sink = self._sink
        if sink.held:
            self._go_on()
            self._close_thought(marker)
            return
        if self._once or sink.backticked() or self._spoken:
            self._spoken = max(self._spoken - 1, 0)
            sink.say("text", marker)
            return
        sink.note("reasoning.stray_closer", marker)
        sink.mark(marker)

    # ----------------------------------------------------------------------------------------- calls and the end

    def _repeated_closer(self, marker: str) -> None:
        if self._sink.kind is None and self._sink.after_call:
            self._sink.note("rescue.duplicate_closer", marker)
            self._sink.mark(marker)
        else:
            self._say(marker)

    def _fence(self, marker: str) -> None:
        self._fenced = not self._fenced
        self._say(marker)

    def _say(self, marker: str) -> None:
        """A marker that is ordinary text."""
        if self._sink.held:
            self._go_on()
        self._sink.say(self.kind, marker)

    def _skip_marker(self, marker: str) -> None:
        reasoning = self._dialect.reasoning
        if self._sink.held and reasoning is not None and marker in reasoning.close:
            self._go_on()
            self._close_thought(marker)
            return
        self._sink.release()
        self._sink.mark(marker)

    def _try_call(self, marker: str) -> None:
        number, sign = self._compiled.signs[marker]
        if not self._fits(sign):
            self._say(marker)
            return
        codec = self._codecs.get(number)
        if codec is None:
            codec = self._codecs[number] = self._dialect.calls[number].codec(self._machine)
        self._sign = sign
        if self.thinking:
            self._sink.hold()
        self._sink.begin_trial(marker)
        self._machine.hand(codec)
        codec.enter(sign)

    def _fits(self, sign: Sign) -> bool:
        """Whether a sign is where it may be."""
        sink, reasoning = self._sink, self._dialect.reasoning
        thinking = self._place is Place.REASONING
        if sink.quoted() or (self._fenced and (sign.rescue or thinking)):
            return False
        if thinking and reasoning is not None and reasoning.mentions and sink.mid_sentence():
            return False
        if sign.where == "anywhere":
            return True
        if sign.where == "start":
            return sink.kind is None
        return sink.at_line_start()

    def _try_end(self, marker: str) -> None:
        self._sink.begin_trial(marker)
        self._machine.hand(Ending(self._machine))


# What each marker does in each place. A marker that has no entry is ordinary text there.
TRANSITIONS: Final[dict[Place, dict[Mark, Callable[[Prose, str], None]]]] = {
    Place.TEXT: {
        Mark.THINK: Prose._open_thought,
        Mark.THOUGHT: Prose._stray_closer,
        Mark.CALL: Prose._try_call,
        Mark.WRAPPER: Prose._skip_marker,
        Mark.FENCE: Prose._fence,
        Mark.END: Prose._try_end,
        Mark.CLOSER: Prose._repeated_closer,
    },
    Place.REASONING: {
        Mark.THINK: Prose._repeated_opener,
        Mark.THOUGHT: Prose._close_thought,
        Mark.CALL: Prose._try_call,
        Mark.BREAK: Prose._break_thought,
        Mark.FENCE: Prose._fence,
        Mark.END: Prose._try_end,
    },
}
