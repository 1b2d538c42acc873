"""Turns what the machine recognises into events.

Promise: blocks open once, close once, in order; the `raw` of all events, joined, is the text; no event goes out before
it is certain.
"""

from __future__ import annotations

import msgspec

from turnwire.turns import BlockClosed, BlockDelta, BlockKind, BlockOpened, Event, Finished, FinishReason, Note
from turnwire.turns import ToolCallClosed as CallClosed

__all__ = ["BLANKS", "EventSink"]

_QUOTES = frozenset("\"'\u201c\u2018\u00ab")

BLANKS = " \t\r\n"
"""The only characters that count as format whitespace; anything else is the model's text."""

_validate = msgspec.json.Decoder(msgspec.Raw).decode


def is_json(text: str) -> bool:
    """Whether `text` is one JSON value (NaN and Infinity are not)."""
    try:
        _validate(text)
    except (ValueError, RecursionError):  # msgspec's decode error and a lone surrogate are both ValueErrors
        return False
    return True


class _Held:
    """What the account was when a hold began."""

    __slots__ = ("after_call", "at", "calls", "index", "kind", "last", "pending", "space")

    def __init__(
        self, at: int, index: int, kind: BlockKind | None, calls: int, after_call: bool, last: str, pending: list[str],
        space: list[str],
    ) -> None:  # fmt: skip
        self.at = at  # how many events came before it
        self.index = index
        self.kind = kind
        self.calls = calls
        self.after_call = after_call
        self.last = last
        self.pending = pending
        self.space = space


