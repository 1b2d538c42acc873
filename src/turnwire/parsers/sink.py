"""Turns what the machine recognises into events: blocks open once, close once, in order, and no character is lost."""

from __future__ import annotations

import msgspec

from turnwire.turns import BlockClosed, BlockDelta, BlockKind, BlockOpened, Event, Finished, FinishReason, Note
from turnwire.turns import ToolCallClosed as CallClosed

__all__ = ["BLANKS", "Sink"]

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


class Sink:
    """The account of one turn.

    Whitespace law: a block is not opened by whitespace alone. Line breaks before a block's first visible character,
    and all whitespace between its last one and the marker that ends it, belong to the format: they are kept in `raw`
    of the neighbouring event and are not part of the text. Whitespace that ends the whole turn stays in the text.

    Between a marker that may open a call and the proof that it does, text is on *trial*: it ends up either in the raw
    of the call or, by `reject`, in the prose it came from. Text moves on from there and is never read twice."""

    __slots__ = (
        "_draw", "_dtext", "after_call", "call_id", "calls", "index", "kind", "last", "name", "out", "parts",
        "pending", "space", "trial",
    )  # fmt: skip

    def __init__(self) -> None:
        self.out: list[Event] = []
        self.index = -1
        self.kind: BlockKind | None = None
        self.name = ""
        self.call_id = ""
        self.calls = 0
        self.after_call = False
        self.last = ""
        self.parts: list[str] = []
        self.pending: list[str] = []
        self.space: list[str] = []
        self.trial: list[str] | None = None
        self._dtext: list[str] = []
        self._draw: list[str] = []

    # -------------------------------------------------------------------------------------------------- events

    def _flush(self) -> None:
        if self._dtext:
            text, raw = "".join(self._dtext), "".join(self._draw)
            self.out.append(BlockDelta(self.index, text, text if raw == text else raw))
            self._dtext = []
            self._draw = []

    def _delta(self, text: str, raw: str) -> None:
        if self.pending:
            self._draw += self.pending
            self.pending.clear()
        self._dtext.append(text)
        self._draw.append(raw)

    def _take(self) -> str:
        raw = "".join(self.pending)
        self.pending.clear()
        return raw

    def drain(self) -> list[Event]:
        """The events since the last drain; deltas of one block are one delta."""
        self._flush()
        out = self.out
        self.out = []
        return out

    def note(self, code: str, message: str = "") -> None:
        """Something to report, at this place in the order of events."""
        self._flush()
        self.out.append(Note(code, message))

    def keep(self, raw: str) -> None:
        """Structure: belongs to the raw of whichever event comes next."""
        if self.trial is not None:
            self.trial.append(raw)
        else:
            self.pending.append(raw)

    # --------------------------------------------------------------------------------------------------- prose

    def preface(self, text: str) -> None:
        """Text that the model did not write, put before the output."""
        self.index += 1
        self.kind = "text"
        self.out.append(BlockOpened(self.index, "text"))
        self._delta(text, "")

    def say(self, kind: BlockKind, text: str) -> None:
        """Prose of the given kind, under the whitespace law."""
        if self.kind is None:
            body = text.lstrip(BLANKS)
            if not body:
                self.space.append(text)
                return
            lead = "".join(self.space) + text[: len(text) - len(body)]
            self.space.clear()
            cut = lead.rfind("\n") + 1
            self.pending.append(lead[:cut])
            self.index += 1
            self.kind = kind
            self.after_call = False
            self._flush()
            self.out.append(BlockOpened(self.index, kind, "", "", self._take()))
            text = lead[cut:] + body
        body = text.rstrip(BLANKS)
        if body:
            if self.space:
                self.space.append(body)
                said = "".join(self.space)
                self.space.clear()
            else:
                said = body
            self._delta(said, said)
            self.last = said
        if len(body) < len(text):
            self.space.append(text[len(body) :])

    def mid_sentence(self) -> bool:
        """Whether the prose so far ends in a word or a comma and a space, with the sentence still open."""
        if self.kind is None or not self.space or any("\n" in piece for piece in self.space):
            return False
        return self.last[-1:].isalnum() or self.last[-1:] in {",", "`", "(", "-"}

    def quoted(self) -> bool:
        """Whether the prose so far ends in a backtick, so that what comes next is quoted. (Three of them are always
        said in one piece.)"""
        return self.kind is not None and not self.space and self.last[-1:] == "`" and self.last[-3:] != "```"

    def mark(self, marker: str) -> None:
        """A marker that leaves the open block open (a content wrapper, a stray closer)."""
        self.pending += self.space
        self.space.clear()
        self.pending.append(marker)

    def close_prose(self, marker: str = "") -> None:
        """A marker ends the open text or reasoning block, if there is one."""
        self.mark(marker)
        if self.kind is not None:
            self._flush()
            self.out.append(BlockClosed(self.index, self.kind, "", self._take()))
            self.kind = None

    # --------------------------------------------------------------------------------------------------- trial

    def begin_trial(self, marker: str) -> None:
        """`marker` may open a call; what follows is kept back until that is known."""
        self.trial = ["".join(self.space), marker]
        self.space.clear()

    def reject(self, kind: BlockKind) -> None:
        """It was no call: everything on trial is prose of `kind`."""
        if self.trial is not None:
            text = "".join(self.trial)
            self.trial = None
            self.say(kind, text)

    def accept(self) -> None:
        """It is a call: the open prose block ends before it."""
        if self.trial is not None:
            trial = self.trial
            self.trial = None
            self.space.append(trial[0])
            self.close_prose()
            self.pending += trial[1:]

    # --------------------------------------------------------------------------------------------------- calls

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
        self.out.append(BlockOpened(self.index, "tool_call", name, call_id, self._take()))

    def argue(self, text: str, raw: str) -> None:
        """More argument text, and the model text it came from."""
        if text:
            self.parts.append(text)
            self._delta(text, raw)
        else:
            self.pending.append(raw)

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
        self.out.append(CallClosed(self.index, self.name, arguments, self.call_id, malformed, self._take()))
        self.kind = None
        self.after_call = True
        self.parts = []

    # ----------------------------------------------------------------------------------------------------- end

    def finish(self, reason: FinishReason, tail: list[str]) -> None:
        """The turn is over; what is still held goes where it belongs. `tail` is structure that ended it."""
        if self.kind is not None:
            said = "".join(self.space)
            self.space.clear()
            if said:
                self._delta(said, said)
            self.close_prose()
        self.pending += self.space
        self.space.clear()
        self.pending += tail
        self._flush()
        if reason == "stop" and self.calls:
            reason = "tool_calls"
        self.out.append(Finished(reason, None, self._take()))
