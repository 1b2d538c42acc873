"""Making equal conversations look equal, so that their prompts share every token they can.

Promise: what varies without meaning (billing lines, the shape of a message, blank blocks, the order in which results
arrive) never changes a prompt token; every rewriting is a Note with a stable code.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from turnwire.conventions import without_billing
from turnwire.message_facts import message_facts
from turnwire.prompts.notes import noted
from turnwire.turns import (
    Block,
    Conversation,
    Message,
    Note,
    TextBlock,
    Tool,
    ToolCallBlock,
    ToolResultBlock,
)

__all__ = ["StabilityOptions", "stabilise"]


class StabilityOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`canonical_tools` sorts tools by name and their schema keys; `hoist_system` puts a system message that follows
    the first user message before that message's text, where all conversations of a client share it."""

    canonical_tools: bool = False
    hoist_system: bool = True


def stabilise(
    conversation: Conversation,
    options: StabilityOptions,
    *,
    mid_system: bool = True,
    system: bool = True,
    empty_system: bool = False,
) -> tuple[Conversation, list[Note]]:
    """The conversation in its one stable form. `mid_system` says that the template takes system messages anywhere,
    `system` that it takes one at all, `empty_system` that an empty one means something to it."""
    notes: list[Note] = []
    opened = _with_system(conversation)
    if system and _is_stable(opened, options):
        return opened, notes
    messages = [_cleaned(message, notes) for message in conversation.messages]
    messages = _without_empty(messages, conversation.messages, empty_system, notes)
    messages = _one_opening(messages)
    if options.hoist_system:
        messages = _hoisted(messages, notes)
    messages = _placed(messages, mid_system, system, notes)
    messages = _joined(messages)
    messages = _ordered_results(messages, notes)
    tools, messages = _tools(conversation.tools, messages, options, notes)
    return msgspec.structs.replace(conversation, messages=tuple(messages), tools=tools), notes


def _with_system(conversation: Conversation) -> Conversation:
    """The conversation whose opening is a system message, by whatever name it came."""
    messages = conversation.messages
    if not messages or messages[0].role != "developer":
        return conversation
    opening = Message(role="system", blocks=messages[0].blocks)
    return msgspec.structs.replace(conversation, messages=(opening, *messages[1:]))


def _is_stable(conversation: Conversation, options: StabilityOptions) -> bool:
    """Whether there is nothing to do, as nearly always. It may say no without need."""
    if options.canonical_tools or not message_facts(conversation.messages).plain:
        return False
    return not any(tool.deferred for tool in conversation.tools)


def _cleaned(message: Message, notes: list[Note]) -> Message:
    """Without billing lines and empty text; adjacent text blocks are one. What the model wrote is left
    alone."""
    if message.role == "assistant" or _is_clean(message):
        return message
    kept: list[Block] = []
    for block in message.blocks:
        if isinstance(block, TextBlock):
            text = block.text
            if message.role in ("system", "developer") and (cleaned := without_billing(text)) != text:
                text = cleaned
                notes.append(noted("stability.billing_dropped"))
            if not text:
                continue
            before = kept[-1] if kept else None
            if isinstance(before, TextBlock):
                kept[-1] = TextBlock(text=_join(before.text, text, message.role))
            else:
                kept.append(TextBlock(text=text))
        else:
            kept.append(block)
    return Message(role=message.role, blocks=tuple(kept))


def _is_clean(message: Message) -> bool:
    """Whether there is nothing to clean in a user's message: no empty text, no two texts side by side."""
    if message.role != "user":
        return False
    before = False
    for block in message.blocks:
        if type(block) is not TextBlock:
            before = False
        elif before or not block.text:
            return False
        else:
            before = True
    return True


def _join(first: str, second: str, role: str) -> str:
    """Parts of a user's words follow each other as templates write them; system texts are paragraphs."""
    if role in ("system", "developer") and not first.endswith("\n"):
        return f"{first}\n\n{second}"
    return first + second