class EventSink:
    """The account of one turn.

    Whitespace law: a block is not opened by whitespace alone. Line breaks before a block's first visible character,
    and all whitespace between its last one and the marker that ends it, belong to the format: they are kept in `raw`
    of the neighbouring event and are not part of the text. Whitespace that ends the whole turn stays in the text.

    Between a marker that may open a call and the proof that it does, text is on *trial*: it ends up either in the raw
    of the call or, by `reject`, in the prose it came from. Text moves on from there and is never read twice.

    Calls inside a thought are on *hold* until it is known whether the thought goes on: their events are kept back, and
    are either released or taken back as the text they came from."""

    __slots__ = (
        "_draw", "_dtext", "_held", "_out", "_pending", "_space", "_trial", "after_call", "call_id", "calls", "index",
        "kind", "last", "name", "parts", "settled",
    )  # fmt: skip

    def __init__(self) -> None:
        self.index = -1
        self.kind: BlockKind | None = None
        self.name = ""
        self.call_id = ""
        self.calls = 0
        self.after_call = False
        self.settled = False  # all text so far is in events, so that more of the open block can go out as it is
        self.last = ""  # the prose that was said last
        self.parts: list[str] = []  # the argument text of the open call
        self._out: list[Event] = []
        self._pending: list[str] = []
        self._space: list[str] = []
        self._trial: list[str] | None = None
        self._held: _Held | None = None
        self._dtext: list[str] = []
        self._draw: list[str] = []

    # -------------------------------------------------------------------------------------------------- events

    def _flush(self) -> None:
        """Make an event of what was said since the last one, if anything was."""
        if self._dtext:
            text, raw = "".join(self._dtext), "".join(self._draw)
            self._out.append(BlockDelta(self.index, text, text if raw == text else raw))
            self._dtext = []
            self._draw = []

    def _delta(self, text: str, raw: str) -> None:
        if self._pending:
            self._draw += self._pending
            self._pending.clear()
        self._dtext.append(text)
        self._draw.append(raw)

    def _take(self) -> str:
        raw = "".join(self._pending)
        self._pending.clear()
        return raw

    def drain(self) -> list[Event]:
        """The events since the last drain; deltas of one block are one delta. Held events are not among them."""
        if self._dtext:
            self._flush()
        out = self._out
        if self._held is None:
            self.settled = not (self._pending or self._space or self._trial is not None)
            self._out = []
            return out
        self.settled = False
        told, self._out = out[: self._held.at], out[self._held.at :]
        self._held.at = 0
        return told

    def note(self, code: str, message: str = "") -> None:
        """Something to report, at this place in the order of events."""
        self._flush()
        self._out.append(Note(code, message))

    def keep(self, raw: str) -> None:
        """Structure: belongs to the raw of whichever event comes next."""
        if self._trial is not None:
            self._trial.append(raw)
        else:
            self._pending.append(raw)

    # --------------------------------------------------------------------------------------------------- prose

    def preface(self, text: str) -> None:
        """Text that the model did not write, put before the output."""
        self.index += 1
        self.kind = "text"
        self._out.append(BlockOpened(self.index, "text"))
        self._delta(text, "")

    def say(self, kind: BlockKind, text: str) -> None:
        """Prose of the given kind, under the whitespace law."""
        if self.kind is None:
            body = text.lstrip(BLANKS)
            if not body:
                self._space.append(text)
                return
            lead = "".join(self._space) + text[: len(text) - len(body)]
            self._space.clear()
            cut = lead.rfind("\n") + 1
            self._pending.append(lead[:cut])
            self.index += 1
            self.kind = kind
            self.after_call = False
            if self._dtext:
                self._flush()
            self._out.append(BlockOpened(self.index, kind, "", "", self._take()))
            text = lead[cut:] + body
        body = text.rstrip(BLANKS)
        if body:
            if self._space:
                self._space.append(body)
                said = "".join(self._space)
                self._space.clear()
            else:
                said = body
            self._delta(said, said)
            self.last = said
        if len(body) < len(text):
            self._space.append(text[len(body) :])

    def mid_sentence(self) -> bool:
        """Whether the prose so far ends in a word or a comma and a space, with the sentence still open."""
        if self.kind is None or not self._space or any("\n" in piece for piece in self._space):
            return False
        return self.last[-1:].isalnum() or self.last[-1:] in {",", "`", "(", "-"}

    def ticked(self) -> bool:
        """Whether the prose so far ends in a backtick."""
        return self.kind is not None and not self._space and self.last[-1:] == "`"

    def backticked(self) -> bool:
        """Whether the prose so far ends in a backtick that is not a fence, so that what comes next is quoted. Only for
        readers that know fences: they say the three of them in one piece."""
        return self.ticked() and self.last[-3:] != "```"

    def quoted(self) -> bool:
        """Whether the prose so far ends in a backtick or a quotation mark: what comes next is quoted."""
        return self.backticked() or (self.kind is not None and not self._space and self.last[-1:] in _QUOTES)

    def at_line_start(self) -> bool:
        """Whether what comes next begins a line, or the first text of a block."""
        return self.kind is None or any("\n" in piece for piece in self._space)

    def mark(self, marker: str) -> None:
        """A marker that leaves the open block open (a content wrapper, a stray closer)."""
        self._pending += self._space
        self._space.clear()
        self._pending.append(marker)

    def close_prose(self, marker: str = "") -> None:
        """A marker ends the open text or reasoning block, if there is one."""
        self.mark(marker)
        if self.kind is not None:
            if self._dtext:
                self._flush()
            self._out.append(BlockClosed(self.index, self.kind, "", self._take()))
            self.kind = None

    # --------------------------------------------------------------------------------------------------- trial

    @property
    def on_trial(self) -> bool:
        """Whether it is not yet known if the text since the last sign is a call."""
        return self._trial is not None

    @property
    def trial_begins_line(self) -> bool:
        """Whether the text on trial begins a line, or the first text of a block."""
        return self.kind is None or (self._trial is not None and "\n" in self._trial[0])

    @property
    def trial_shows(self) -> bool:
        """Whether there is anything visible in the text on trial."""
        return self._trial is not None and bool("".join(self._trial).strip(BLANKS))

    def shorten_trial(self, text: str, openers: tuple[str, ...]) -> None:
        """Of the text on trial only its opener, if it is one of these, and `text` are structure."""
        if self._trial is not None:
            opener = self._trial[1] if self._trial[1] in openers else ""
            self._trial = [self._trial[0], opener + text]

    def quote_trial(self) -> None:
        """The text on trial is a call that is to be left in the text, as it is written."""
        before, *marked = self._trial or [""]
        self._trial = None
        self._space.append(before)
        if self.kind != "text":
            self.close_prose()
        self.say("text", "".join(marked))

    def begin_trial(self, marker: str) -> None:
        """`marker` may open a call; what follows is kept back until that is known."""
        self._trial = ["".join(self._space), marker]
        self._space.clear()

    def reject(self, kind: BlockKind) -> None:
        """It was not a call: everything on trial is prose of `kind`."""
        if self._trial is not None:
            text = "".join(self._trial)
            self._trial = None
            self.say(kind, text)

    def accept(self) -> None:
        """It is a call: the open prose block ends before it."""
        if self._trial is not None:
            trial = self._trial
            self._trial = None
            self._space.append(trial[0])
            self.close_prose()
            self._pending += trial[1:]

    # ---------------------------------------------------------------------------------------------------- hold

    @property
    def held(self) -> bool:
        """Whether calls inside a thought are kept back."""
        return self._held is not None

    @property
    def called(self) -> bool:
        """Whether a call was opened since the hold began."""
        return self._held is not None and self.index > self._held.index

    def hold(self) -> None:
        """Keep back what comes from here on."""
        self._flush()
        self._held = _Held(
            len(self._out), self.index, self.kind, self.calls, self.after_call, self.last, self._pending[:],
            self._space[:],
        )  # fmt: skip

    def release(self) -> None:
        """What was kept back goes out."""
        self._held = None

    def take_back(self) -> str:
        """Undo everything since the hold began; the text it came from."""
        held = self._held
        if held is None:
            return ""
        raws = [getattr(event, "raw", "") for event in self._out[held.at :]]
        raws += self._draw + self._pending + self._space + (self._trial or [])
        del self._out[held.at :]
        self._dtext, self._draw = [], []
        self._trial = self._held = None
        self.index, self.kind, self.calls, self.after_call = held.index, held.kind, held.calls, held.after_call
        self.last, self._pending, self._space = held.last, held.pending, held.space
        return "".join(raws)[sum(map(len, held.pending + held.space)) :]

    # --------------------------------------------------------------------------------------------------- calls

    @property
    def argued(self) -> bool:
        """Whether the open call has any argument text yet."""
        return bool(self.parts)

    def argued_tail(self) -> str:
        """The last argument text of the open call, some 64 characters of it."""
        tail = ""
        for piece in reversed(self.parts):
            tail = piece[-64:] + tail
            if len(tail) >= 64:
                break
        return tail

    def open_call(self, name: str, call_id: str = "") -> None:
        """A call begins and its name is known."""
        self.accept()
        if self.kind is not None:
            self.close_prose()
        self._flush()
        self.index += 1
        self.kind = "tool_call"
        self.name = name
        self.call_id = call_id
        self.parts = []
        self._out.append(BlockOpened(self.index, "tool_call", name, call_id, self._take()))

    def argue(self, text: str, raw: str) -> None:
        """More argument text, and the model text it came from."""
        if text:
            self.parts.append(text)
            self._delta(text, raw)
        else:
            self._pending.append(raw)

    def close_call(self, truncated: bool = False) -> None:
        """The open call ends; its deltas joined are its arguments, and are JSON or marked malformed."""
        arguments = "".join(self.parts)
        malformed = truncated or arguments.lstrip(BLANKS)[:1] != "{" or not is_json(arguments)
        if truncated:
            self.note("call.truncated", self.name)
        elif malformed:
            self.note("call.malformed", self.name)
        else:
            self.calls += 1
        self._flush()
        self._out.append(CallClosed(self.index, self.name, arguments, self.call_id, malformed, self._take()))
        self.kind = None
        self.after_call = True
        self.parts = []

    # ----------------------------------------------------------------------------------------------------- end

    def finish(self, reason: FinishReason) -> None:
        """The turn is over; what is still kept back goes where it belongs. What is on trial is structure."""
        self.release()
        tail: list[str] = []
        if self._trial is not None:
            before, *tail = self._trial
            self._space.append(before)
            self._trial = None
        if self.kind is not None:
            said = "".join(self._space)
            self._space.clear()
            if said:
                self._delta(said, said)
            self.close_prose()
        self._pending += self._space
        self._space.clear()
        self._pending += tail
        if self._dtext:
            self._flush()
        if reason == "stop" and self.calls:
            reason = "tool_calls"
        self._out.append(Finished(reason, None, self._take()))
