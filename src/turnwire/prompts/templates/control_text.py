"""Keeps content from becoming control: text that spells one of the model's control tokens stays text.

Promise: only the template and the model write control tokens. Before rendering, a spelling inside content is laced with
a mark that no content holds; afterwards the marks are taken out again, and every spelling that had one inside is
reported as literal, whatever the template did to the text in between (trimmed it, put it into JSON, joined it to its
own brackets). Content without a spelling costs one search and is left as it is.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import accumulate, chain
from typing import Any, TypeVar

import msgspec

from turnwire.prompts.templates.probing.samples import mark
from turnwire.prompts.tokenizers.spellings import longest_of
from turnwire.turns import (
    Block,
    Message,
    ReasoningBlock,
    TextBlock,
    Tool,
    ToolCallBlock,
    ToolResultBlock,
)

__all__ = ["ControlText", "Marks"]

# Unicode's noncharacters: meant for a program's own use, never for interchange.
_NONCHARACTERS = tuple(chr(point) for point in range(0xFDD0, 0xFDF0))
_FIRST = _NONCHARACTERS[0].encode()
_FIRST_ESCAPED = tuple(
    f"\\u{digits}".encode() for digits in ("fdd0", "FDD0", "Fdd0", "fDd0", "fdD0", "FDd0", "FdD0", "fDD0")
)
_OWN_WORDS = (mark("Stub"), mark("Next"))  # by these the builder finds its places in rendered text

_Value = TypeVar("_Value")


class ControlText:
    """The spellings of one model's control tokens. May be shared by threads."""

    def __init__(self, spellings: Iterable[str]) -> None:
        self._spellings = tuple(sorted(set(spellings)))
        by_first: dict[str, list[str]] = {}
        for spelling in (*self._spellings, *_OWN_WORDS):
            by_first.setdefault(spelling[0], []).append(spelling)
        # One expression per first character: each then searches at the speed of looking for that character.
        self._expressions = tuple(longest_of(group) for group in by_first.values())
        self._control = longest_of(self._spellings) if self._spellings else None
        # What a template may complete with brackets of its own: `think` to `<think>`.
        self._cores = frozenset(core for spelling in self._spellings for core in _cores(spelling))
        self._beginnings = _by_edge((s[:size] for s in self._spellings for size in range(2, len(s))), -1)
        self._endings = _by_edge((s[-size:] for s in self._spellings for size in range(2, len(s))), 0)

    # --------------------------------------------------------------------------------------------------- finding

    def in_text(self, text: str) -> bool:
        """Whether a rendering of `text` may hold a control token that is not the template's."""
        for expression in self._expressions:
            if expression.search(text):
                return True
        return self._completes(text) or text.endswith(self._beginnings.get(text[-1:], ())) or self._continues(text)

    def _continues(self, text: str) -> bool:
        return text.startswith(self._endings.get(text[:1], ()))

    def _completes(self, text: str) -> bool:
        """Whether the text is a spelling but for brackets that a template may put around it."""
        return text in self._cores

    def in_message(self, message: Message) -> bool:
        return any(map(self.in_text, chain.from_iterable(map(_texts_of, message.blocks))))

    def in_tool(self, tool: Tool) -> bool:
        return any(map(self.in_text, _texts_of_tool(tool)))

    def in_value(self, value: Any) -> bool:
        return any(map(self.in_text, _leaves(value)))

    # --------------------------------------------------------------------------------------------------- marking

    def holds_mark(self, raw: bytes) -> bool:
        """Whether UTF-8 text holds the first choice of a mark, as it is or escaped."""
        return _FIRST in raw or (b"\\u" in raw and any(escaped in raw for escaped in _FIRST_ESCAPED))

    def first_marks(self) -> Marks:
        """Marks for content that is known not to hold the first choice."""
        return Marks(self, _NONCHARACTERS[0])

    def marks(self, messages: Iterable[Message], tools: Iterable[Tool], value: Any = None) -> Marks | None:
        """Marks that occur in none of the given content, neither as they are nor escaped; None where content uses them
        all."""
        texts = [text for message in messages for block in message.blocks for text in _texts_of(block)]
        texts += [text for tool in tools for text in _texts_of_tool(tool)]
        texts += _leaves(value)
        whole = "\n".join(texts)
        lower = whole.lower() if "\\u" in whole.lower() else ""
        for character in _NONCHARACTERS:
            if character not in whole and _escaped(character) not in lower:
                return Marks(self, character)
        return None

    def places(self, text: str) -> list[int]:
        """Where marks go in `text`: inside each spelling, and at an end that a neighbour could complete."""
        found: set[int] = set()
        for expression in self._expressions:
            at = 0
            while (match := expression.search(text, at)) is not None:
                found.update(range(match.start() + 1, match.end()))
                at = match.start() + 1
        if self._completes(text):
            found.update(range(len(text) + 1))
        if text.endswith(self._beginnings.get(text[-1:], ())):
            found.add(len(text))
        if self._continues(text):
            found.add(0)
        return sorted(found)

    def spans(self, text: str, marked: Sequence[int]) -> list[tuple[int, int]]:
        """The spellings in `text` that have one of the ascending places `marked` inside."""
        found: list[tuple[int, int]] = []
        at = 0
        while self._control is not None and (match := self._control.search(text, at)) is not None:
            start, end = match.span()
            first = bisect_right(marked, start)
            if first < len(marked) and marked[first] < end:
                found.append((start, end))
                at = start + 1
            else:
                at = end
        return found


