"""Why a prefix broke: the two conversations compared, and the prompt's own notes.

Promise: a cause is named only where the conversations show it; otherwise the plainest true one is given.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b

import msgspec

from turnwire.continuity.verdict import Cause
from turnwire.conventions import without_billing
from turnwire.shared_prefix import shared_prefix
from turnwire.turns import (
    Block,
    Conversation,
    Message,
    Note,
    ReasoningBlock,
    TextBlock,
    Tool,
    ToolCallBlock,
    ToolResultBlock,
)

__all__ = ["Found", "attribute", "opening_marks", "related"]

Found = tuple[Cause, str]

_MONTH = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_DATES = re.compile(
    r"\d{4}-\d\d?-\d\d?(?:[T ]\d\d?:\d\d(?::\d\d)?(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?)?"
    r"|\d\d?:\d\d(?::\d\d)?(?: ?[ap]m)?"
    r"|\d\d?[/.]\d\d?[/.]\d{2,4}"
    rf"|\b(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day,? )?(?:{_MONTH})[a-z]{{0,6}} \d\d?(?:st|nd|rd|th)?,? \d{{4}}"
    rf"|\b\d\d? (?:{_MONTH})[a-z]{{0,6}} \d{{4}}"
    r"|\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b",
    re.IGNORECASE,
)
_COMPACTED = 0.6
_MOST_DATED = 2048
_AROUND = 40


def related(before: Conversation, now: Conversation) -> bool:
    """Whether the two can be turns of one conversation: they share their opening or their tools."""
    if _system(before) == _system(now) or before.tools == now.tools:
        return True
    one, other = _spoken(before), _spoken(now)
    return bool(one and other and one[0] == other[0])


def attribute(
    before: Conversation,
    now: Conversation,
    *,
    section: str | None,
    in_output: bool,
    thought: bool,
    notes: Sequence[Note],
    ticked: bool = False,
) -> Found:
    """The cause of a break in `section`. `in_output`: it lies in what the model wrote last, and not before; `thought`
    says whether that held a thought. `notes` are those of the new prompt; `ticked` says that the template's clock shows
    another day."""
    if before.model != now.model:
        return "model_changed", f"from {before.model} to {now.model}"
    if section in ("system", "tools") or (section == "frame" and not in_output):
        found = _opening(before, now, tools_first=section == "tools")
        if found is not None:
            return found
    if in_output:
        return _last_turn(now, before, thought=thought, notes=notes)
    return (
        _history(before, now)
        or _tools_changed(before.tools, now.tools)  # templates may write them beside a user message
        or (("template_clock", "") if ticked else None)
        or _thoughts_dropped(before)
        or _opening(before, now, tools_first=False)
        or ("rerendered", "")
    )


def opening_marks(conversation: Conversation) -> dict[str, bytes]:
    """Digests of what precedes the first message, by part; `unbilled` and `tool_set` are the system text without its
    billing line and the tools without their order."""
    system = _system(conversation)
    tools = [tool for tool in conversation.tools if not tool.deferred]
    settings = (conversation.thinking, conversation.format, conversation.template_args)
    return {
        "model": _mark(conversation.model),
        "system": _mark(system),
        "unbilled": _mark(without_billing(system)),
        "tools": _mark(tools),
        "tool_set": _mark(sorted(tools, key=lambda tool: tool.name)),
        "settings": _mark(settings),
    }


def _mark(value: object) -> bytes:
    return blake2b(msgspec.msgpack.encode(value), digest_size=8).digest()


# ----------------------------------------------------------------------------------------------- system and tools


def _opening(before: Conversation, now: Conversation, *, tools_first: bool) -> Found | None:
    checks = [_tools_changed(before.tools, now.tools), _system_changed(_system(before), _system(now))]
    for found in checks if tools_first else reversed(checks):
        if found is not None:
            return found
    if (before.thinking, before.format, before.template_args) != (now.thinking, now.format, now.template_args):
        return "settings_changed", ""
    return None


def _system_changed(before: str, now: str) -> Found | None:
    if before == now:
        return None
    if without_billing(before) == without_billing(now):
        return "billing_line", ""
    if _differ_in_dates(before, now):
        return "date", _excerpt(before, now)
    return "system_changed", _excerpt(before, now)


def _tools_changed(before: Sequence[Tool], now: Sequence[Tool]) -> Found | None:
    before = [tool for tool in before if not tool.deferred]
    now = [tool for tool in now if not tool.deferred]
    if before == now:
        return None
    old, new = {tool.name: tool for tool in before}, {tool.name: tool for tool in now}
    added, removed = sorted(new.keys() - old.keys()), sorted(old.keys() - new.keys())
    changed = sorted(name for name in old.keys() & new.keys() if old[name] != new[name])
    if not (added or removed or changed):
        return "tool_order", ""
    parts = [
        f"{word} {', '.join(names[:5])}"
        for word, names in (("added", added), ("removed", removed), ("changed", changed))
        if names
    ]
    return "tools_changed", "; ".join(parts)


# -------------------------------------------------------------------------------------------------- the last turn


def _last_turn(now: Conversation, before: Conversation, *, thought: bool, notes: Sequence[Note]) -> Found:
    spoken = _spoken(now)
    turn = next((message for message in spoken[len(_spoken(before)) :] if message.role == "assistant"), None)
    codes = {note.code for note in notes}
    if turn is None:
        return _history(before, now) or ("message_edited", "")
    if "replay.edited.arguments" in codes:
        return "arguments_rewritten", ""
    if any(code.startswith("replay.edited.") for code in codes):
        return "message_edited", ""
    thoughts = any(isinstance(block, ReasoningBlock) for block in turn.blocks)
    if thought and not thoughts:
        return "reasoning_dropped_by_client", ""
    if thought and not any(code.startswith("replay.") for code in codes):
        return "reasoning_dropped_by_template", ""
    replay = ", ".join(sorted(code for code in codes if code.startswith("replay.")))
    if any(isinstance(block, ToolCallBlock) for block in turn.blocks) and not replay:
        return "arguments_rewritten", ""
    return "turn_rewritten", replay


# ------------------------------------------------------------------------------------------------ earlier messages


def _history(before: Conversation, now: Conversation) -> Found | None:
    old, new = _spoken(before), _spoken(now)
    for place, (one, other) in enumerate(zip(old, new, strict=False)):
        if one != other and _plain(one) != _plain(other):
            if _is_new_window(before, now) or (_asked_for_summary(before) and len(new) < len(old)):
                return "compaction", f"message {place}"
            return _differing(old, new, place)
    if len(new) < len(old):
        said = _is_new_window(before, now) or _asked_for_summary(before)
        return ("compaction" if said else "message_edited"), ""
    return None


def _thoughts_dropped(before: Conversation) -> Found | None:
    if any(isinstance(block, ReasoningBlock) for message in before.messages for block in message.blocks):
        return "reasoning_dropped_by_template", ""
    return None


def _is_new_window(before: Conversation, now: Conversation) -> bool:
    """Whether the client itself says that it began a new context window."""
    windows = (before.context.window, now.context.window)
    return None not in windows and windows[0] != windows[1]


def _asked_for_summary(before: Conversation) -> bool:
    """Whether the request before asked for a summary to go on from."""
    return before.context.turn_class == "compaction"


def _differing(old: Sequence[Message], new: Sequence[Message], place: int) -> Found:
    one, other = old[place], new[place]
    where = f"message {place}"
    if one.role == other.role == "assistant":
        if _plain(_without_thoughts(one)) == _plain(_without_thoughts(other)):
            return "reasoning_dropped_by_client", where
        if _calls(one) != _calls(other) and _plain(_without_arguments(one)) == _plain(_without_arguments(other)):
            return "arguments_rewritten", where
    if one.role == other.role and _differ_in_dates(_text(one), _text(other)):
        return "date", where
    if one in new[place + 1 :]:
        return "message_moved", where
    if len(new) < _COMPACTED * len(old) and not _resemble(_text(one), _text(other)):
        return "compaction", where
    return "message_edited", where


# --------------------------------------------------------------------------------------------------------- reading


def _system(conversation: Conversation) -> str:
    opening: list[str] = []
    for message in conversation.messages:
        if message.role not in ("system", "developer"):
            break
        opening.extend(block.text for block in message.blocks if isinstance(block, TextBlock))
    return "\n".join(opening)


def _spoken(conversation: Conversation) -> Sequence[Message]:
    """The messages after the opening system text."""
    messages = conversation.messages
    place = 0
    while place < len(messages) and messages[place].role in ("system", "developer"):
        place += 1
    return messages[place:]


def _plain(message: Message) -> tuple[object, ...]:
    """A message by what templates show of it: blocks of text joined, ids and seals left out."""
    shown: list[object] = [message.role]
    for block in message.blocks:
        shown.extend(_shown(block))
    return tuple(shown)


def _shown(block: Block) -> Iterable[object]:
    match block:
        case TextBlock(text=text):
            return [text] if text.strip() else []
        case ReasoningBlock(text=text, redacted=redacted):
            return [] if redacted else [("thought", text)]
        case ToolCallBlock(name=name, arguments=arguments):
            return [("call", name, arguments)]
        case ToolResultBlock(content=content, is_error=is_error):
            return [("result", tuple(part for part in content), is_error)]
    return [block]


def _without_thoughts(message: Message) -> Message:
    return Message(
        role=message.role, blocks=tuple(block for block in message.blocks if not isinstance(block, ReasoningBlock))
    )


def _without_arguments(message: Message) -> Message:
    blocks = tuple(
        ToolCallBlock(id="", name=block.name, arguments="") if isinstance(block, ToolCallBlock) else block
        for block in message.blocks
    )
    return _without_thoughts(Message(role=message.role, blocks=blocks))


def _calls(message: Message) -> list[tuple[str, str]]:
    return [(block.name, block.arguments) for block in message.blocks if isinstance(block, ToolCallBlock)]


def _text(message: Message) -> str:
    parts = [message.text]
    for block in message.blocks:
        if isinstance(block, ToolResultBlock):
            parts.extend(part.text for part in block.content if isinstance(part, TextBlock))
    return "\n".join(parts)


def _difference(one: str, other: str) -> tuple[str, str]:
    """Where the two differ, with a little of what they share on both sides."""
    start = shared_prefix(one, other)
    end = shared_prefix(one[start:][::-1], other[start:][::-1])
    around = max(start - _AROUND, 0)
    return one[around : max(len(one) - end, start) + _AROUND], other[around : max(len(other) - end, start) + _AROUND]


def _differ_in_dates(one: str, other: str) -> bool:
    """Whether only dates and times differ. They do so in few characters, so long differences are not looked through."""
    first, second = _difference(one, other)
    if max(len(first), len(second)) > _MOST_DATED:
        return False
    return _DATES.sub("", first) == _DATES.sub("", second)


def _resemble(one: str, other: str) -> bool:
    """Whether half of the first text is still there at the start and end of the second: it was edited, not replaced."""
    start = shared_prefix(one, other)
    end = shared_prefix(one[start:][::-1], other[start:][::-1])
    return 2 * (start + end) >= len(one) > 0


def _excerpt(before: str, now: str) -> str:
    """The first differing words, short."""
    at = shared_prefix(before, now)
    start = max(at - 20, 0)
    return f"{before[start : at + 20]!r} became {now[start : at + 20]!r} at character {at}"