def _without_empty(
    messages: Sequence[Message], sent: Sequence[Message], empty_system: bool, notes: list[Note]
) -> list[Message]:
    """Messages that say something. An empty system message at the start means that there shall be none; it is kept
    where the template would else bring a system text of its own."""
    if all(message.blocks for message in messages):
        return list(messages)
    size = 0
    while size < len(messages) and messages[size].role in ("system", "developer"):
        size += 1
    # An assistant message that holds nothing may be a turn that only thought: who builds the prompt decides.
    kept = [message for message in messages if message.blocks or message.role == "assistant"]
    wished = any(not message.text for message in sent[:size]) and not any(message.blocks for message in messages[:size])
    if wished and empty_system:
        kept.insert(0, Message(role="system", blocks=(TextBlock(text=""),)))
    for position, (message, own) in enumerate(zip(messages, sent, strict=True)):
        dropped = not message.blocks and message.role != "assistant" and not own.text
        if dropped and not (wished and empty_system and position < size):
            notes.append(noted("stability.empty_dropped", message.role))
    return kept


def _one_opening(messages: Sequence[Message]) -> list[Message]:
    """All system and developer messages at the start, as one: most templates look only at the first."""
    size = 0
    while size < len(messages) and messages[size].role in ("system", "developer"):
        size += 1
    if size == 0 or (size == 1 and messages[0].role == "system"):
        return list(messages)
    if size == 1:
        return [Message(role="system", blocks=messages[0].blocks), *messages[1:]]
    text = "\n\n".join(message.text.rstrip("\n") for message in messages[:size])
    return [Message(role="system", blocks=(TextBlock(text=text),)), *messages[size:]]


def _reminder(text: str) -> str:
    return f"<system-reminder>\n{text}\n</system-reminder>\n"


def _hoisted(messages: list[Message], notes: list[Note]) -> list[Message]:
    """A system message right after the first user message moves to the front of that message."""
    start = 1 if messages and messages[0].role == "system" else 0
    following = start + 1
    if len(messages) <= following or messages[start].role != "user" or messages[following].role == "assistant":
        return messages
    if messages[following].role == "user":
        return messages
    merged = _with_text(messages[start], before=_reminder(messages[following].text))
    notes.append(noted("stability.system_hoisted"))
    return [*messages[:start], merged, *messages[following + 1 :]]


def _placed(messages: list[Message], mid_system: bool, system: bool, notes: list[Note]) -> list[Message]:
    """System messages in mid-conversation stay where the template takes them; else they become reminders beside the
    user's words or results next to them, so that they do not look like a new request."""
    if not any(message.role in ("system", "developer") for message in messages[1:]) and (
        not messages or messages[0].role == "user" or (messages[0].role == "system" and system)
    ):
        return messages
    placed: list[Message] = []
    waiting = ""
    for position, message in enumerate(messages):
        folds = message.role in ("system", "developer") and not (system if position == 0 else mid_system)
        if folds:
            notes.append(noted("stability.system_folded"))
            text = message.text + "\n\n" if position == 0 else _reminder(message.text)
            if position and placed and placed[-1].role == "user":
                placed[-1] = _with_text(placed[-1], after=text)
            else:
                waiting += text
            continue
        if message.role in ("system", "developer"):
            message = Message(role="system", blocks=message.blocks)
        if waiting:
            if message.role == "user":
                message = _with_text(message, before=waiting)
            else:
                placed.append(Message(role="user", blocks=(TextBlock(text=waiting),)))
            waiting = ""
        placed.append(message)
    if waiting:
        placed.append(Message(role="user", blocks=(TextBlock(text=waiting),)))
    return placed


def _with_text(message: Message, *, before: str = "", after: str = "") -> Message:
    """A user message with more text; results stay in front."""
    results = tuple(block for block in message.blocks if isinstance(block, ToolResultBlock))
    rest = tuple(block for block in message.blocks if not isinstance(block, ToolResultBlock))
    if before and rest and isinstance(rest[0], TextBlock):
        rest = (TextBlock(text=before + rest[0].text), *rest[1:])
    elif before:
        rest = (TextBlock(text=before), *rest)
    last = rest[-1] if rest else None
    if after and isinstance(last, TextBlock):
        rest = (*rest[:-1], TextBlock(text=_join(last.text, after, "user")))
    elif after:
        rest = (*rest, TextBlock(text=after))
    return Message(role="user", blocks=(*results, *rest))


