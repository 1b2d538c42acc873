"""Compares each prompt with what the session's engine already read: the prompt and output of the turn it continues.

Promise: the first divergent token is exact. Memory is bounded, least recently used sessions leave first. A comparison
is linear and runs at the speed of comparing bytes. May be shared by threads.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import Protocol

import msgspec

from turnwire.continuity.causes import Found, attribute, related
from turnwire.continuity.verdict import Verdict
from turnwire.message_facts import message_facts
from turnwire.shared_prefix import shared_prefix
from turnwire.token_ids import packed_ids
from turnwire.tool_sets import tool_set
from turnwire.turns import Conversation, Note

__all__ = [
    "BuiltPrompt",
    "PromptSection",
    "SessionTracker",
    "broken",
    "broken_section",
    "header_of",
    "session_key",
    "shared_prefix",
]

_LINES = 8
_TURNS = 63
_TOOL_OVERHEAD = 160


class PromptSection(Protocol):
    """A run of prompt tokens and where it came from."""

    @property
    def kind(self) -> str: ...

    @property
    def index(self) -> int: ...

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...


class BuiltPrompt(Protocol):
    """What continuity needs of a prompt."""

    @property
    def ids(self) -> Sequence[int]: ...

    @property
    def sections(self) -> Sequence[PromptSection]: ...

    @property
    def notes(self) -> Sequence[Note]: ...

    @property
    def stamp(self) -> str: ...


class _Turn(msgspec.Struct, frozen=True, gc=False):
    """A turn that ended in a line: at token `end`, its generation header at `header`, after a conversation that held
    `before` assistant turns."""

    end: int
    header: int
    before: int
    thought: bool
    name: str


class _Line(msgspec.Struct, gc=False):
    """One thread of a session: all that the engine read and wrote in it, the turns that ended in there, oldest first,
    and the newest conversation with the template's clock at that time."""

    ids: array[int]
    turns: tuple[_Turn, ...]
    conversation: Conversation
    stamp: str
    size: int

    @property
    def last(self) -> _Turn:
        return self.turns[-1]


class _Match(msgspec.Struct, frozen=True, gc=False):
    """A turn to compare with, and how many tokens the new prompt shares with its line."""

    turn: _Turn
    line: _Line
    shared: int

    @property
    def held(self) -> bool:
        return self.shared >= self.turn.end


def session_key(tenant: str, conversation: Conversation) -> str:
    """What tells one thread of prompts from another, the same in every process. Without a session id it is the opening
    of the conversation."""
    context = conversation.context
    kind = context.turn_class if context.turn_class in ("title", "auxiliary", "background") else ""
    if context.session is not None:
        name = "/".join((context.session, context.agent or "", kind))
    else:
        name = f"opening:{message_facts(conversation.messages).opening}/{kind}"
    return f"{len(tenant)}:{tenant}:{name}"


class SessionTracker:
    """Remembers what the sessions' engines read last, up to `max_bytes` in all. A session may have several threads
    (subagents, retries, side questions, compactions); a prompt is compared with the turn that it continues, and where
    none of them is that one, with the thread it shares most with."""

    def __init__(self, *, max_bytes: int = 256 * 1024 * 1024) -> None:
        if max_bytes <= 0:
            raise ValueError("max_bytes must be positive")
        self._max_bytes = max_bytes
        self._sessions: OrderedDict[str, list[_Line]] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def compare(
        self, key: str, prompt: BuiltPrompt, conversation: Conversation, *, previous: str | None = None
    ) -> Verdict:
        """How the prompt continues the session, or the turn of it that `previous` names."""
        with self._lock:
            lines = tuple(self._sessions.get(key, ()))
            if lines:
                self._sessions.move_to_end(key)
        ids = packed_ids(prompt.ids)
        matches = [_Match(line.last, line, shared_prefix(line.ids, ids)) for line in reversed(lines)]
        if previous:
            named = [_Match(turn, m.line, m.shared) for m in matches for turn in m.line.turns if turn.name == previous]
            if named:
                return _judged(named[0], prompt, conversation)
        verdict = _compared(matches, prompt, conversation)
        return msgspec.structs.replace(verdict, found=False) if previous else verdict

    def remember(
        self,
        key: str,
        prompt: BuiltPrompt,
        conversation: Conversation,
        output_ids: Sequence[int] = (),
        *,
        thought: bool = False,
        turn: str = "",
        cut: bool = False,
    ) -> None:
        """Keep a finished turn: its prompt, what the model wrote, whether that held a thought, and its name. Of a turn
        that was `cut` only the prompt counts: nobody knows which part of the rest its client keeps."""
        ids = packed_ids(prompt.ids)[:]
        header = header_of(prompt)
        if cut:
            del ids[header:]
        else:
            ids.extend(output_ids)
        own = _Turn(len(ids), header, message_facts(conversation.messages).turns_before, thought, turn)
        size = 4 * len(ids) + _weight(conversation)
        if size > self._max_bytes:
            return
        with self._lock:
            lines = self._sessions.setdefault(key, [])
            self._sessions.move_to_end(key)
            found = [(line, shared_prefix(line.ids, ids)) for line in lines]
            earlier = max(([t for t in line.turns if t.end <= shared] for line, shared in found), key=len, default=[])
            for line, shared in found:
                if shared == len(line.ids):  # the new line tells all that this one told
                    lines.remove(line)
                    self._bytes -= line.size
            lines.append(_Line(ids, (*earlier[-_TURNS:], own), conversation, prompt.stamp, size))
            self._bytes += size
            while len(lines) > _LINES:
                self._bytes -= lines.pop(0).size
            while self._bytes > self._max_bytes:
                _, dropped = self._sessions.popitem(last=False)
                self._bytes -= sum(each.size for each in dropped)

    def forget(self, key: str) -> None:
        """Drop a session that is over."""
        with self._lock:
            self._bytes -= sum(line.size for line in self._sessions.pop(key, ()))

    def __len__(self) -> int:
        return len(self._sessions)


