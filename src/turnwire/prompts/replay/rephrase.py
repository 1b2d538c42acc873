"""What the model would have written for a turn that only the client remembers, with its blocks in order.

Promise: `spoken_in_order` keeps thoughts, text and calls in the order of the message, each in the template's own
words, where the template alone could only group them; None where its words cannot be found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from turnwire.prompts.replay.splicer import Scribe
from turnwire.prompts.templates.traits import TemplateTraits
from turnwire.turns import Block, Message, ReasoningBlock, TextBlock, ToolCallBlock

__all__ = ["Speech", "in_template_order", "spoken_in_order", "spoken_on"]


class Speech(msgspec.Struct, frozen=True):
    """A turn's text, and whether its generation header has thinking on."""

    text: str
    thinking: bool


def in_template_order(blocks: Sequence[Block]) -> bool:
    """Whether the blocks stand as templates group them: thoughts, then text, then calls."""
    return len(_groups(blocks)) <= 1


def spoken_in_order(
    scribe: Scribe, traits: TemplateTraits, blocks: Sequence[Block], args: Mapping[str, Any], thinking: bool
) -> Speech | None:
    """The whole turn behind its generation header."""
    groups = _groups(blocks)
    if not groups:
        return None
    begins = _thinks(groups[0]) or (thinking and traits.tail_off is None)
    first = scribe.spoken(_message(groups[0]), _switched(args, traits, begins))
    if first is None:
        return None
    rest = spoken_on(scribe, traits, [block for group in groups[1:] for block in group], args)
    return None if rest is None else Speech(first + rest, begins)


def spoken_on(
    scribe: Scribe,
    traits: TemplateTraits,
    blocks: Sequence[Block],
    args: Mapping[str, Any],
    *,
    after_thought: bool = False,
) -> str | None:
    """More of a turn that has already begun; `after_thought`: it stands right behind a thought's closing mark."""
    groups = _groups(blocks)
    said: list[str] = []
    if after_thought and groups and isinstance(groups[0][0], TextBlock):
        said.append(_gap(scribe, traits, args))
    for group in groups:
        if all(isinstance(block, TextBlock) for block in group):
            said.append(_message(group).text)
            continue
        text = scribe.spoken(_message(group), _switched(args, traits, _thinks(group)))
        if text is None:
            return None
        said.append((traits.thought_open if _thinks(group) else "") + text)
    return "".join(said)


def _gap(scribe: Scribe, traits: TemplateTraits, args: Mapping[str, Any]) -> str:
    """What the template writes between a thought's closing mark and the text behind it."""
    words = (ReasoningBlock(text="thought"), TextBlock(text="words"))
    spoken = scribe.spoken(_message(words), _switched(args, traits, True)) or ""
    _, mark, rest = spoken.partition(traits.thought_close) if traits.thought_close else ("", "", "")
    gap, found, _ = rest.partition("words")
    return gap if mark and found and not gap.strip() else ""


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