def _joined(messages: Sequence[Message]) -> list[Message]:
    """Adjacent assistant messages are one turn, and adjacent messages with results one answer to its calls."""
    joined: list[Message] = []
    for message in messages:
        before = joined[-1] if joined else None
        if before is None or before.role != message.role:
            joined.append(message)
        elif message.role == "assistant":
            joined[-1] = Message(role="assistant", blocks=before.blocks + message.blocks)
        elif _has_results(before) and _has_results(message):
            joined[-1] = Message(role="user", blocks=before.blocks + message.blocks)
        else:
            joined.append(message)
    return joined


def _has_results(message: Message) -> bool:
    # Results come first where there are any: a message is looked through only if its first block is something else.
    blocks = message.blocks
    return bool(blocks) and (type(blocks[0]) is ToolResultBlock or any(type(b) is ToolResultBlock for b in blocks[1:]))


def _ordered_results(messages: Sequence[Message], notes: list[Note]) -> list[Message]:
    """Results in the order of their calls: clients return them as they finish."""
    order: dict[str, int] = {}
    ordered: list[Message] = []
    for message in messages:
        if message.role == "assistant":
            calls = [block.id for block in message.blocks if isinstance(block, ToolCallBlock)]
            if calls:
                order = {call_id: position for position, call_id in enumerate(calls)}
            ordered.append(message)
            continue
        if len(message.blocks) < 2:
            ordered.append(message)
            continue
        results = [block for block in message.blocks if isinstance(block, ToolResultBlock)]
        ranked = sorted(results, key=lambda block: order.get(block.call_id, len(order)))
        if ranked != results:
            notes.append(noted("stability.results_reordered"))
        if results:
            rest = [block for block in message.blocks if not isinstance(block, ToolResultBlock)]
            blocks = (*ranked, *rest)
            message = message if blocks == message.blocks else Message(role=message.role, blocks=blocks)
        ordered.append(message)
    return ordered


def _tools(
    tools: Sequence[Tool], messages: Sequence[Message], options: StabilityOptions, notes: list[Note]
) -> tuple[tuple[Tool, ...], list[Message]]:
    """Tools for the tool section, and messages in which each reference to a deferred tool shows that tool."""
    known = {tool.name: tool for tool in tools}
    offered = [tool for tool in tools if not tool.deferred]
    if options.canonical_tools:
        offered = [_canonical(tool) for tool in sorted(offered, key=lambda tool: tool.name)]
    shown = [_expanded(message, known, notes) for message in messages]
    return tuple(offered), shown


def _canonical(tool: Tool) -> Tool:
    return msgspec.structs.replace(tool, schema=_sorted(tool.schema))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_sorted(item) for item in value]
    return value


def _expanded(message: Message, known: dict[str, Tool], notes: list[Note]) -> Message:
    if message.role == "assistant":
        return message
    for block in message.blocks:
        if type(block) is ToolResultBlock and block.references:
            break
    else:
        return message
    blocks: list[Block] = []
    for block in message.blocks:
        if isinstance(block, ToolResultBlock) and block.references:
            text = _introduced([known[name] for name in block.references if name in known])
            if text:
                notes.append(noted("stability.tools_expanded"))
                block = msgspec.structs.replace(block, content=(*block.content, TextBlock(text=text)))
        blocks.append(block)
    return Message(role=message.role, blocks=tuple(blocks))


def _introduced(tools: Sequence[Tool]) -> str:
    if not tools:
        return ""
    lines = [
        json.dumps({"name": tool.name, "description": tool.description, "parameters": tool.schema}, ensure_ascii=False)
        for tool in tools
    ]
    return "\n".join(["These tools can be called from now on:", "<tools>", *lines, "</tools>"])
