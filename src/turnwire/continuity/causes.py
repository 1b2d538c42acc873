"""Why a prefix broke: the two conversations compared, and the prompt's own notes.

Promise: a cause is named only where the conversations show it; otherwise the plainest true one is given.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from turnwire.continuity.verdict import Cause
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

__all__ = ["Found", "attribute", "related"]

Found = tuple[Cause, str]

_BILLING = "x-anthropic-billing-header:"
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
) -> Found:
    """The cause of a break in `section`. `in_output`: it lies in what the model wrote last, and not before; `thought`
    says whether that held a thought. `notes` are those of the new prompt."""
    if before.model != now.model:
        return "model_changed", f"from {before.model} to {now.model}"
    if section in ("system", "tools") or (section == "frame" and not in_output):
        found = _opening(before, now, tools_first=section == "tools")
        if found is not None:
            return found
    if in_output:
        return _last_turn(now, before, thought=thought, notes=notes)
    return _history(before, now) or _opening(before, now, tools_first=False) or ("rerendered", "")


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
    if _without_billing(before) == _without_billing(now):
        return "billing_line", ""
    if _undated(before) == _undated(now):
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
        return ("compaction", "") if len(spoken) < len(_spoken(before)) else ("message_edited", "")
    if "replay.edited" in codes:
        said = next(note.message for note in notes if note.code == "replay.edited")
        return ("arguments_rewritten", "") if "(arguments)" in said else ("message_edited", "")
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
            return _differing(old, new, place)
    if len(new) < len(old):
        return ("compaction" if len(new) < _COMPACTED * len(old) else "message_edited"), ""
    if any(isinstance(block, ReasoningBlock) for message in old for block in message.blocks):
        return "reasoning_dropped_by_template", ""
    return None


def _differing(old: Sequence[Message], new: Sequence[Message], place: int) -> Found:
    one, other = old[place], new[place]
    where = f"message {place}"
    if one.role == other.role == "assistant":
        if _plain(_without_thoughts(one)) == _plain(_without_thoughts(other)):
            return "reasoning_dropped_by_client", where
        if _calls(one) != _calls(other) and _plain(_without_arguments(one)) == _plain(_without_arguments(other)):
            return "arguments_rewritten", where
    if one.role == other.role and _undated(_text(one)) == _undated(_text(other)):
        return "date", where
    if one in new[place + 1 :]:
        return "message_moved", where
    if len(new) < _COMPACTED * len(old):
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
    """The messages behind the opening system text."""
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


def _undated(text: str) -> str:
    return _DATES.sub("", text)


def _without_billing(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if not line.lstrip().startswith(_BILLING))


def _excerpt(before: str, now: str) -> str:
    """The first differing words, short."""
    size = min(len(before), len(now))
    at = next((place for place in range(size) if before[place] != now[place]), size)
    start = max(at - 20, 0)
    return f"{before[start : at + 20]!r} became {now[start : at + 20]!r} at character {at}"