def _compared(matches: Sequence[_Match], prompt: BuiltPrompt, conversation: Conversation) -> Verdict:
    """The verdict by the turn that the conversation continues: the one with as many assistant turns before it as the
    conversation has now, less one."""
    if not matches:
        return Verdict(state="first")
    before = message_facts(conversation.messages).turns_before
    continued = [
        _Match(turn, match.line, match.shared)
        for match in matches
        for turn in match.line.turns
        if turn.before == before - 1
    ]
    whole = len(prompt.ids)
    held = [match for match in continued if match.held]
    held += [match for match in matches if match.turn.before >= before and match.shared in (whole, match.turn.end)]
    if held:
        return _judged(max(held, key=lambda match: (match.shared, match.turn.end)), prompt, conversation)
    nearest = max(matches, key=lambda match: match.shared)
    if nearest.turn.before < before - 1:
        # Turns in between were served elsewhere, and nobody here knows what their engine read.
        return Verdict(state="first")
    aligned = [match for match in continued if match.line is nearest.line]
    return _judged(aligned[0] if aligned else nearest, prompt, conversation)


def _judged(match: _Match, prompt: BuiltPrompt, conversation: Conversation) -> Verdict:
    turn, line = match.turn, match.line
    shared = min(match.shared, turn.end)
    if shared in (turn.end, len(prompt.ids)):
        return Verdict(state="held", shared=shared, expected=turn.end, turn=turn.name)
    if not related(line.conversation, conversation):
        return Verdict(state="first")
    section = broken_section(prompt, shared)
    found = attribute(
        _as_of(turn, line.conversation),
        conversation,
        section=section.kind if section else None,
        in_output=shared >= turn.header,
        thought=turn.thought,
        notes=prompt.notes,
        ticked=line.stamp != prompt.stamp,
    )
    return broken(section, found, shared=shared, expected=turn.end, turn=turn.name)


def _as_of(turn: _Turn, conversation: Conversation) -> Conversation:
    """The conversation as it was when `turn` was asked for: without what followed, and without how the turn began."""
    turns, role = 0, ""
    for place, message in enumerate(conversation.messages):
        if message.role == "assistant" and role != "assistant":
            if turns == turn.before:
                return msgspec.structs.replace(conversation, messages=conversation.messages[:place])
            turns += 1
        role = message.role
    return conversation


def header_of(prompt: BuiltPrompt) -> int:
    """Where the generation header of the turn that a prompt asks for begins; turns that were put in have their own."""
    headers = (section.start for section in reversed(prompt.sections) if section.kind == "generation")
    return next(headers, len(prompt.ids))


def broken_section(prompt: BuiltPrompt, shared: int) -> PromptSection | None:
    """The part of a prompt in which it no longer is what was expected."""
    return next((each for each in prompt.sections if each.start <= shared < each.end), None)


def broken(section: PromptSection | None, found: Found, *, shared: int, expected: int, turn: str) -> Verdict:
    """The verdict on a prompt that shares `shared` of `expected` tokens."""
    cause, detail = found
    return Verdict(
        state="broken",
        shared=shared,
        expected=expected,
        section=section.kind if section else None,
        index=section.index if section else None,
        cause=cause,
        detail=detail,
        turn=turn,
    )


def _weight(conversation: Conversation) -> int:
    """Roughly the bytes a conversation takes."""
    total = 2000 + message_facts(conversation.messages).size
    if conversation.tools:
        total += _TOOL_OVERHEAD * len(conversation.tools) + 4 * len(tool_set(conversation.tools).packed)
    return total
