"""Naming the parts of a rendered text.

Promise: labels ascend from the text's first character to its last, so the sections made of them leave no gap; each
stands where the part's own words (or the control token right before them) begin.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwire.prompts.replay.tokenized_text import Label
from turnwire.prompts.templates.probing.scenes import markers
from turnwire.turns import Message, ReasoningBlock, TextBlock, Tool, ToolCallBlock, ToolResultBlock

__all__ = ["labelled"]

_NEEDLE = 48
_REACH = 80


def labelled(
    text: str, tail: str | None, messages: Sequence[Message], start: int, end: int, tools: Sequence[Tool] = ()
) -> list[Label]:
    """Labels of `text`, which shows `messages[start:end]` and perhaps `tools`, and ends with `tail`."""
    found: dict[int, Label] = {}
    limit = len(text) - len(tail or "")
    cursor = 0
    for index in range(start, end):
        for needle in _needles(messages[index]):
            at = text.find(needle, cursor, limit)
            if at >= 0:
                kind = "system" if messages[index].role in ("system", "developer") else "message"
                found[_header(text, cursor, at)] = Label(kind, index, _header(text, cursor, at))
                cursor = at + 1
                break
    _find_tools(text, tools, found, limit)
    if tail and limit > 0:
        found[limit] = Label("generation", end, limit)
    if 0 not in found:
        found[0] = Label("frame", start, 0)
    return [found[at] for at in sorted(found)]


def _find_tools(text: str, tools: Sequence[Tool], found: dict[int, Label], limit: int) -> None:
    cursor = 0
    for number, tool in enumerate(tools):
        at = text.find(f'"{tool.name}"', cursor, limit)
        if at < 0:
            at = text.find(tool.name, cursor, limit)
        if at < 0:
            continue
        line = text.rfind("\n", max(cursor, at - _REACH), at) + 1 or at
        cursor = at + 1
        found.setdefault(line, Label("tools", number, line))


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
