"""What the model would have written for a turn that only the client remembers, with its blocks in order.

Promise: `rewritten_in_order` keeps thoughts, text and calls in the order of the message, each in the template's own
words, where the template alone could only group them; None where its words cannot be found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from turnwire.prompts.replay.splicer import TemplateSplicer
from turnwire.prompts.templates.traits import TemplateTraits
from turnwire.turns import Block, Message, ReasoningBlock, TextBlock, ToolCallBlock

__all__ = ["in_template_order", "rewritten_in_order", "rewritten_on"]


def in_template_order(blocks: Sequence[Block]) -> bool:
    """Whether the blocks are in the order in which templates group them: thoughts, then text, then calls."""
    return len(_groups(blocks)) <= 1


def rewritten_in_order(
    splicer: TemplateSplicer, traits: TemplateTraits, blocks: Sequence[Block], args: Mapping[str, Any], thinking: bool
) -> tuple[str, bool] | None:
    """The whole turn after its generation header, and whether that header has thinking on."""
    groups = _groups(blocks)
    if not groups:
        return None
    begins = _thinks(groups[0]) or (thinking and traits.tail_off is None)
    first = splicer.rewritten(_message(groups[0]), _switched(args, traits, begins))
    if first is None:
        return None
    rest = rewritten_on(splicer, traits, [block for group in groups[1:] for block in group], args)
    return None if rest is None else (first + rest, begins)


def rewritten_on(
    splicer: TemplateSplicer,
    traits: TemplateTraits,
    blocks: Sequence[Block],
    args: Mapping[str, Any],
    *,
    after_thought: bool = False,
) -> str | None:
    """More of a turn that has already begun; `after_thought`: it follows a thought's closing mark directly."""
    groups = _groups(blocks)
    said: list[str] = []
    if after_thought and groups and not _thinks(groups[0]):
        said.append(_after_thought(splicer, traits, groups[0], args))
        if said[0] and not _is_text(groups[0]):
            groups = groups[1:]  # all of it is said
    for group in groups:
        if _is_text(group):
            said.append(_message(group).text)
            continue
        text = splicer.rewritten(_message(group), _switched(args, traits, _thinks(group)))
        if text is None:
            return None
        said.append((traits.thought_open if _thinks(group) else "") + text)
    return "".join(said)


def _after_thought(
    splicer: TemplateSplicer, traits: TemplateTraits, group: Sequence[Block], args: Mapping[str, Any]
) -> str:
    """What the template writes between a thought's closing mark and the text of the group, or for the group itself
    where it makes calls; empty where the template does not show a thought there."""
    words = TextBlock(text="words")
    if not _is_text(group):
        return _after_mark(splicer, traits, group, args)
    # Thoughts of plain answers are often left out; those of turns with calls then tell as well.
    call = ToolCallBlock(id="call", name=splicer.any_tool, arguments='{"q": "words"}')
    for shown in ((words,), (words, call)):
        gap, found, _ = _after_mark(splicer, traits, shown, args).partition(words.text)
        if found:
            return gap if not gap.strip() else ""
    return ""


def _after_mark(
    splicer: TemplateSplicer, traits: TemplateTraits, group: Sequence[Block], args: Mapping[str, Any]
) -> str:
    if not traits.thought_close:
        return ""
    message = _message((ReasoningBlock(text="thought"), *group))
    written = splicer.rewritten(message, _switched(args, traits, True)) or ""
    return written.partition(traits.thought_close)[2]


def _is_text(group: Sequence[Block]) -> bool:
    return all(isinstance(block, TextBlock) for block in group)


def _switched(args: Mapping[str, Any], traits: TemplateTraits, thinking: bool) -> dict[str, Any]:
    switch = traits.thinking_on if thinking else traits.thinking_off
    return {**args, **(switch or {})}


def _thinks(group: Sequence[Block]) -> bool:
    return any(isinstance(block, ReasoningBlock) for block in group)


def _message(blocks: Sequence[Block]) -> Message:
    return Message(role="assistant", blocks=tuple(blocks))


def _groups(blocks: Sequence[Block]) -> list[list[Block]]:
    """Runs in which thoughts come before text and text before calls."""
    groups: list[list[Block]] = []
    rank = 0
    for block in blocks:
        if isinstance(block, TextBlock | ReasoningBlock) and not block.text.strip():
            continue
        own = _rank(block)
        if not groups or own < rank:
            groups.append([])
        groups[-1].append(block)
        rank = own
    return groups


def _rank(block: Block) -> int:
    if isinstance(block, ReasoningBlock):
        return 0
    return 2 if isinstance(block, ToolCallBlock) else 1
