"""Compares each prompt with what the session's engine already read: its previous prompt and output.

Promise: the first divergent token is exact. Memory is bounded, least recently used sessions leave first. A comparison
is linear and runs at the speed of comparing bytes. May be shared by threads.
"""

from __future__ import annotations

import sys
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import Protocol

import msgspec

from turnwire.continuity.causes import attribute, related
from turnwire.continuity.verdict import Verdict
from turnwire.turns import Conversation, Note

__all__ = ["BuiltPrompt", "PromptSection", "SessionTracker", "session_key", "shared_prefix"]

_CHUNK = 4096
_LINES = 4
_BLOCK_OVERHEAD = 160


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


class _Line(msgspec.Struct):
    """One thread of a session: what the engine read and wrote last. From `said` on it is the last turn: the header
    that it was written behind, and what the model wrote."""

    ids: array[int]
    said: int
    thought: bool
    conversation: Conversation
    size: int
    turn: str = ""


def session_key(tenant: str, conversation: Conversation) -> str:
    """What tells one thread of prompts from another. Without a session id it is the opening of the conversation."""
    context = conversation.context
    kind = context.turn_class if context.turn_class in ("title", "auxiliary", "background") else ""
    if context.session is not None:
        name = "/".join((context.session, context.agent or "", kind))
    else:
        opening = next((message for message in conversation.messages if message.role == "user"), None)
        name = f"opening:{hash(opening):x}/{kind}"
    return f"{len(tenant)}:{tenant}:{name}"


def shared_prefix(one: array[int], other: array[int]) -> int:
    """How many leading items the two arrays share."""
    size = min(len(one), len(other))
    place = 0
    while place < size and one[place : place + _CHUNK] == other[place : place + _CHUNK]:
        place += _CHUNK
    while place < size and one[place] == other[place]:
        place += 1
    return min(place, size)


class SessionTracker:
    """Remembers the sessions' last prompts, up to `max_bytes` in all. A session may have a few threads (subagents,
    retries, side questions); a prompt is compared with the one it shares most with."""

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
        named = tuple(line for line in lines if line.turn == previous) if previous else ()
        verdict = self._compared(named or lines, prompt, conversation)
        return msgspec.structs.replace(verdict, found=False) if previous and not named else verdict

    def _compared(self, lines: Sequence[_Line], prompt: BuiltPrompt, conversation: Conversation) -> Verdict:
        if not lines:
            return Verdict(state="first")
        ids = _array(prompt.ids)
        line, shared = _nearest(lines, ids)
        if shared in (len(ids), len(line.ids)):
            return Verdict(state="held", shared=shared, expected=len(line.ids))
        if not related(line.conversation, conversation):
            return Verdict(state="first")
        section = next((each for each in prompt.sections if each.start <= shared < each.end), None)
        cause, detail = attribute(
            line.conversation,
            conversation,
            section=section.kind if section else None,
            in_output=shared >= line.said,
            thought=line.thought,
            notes=prompt.notes,
        )
        return Verdict(
            state="broken",
            shared=shared,
            expected=len(line.ids),
            section=section.kind if section else None,
            index=section.index if section else None,
            cause=cause,
            detail=detail,
        )

    def remember(
        self,
        key: str,
        prompt: BuiltPrompt,
        conversation: Conversation,
        output_ids: Sequence[int] = (),
        *,
        thought: bool = False,
        turn: str = "",
    ) -> None:
        """Keep a finished turn: its prompt, what the model wrote, whether that held a thought, and its name."""
        ids = array("I", prompt.ids)
        header = next((section.start for section in prompt.sections if section.kind == "generation"), len(ids))
        ids.extend(output_ids)
        line = _Line(ids, header, thought, conversation, 4 * len(ids) + _weight(conversation), turn)
        if line.size > self._max_bytes:
            return
        with self._lock:
            lines = self._sessions.setdefault(key, [])
            self._sessions.move_to_end(key)
            if lines:
                nearest, shared = _nearest(lines, ids)
                if 2 * shared >= nearest.said or related(nearest.conversation, conversation):
                    lines.remove(nearest)
                    self._bytes -= nearest.size
            lines.append(line)
            self._bytes += line.size
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


def _nearest(lines: Sequence[_Line], ids: array[int]) -> tuple[_Line, int]:
    """The line that shares most with the ids; of equals, the newest."""
    return max(((line, shared_prefix(line.ids, ids)) for line in reversed(lines)), key=lambda found: found[1])


def _array(ids: Sequence[int]) -> array[int]:
    return ids if isinstance(ids, array) and ids.typecode == "I" else array("I", ids)


def _weight(conversation: Conversation) -> int:
    """Roughly the bytes a conversation takes."""
    total = 2000
    for message in conversation.messages:
        for block in message.blocks:
            total += _BLOCK_OVERHEAD
            for field in ("text", "seal", "arguments", "data", "payload"):
                total += sys.getsizeof(getattr(block, field, None) or "")
            for part in getattr(block, "content", ()):
                total += _BLOCK_OVERHEAD + sys.getsizeof(getattr(part, "text", None) or getattr(part, "data", ""))
    for tool in conversation.tools:
        total += _BLOCK_OVERHEAD + len(tool.description) + 4 * len(msgspec.json.encode(tool.schema))
    return total
