"""Context edits that the client asks for, carried out on the conversation before it is rendered.

Promise: `clear_thinking_20251015` and `clear_tool_uses_20250919` change the conversation exactly as stated and are
reported; any other edit is noted. An edit that changes nothing is not reported as applied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from turnwire.protocols.fields.body import invalid
from turnwire.protocols.fields.decoded import RequestNotes
from turnwire.turns import (
    JSON,
    Block,
    Conversation,
    Message,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
)

__all__ = ["CLEARED", "TokenCounter", "apply_edits", "estimate_tokens", "read_edits"]

CLEARED = "[cleared by context management]"
"""What replaces a cleared tool result."""

CLEAR_THINKING = "clear_thinking_20251015"
CLEAR_TOOL_USES = "clear_tool_uses_20250919"

TokenCounter = Callable[[str, str], int]
"""Counts the tokens of a text for a model: (model, text) -> tokens."""

Edit = dict[str, JSON]


def estimate_tokens(model: str, text: str) -> int:
    """A count for callers without a tokenizer: four bytes a token."""
    return (len(text.encode()) + 3) // 4


def read_edits(managed: dict[str, JSON], notes: RequestNotes) -> tuple[Edit, ...]:
    """The edits that can be carried out, checked; the others are noted."""
    edits = managed.get("edits")
    if edits is None:
        return ()
    if not isinstance(edits, list):
        raise invalid("context_management.edits", "must be a list")
    known: list[Edit] = []
    for index, edit in enumerate(edits):
        path = f"context_management.edits.{index}"
        if not isinstance(edit, dict):
            raise invalid(path, "must be an object")
        kind = edit.get("type")
        if kind == CLEAR_THINKING:
            _kept_turns(edit, path)
        elif kind == CLEAR_TOOL_USES:
            for field in ("trigger", "keep", "clear_at_least"):
                _amount(edit, field, 0, path)
        else:
            notes.add("request.field_ignored", f"{path}.type: {str(kind)[:64]!r} is not an edit we carry out")
            continue
        known.append(edit)
    return tuple(known)


def apply_edits(
    conversation: Conversation, edits: Sequence[Edit], count_tokens: TokenCounter
) -> tuple[Conversation, tuple[Edit, ...]]:
    """The conversation after the edits, and a report of those that changed it."""
    applied: list[Edit] = []
    for edit in edits:
        if edit["type"] == CLEAR_THINKING:
            conversation, report = _clear_thinking(conversation, edit, count_tokens)
        else:
            conversation, report = _clear_tool_uses(conversation, edit, count_tokens)
        if report is not None:
            applied.append(report)
    return conversation, tuple(applied)


# ------------------------------------------------------------------------------------------------- thinking


def _clear_thinking(
    conversation: Conversation, edit: Edit, count_tokens: TokenCounter
) -> tuple[Conversation, Edit | None]:
    keep = _kept_turns(edit, "context_management.edits")
    thinking = msgspec.structs.replace(conversation.thinking, history="keep", keep_turns=keep)
    conversation = msgspec.structs.replace(conversation, thinking=thinking)
    if keep is None:
        return conversation, None
    turns = [turn for turn in _assistant_turns(conversation.messages) if _has_thoughts(conversation.messages, turn)]
    stale = turns[: max(0, len(turns) - keep)]
    if not stale:
        return conversation, None
    cleared = 0
    messages = list(conversation.messages)
    for turn in stale:
        for index in turn:
            message = messages[index]
            blocks: list[Block] = []
            for block in message.blocks:
                if isinstance(block, ReasoningBlock):
                    cleared += count_tokens(conversation.model, block.text)
                else:
                    blocks.append(block)
            messages[index] = Message(role=message.role, blocks=tuple(blocks))
    report = {"type": CLEAR_THINKING, "cleared_thinking_turns": len(stale), "cleared_input_tokens": cleared}
    return msgspec.structs.replace(conversation, messages=tuple(messages)), report


def _kept_turns(edit: Edit, path: str) -> int | None:
    """How many turns keep their thoughts; None means all."""
    keep = edit.get("keep")
    if keep == "all" or (isinstance(keep, dict) and keep.get("type") == "all"):
        return None
    if keep is None:
        return 1
    value = keep.get("value") if isinstance(keep, dict) else None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise invalid(f"{path}.keep", "must be 'all' or {type: thinking_turns, value: a number}")
    return value


def _assistant_turns(messages: Sequence[Message]) -> Iterator[list[int]]:
    """Indices of the assistant messages of each turn. A turn lasts until a user speaks: results of tools do not end
    it, so thoughts inside a running tool loop stay together."""
    turn: list[int] = []
    for index, message in enumerate(messages):
        if message.role == "assistant":
            turn.append(index)
        elif message.role == "user" and any(not isinstance(block, ToolResultBlock) for block in message.blocks):
            if turn:
                yield turn
            turn = []
    if turn:
        yield turn


def _has_thoughts(messages: Sequence[Message], turn: list[int]) -> bool:
    return any(isinstance(block, ReasoningBlock) for index in turn for block in messages[index].blocks)


# ------------------------------------------------------------------------------------------------ tool uses


def _clear_tool_uses(
    conversation: Conversation, edit: Edit, count_tokens: TokenCounter
) -> tuple[Conversation, Edit | None]:
    path = "context_management.edits"
    unit, threshold = _amount(edit, "trigger", 100_000, path)
    _, keep = _amount(edit, "keep", 3, path)
    _, at_least = _amount(edit, "clear_at_least", 0, path)
    excluded = {name for name in edit.get("exclude_tools") or () if isinstance(name, str)}
    inputs = edit.get("clear_tool_inputs")

    calls = [block for message in conversation.messages for block in message.blocks if isinstance(block, ToolCallBlock)]
    size = len(calls) if unit == "tool_uses" else _size(conversation, count_tokens)
    if size <= threshold:
        return conversation, None
    old = calls[: max(0, len(calls) - keep)]
    stale = {call.id: call for call in old if call.name not in excluded}
    cleared, uses = 0, 0
    messages: list[Message] = []
    for message in conversation.messages:
        blocks: list[Block] = []
        for block in message.blocks:
            if isinstance(block, ToolResultBlock) and block.call_id in stale and not _is_cleared(block):
                before = count_tokens(conversation.model, _result_text(block))
                cleared += max(0, before - count_tokens(conversation.model, CLEARED))
                uses += 1
                block = msgspec.structs.replace(block, content=(TextBlock(text=CLEARED),), references=())
            elif isinstance(block, ToolCallBlock) and block.id in stale and _clears_input(inputs, block.name):
                cleared += count_tokens(conversation.model, block.arguments)
                block = msgspec.structs.replace(block, arguments="{}")
            blocks.append(block)
        messages.append(Message(role=message.role, blocks=tuple(blocks)))
    if not uses or cleared < at_least:
        return conversation, None
    report = {"type": CLEAR_TOOL_USES, "cleared_tool_uses": uses, "cleared_input_tokens": cleared}
    return msgspec.structs.replace(conversation, messages=tuple(messages)), report


def _amount(edit: Edit, field: str, default: int, path: str) -> tuple[str, int]:
    amount = edit.get(field)
    if amount is None:
        return "", default
    value = amount.get("value") if isinstance(amount, dict) else None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise invalid(f"{path}.{field}", "must be {type, value: a number}")
    return str(amount.get("type")), value


def _size(conversation: Conversation, count_tokens: TokenCounter) -> int:
    """Tokens of everything the prompt is rendered from."""
    texts: list[str] = [tool.name + tool.description + str(tool.schema) for tool in conversation.tools]
    for message in conversation.messages:
        for block in message.blocks:
            match block:
                case TextBlock() | ReasoningBlock():
                    texts.append(block.text)
                case ToolCallBlock():
                    texts.append(block.arguments)
                case ToolResultBlock():
                    texts.append(_result_text(block))
    return count_tokens(conversation.model, "\n".join(texts))


def _is_cleared(block: ToolResultBlock) -> bool:
    return block.content == (TextBlock(text=CLEARED),)


def _result_text(block: ToolResultBlock) -> str:
    return "".join(part.text for part in block.content if isinstance(part, TextBlock))


def _clears_input(inputs: JSON, name: str) -> bool:
    return name in inputs if isinstance(inputs, list) else bool(inputs)