class Marks:
    """One conversation's mark, put into content and taken out of what was rendered from it."""

    def __init__(self, control: ControlText, character: str) -> None:
        self._control = control
        self._mark = character

    def text(self, text: str) -> str:
        places = self._control.places(text)
        if not places:
            return text
        pieces = [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]
        return self._mark.join(pieces)

    def message(self, message: Message, keep: Sequence[str] = ()) -> Message:
        """The message with its content marked. `keep` are spellings that its text may hold: the template reads them
        out of it."""
        return Message(role=message.role, blocks=tuple(self._block(block, keep) for block in message.blocks))

    def _block(self, block: Block, keep: Sequence[str]) -> Block:
        match block:
            case TextBlock():
                return TextBlock(text=self._kept(block.text, keep))
            case ReasoningBlock():
                return msgspec.structs.replace(block, text=self.text(block.text))
            case ToolCallBlock():
                return msgspec.structs.replace(
                    block, id=self.text(block.id), name=self.text(block.name), arguments=self._arguments(block)
                )
            case ToolResultBlock():
                content = tuple(
                    TextBlock(text=self.text(part.text)) if isinstance(part, TextBlock) else part
                    for part in block.content
                )
                name = self.text(block.name) if block.name else block.name
                return msgspec.structs.replace(block, call_id=self.text(block.call_id), content=content, name=name)
            case _:
                return block

    def _kept(self, text: str, keep: Sequence[str]) -> str:
        if not keep:
            return self.text(text)
        parts = re.split("(" + "|".join(map(re.escape, keep)) + ")", text)
        return "".join(part if number % 2 else self.text(part) for number, part in enumerate(parts))

    def _arguments(self, call: ToolCallBlock) -> str:
        """JSON text, marked inside; written anew where escapes hide a spelling."""
        if call.kind == "custom" or "\\" not in call.arguments:
            return self.text(call.arguments)
        try:
            value = json.loads(call.arguments)
        except (ValueError, RecursionError):
            return self.text(call.arguments)
        if not self._control.in_value(value):
            return call.arguments
        return json.dumps(self.value(value), ensure_ascii=False)

    def tool(self, tool: Tool) -> Tool:
        return msgspec.structs.replace(
            tool,
            name=self.text(tool.name),
            description=self.text(tool.description),
            schema=self.value(tool.schema),
            grammar=self.text(tool.grammar) if tool.grammar else tool.grammar,
        )

    def value(self, value: _Value) -> _Value:
        """A JSON value with every text in it marked, its keys too."""
        marked: Any = value
        if isinstance(value, str):
            marked = self.text(value)
        elif isinstance(value, dict):
            marked = {self.value(key): self.value(item) for key, item in value.items()}
        elif isinstance(value, list | tuple):
            marked = [self.value(item) for item in value]
        return marked  # type: ignore[no-any-return]

    def taken_out(self, text: str) -> tuple[str, list[tuple[int, int]]]:
        """Rendered text without marks, and the spans in it that spell control tokens and are content."""
        escaped = _escaped(self._mark)
        if "\\u" in text:
            text = text.replace(escaped, self._mark)
        if self._mark not in text:
            return text, []
        pieces = text.split(self._mark)
        plain = "".join(pieces)
        return plain, self._control.spans(plain, list(accumulate(map(len, pieces[:-1]))))


def _cores(spelling: str) -> Iterable[str]:
    """The parts of a spelling that hold all its letters and digits."""
    places = [place for place, character in enumerate(spelling) if character.isalnum()]
    if places:
        for start in range(places[0] + 1):
            for end in range(places[-1] + 1, len(spelling) + 1):
                if end - start < len(spelling):
                    yield spelling[start:end]


def _by_edge(parts: Iterable[str], edge: int) -> dict[str, tuple[str, ...]]:
    """The parts by their first or last character."""
    found: dict[str, set[str]] = {}
    for part in parts:
        found.setdefault(part[edge], set()).add(part)
    return {character: tuple(sorted(group)) for character, group in found.items()}


def _escaped(character: str) -> str:
    return f"\\u{ord(character):04x}"


def _texts_of(block: Block) -> list[str]:
    """Every text of a block that a template may show."""
    match block:
        case TextBlock() | ReasoningBlock():
            return [block.text]
        case ToolCallBlock():
            texts = [block.id, block.name, block.arguments]
            if "\\" in block.arguments:
                with suppress(ValueError, RecursionError):
                    texts += _leaves(json.loads(block.arguments))
            return texts
        case ToolResultBlock():
            return [block.call_id, block.name or "", *(p.text for p in block.content if isinstance(p, TextBlock))]
        case _:
            return []


def _texts_of_tool(tool: Tool) -> list[str]:
    return [tool.name, tool.description, tool.grammar or "", *_leaves(tool.schema)]


def _leaves(value: Any) -> list[str]:
    """Every text in a JSON value."""
    found: list[str] = []
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            found.append(item)
        elif isinstance(item, dict):
            waiting.extend(item)
            waiting.extend(item.values())
        elif isinstance(item, list | tuple):
            waiting.extend(item)
    return found
