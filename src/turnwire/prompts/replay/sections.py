"""Naming the parts of a rendered text.

Promise: labels ascend from the text's first character to its last, so the sections made of them leave no gap; each
is where the part's own text (or the control token right before it) begins. The labels of a text that grew are
those of the whole text, although only its new part is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from turnwire.prompts.replay.tokenized_text import Label
from turnwire.prompts.templates.probing.samples import markers
from turnwire.turns import Message, ReasoningBlock, TextBlock, Tool, ToolCallBlock, ToolResultBlock

__all__ = ["FoundMessage", "Labelling", "label_messages", "label_tools", "labels_of"]

_NEEDLE = 48
_REACH = 80


class FoundMessage(msgspec.Struct, frozen=True, gc=False):
    """A message whose words were found; its label is at `start`, and `end` is the end of what was looked at."""

    kind: str
    index: int
    start: int
    at: int
    end: int


class Labelling(msgspec.Struct, frozen=True, gc=False):
    """What was found in a text, and `missed`: what was looked for in vain, with the index of its message."""

    found: list[FoundMessage]
    missed: list[tuple[int, str]]


def label_messages(
    text: str, limit: int, messages: Sequence[Message], indices: Iterable[int], cursor: int = 0
) -> Labelling:
    """Where the messages begin in `text[:limit]`, which shows them in this order from `cursor` on."""
    found: list[FoundMessage] = []
    missed: list[tuple[int, str]] = []
    for index in indices:
        for needle in _needles(messages[index]):
            at = text.find(needle, cursor, limit)
            if at < 0:
                missed.append((index, needle))
                continue
            kind = "system" if messages[index].role in ("system", "developer") else "message"
            found.append(FoundMessage(kind, index, _header(text, cursor, at), at, at + len(needle)))
            cursor = at + 1
            break
    return Labelling(found, missed)


def label_tools(text: str, limit: int, tools: Sequence[Tool]) -> tuple[list[Label], list[str], int]:
    """Where the tools begin, the names that were looked for in vain, and the end of the last name that was found."""
    found: list[Label] = []
    missed: list[str] = []
    cursor = end = 0
    for number, tool in enumerate(tools):
        at = text.find(f'"{tool.name}"', cursor, limit)
        if at < 0:
            missed.append(f'"{tool.name}"')
            at = text.find(tool.name, cursor, limit)
        if at < 0:
            missed.append(tool.name)
            continue
        line = text.rfind("\n", max(cursor, at - _REACH), at) + 1 or at
        cursor = at + 1
        end = at + len(tool.name)
        found.append(Label("tools", number, line))
    return found, missed, end


def labels_of(
    found: Iterable[FoundMessage],
    tools: Iterable[Label],
    limit: int,
    *,
    tail: bool,
    start: int,
    end: int,
    begins: bool = True,
) -> list[Label]:
    """All labels of a text that shows the messages from `start` to `end`, and a generation header at `limit` if it has
    a `tail`. One that does not `begin` here is the rest of another."""
    labels: dict[int, Label] = {}
    for tool in tools:
        labels.setdefault(tool.start, tool)
    for message in found:
        labels[message.start] = Label(message.kind, message.index, message.start)
    if tail and limit > 0:
        labels[limit] = Label("generation", end, limit)
    if begins and 0 not in labels:
        labels[0] = Label("frame", start, 0)
    return [labels[at] for at in sorted(labels)]


def _header(text: str, floor: int, at: int) -> int:
    """The start of the control tokens that lead up to a part, if they are close."""
    near = max(floor, at - _REACH)
    for start, _ in reversed(markers(text[near:at])):
        if "\n\n" not in text[near + start : at]:
            return near + start
    return at


def _needles(message: Message) -> list[str]:
    """Words to look for, best first; templates may trim and escape, so the first plain line will do."""
    needles: list[str] = []
    for block in message.blocks:
        if isinstance(block, TextBlock | ReasoningBlock):
            needles += _first_line(block.text)
        elif isinstance(block, ToolResultBlock):
            for part in block.content:
                if isinstance(part, TextBlock):
                    needles += _first_line(part.text)
        elif isinstance(block, ToolCallBlock):
            needles.append(block.name)
    return needles[:4]


def _first_line(text: str) -> list[str]:
    line = text.strip().partition("\n")[0][:_NEEDLE].strip()
    return [line] if line else []
