"""The small synthetic conversations that a template is asked to render, and the marks that make their parts findable.

Promise: every mark is a plain alphanumeric word that no template escapes, trims or contains by itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from turnwire.prompts.templates.template import Renderer, TemplateFailure, TemplateMessage

__all__ = [
    "SampleTurns",
    "TrialRenderer",
    "after",
    "between",
    "call_turn",
    "common_prefix",
    "common_suffix",
    "mark",
    "marker_start",
    "markers",
    "said_by_user",
    "tool",
]

# What looks like a control token in rendered text: angle or square brackets around a word.
_MARKER = re.compile(r"<[^<>\s]{1,80}>|\[/?[A-Za-z_]{2,40}\]")


def mark(name: str) -> str:
    """A word that stands for a part of a sample."""
    return f"Zq{name}Vx"


def tool(name: str = mark("tool")) -> dict[str, Any]:
    """A tool with two parameters."""
    schema = {
        "type": "object",
        "properties": {"q": {"type": "string", "description": "what"}, "n": {"type": "integer", "description": "how"}},
        "required": ["q"],
    }
    return {"type": "function", "function": {"name": name, "description": "Does things.", "parameters": schema}}


def said_by_user(text: str) -> TemplateMessage:
    return {"role": "user", "content": text}


def call_turn(*calls: tuple[str, str, Any], content: str = "") -> TemplateMessage:
    """An assistant turn that makes `calls`: (id, name, arguments)."""
    made = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for call_id, name, arguments in calls
    ]
    return {"role": "assistant", "content": content, "tool_calls": made}


class SampleTurns:
    """Calls and results of the samples, in the argument form and with the two ids that the template takes."""

    def __init__(self, arguments: str = "object", ids: tuple[str, str] = ("Qcall1", "Rcall2")) -> None:
        self.arguments = arguments
        self.ids = ids

    def made(self, value: str, **more: Any) -> Any:
        """The arguments of a call, `value` among them."""
        given = {"q": value, **more}
        return json.dumps(given) if self.arguments == "text" else given

    def call(self, number: int, name: str, value: str, content: str = "") -> TemplateMessage:
        """A turn with one call, under the first or the second id."""
        return call_turn((self.ids[number], name, self.made(value)), content=content)

    def result(self, number: int, name: str, content: str) -> TemplateMessage:
        return {"role": "tool", "tool_call_id": self.ids[number], "name": name, "content": content}

    def loop(self, content: str = "") -> list[TemplateMessage]:
        """A request, a call and its result."""
        call = self.call(0, "alpha", mark("arg"), content)
        return [said_by_user("go"), call, self.result(0, "alpha", mark("result"))]


class TrialRenderer:
    """A renderer to try samples on: what fails to render is None."""

    def __init__(self, renderer: Renderer, *, content: str = "text", empty_tools: str = "none") -> None:
        self._renderer = renderer
        self.content = content
        self.empty_tools = empty_tools

    def show(
        self,
        messages: Sequence[TemplateMessage],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        generation: bool = True,
        args: Mapping[str, Any] | None = None,
    ) -> str | None:
        shaped = [self._shaped(message) for message in messages]
        offered = tools or ([] if self.empty_tools == "list" else None)
        try:
            return self._renderer.render(shaped, tools=offered, generation=generation, args=args)
        except TemplateFailure:
            return None

    def _shaped(self, message: TemplateMessage) -> TemplateMessage:
        if self.content == "parts" and isinstance(message.get("content"), str):
            return {**message, "content": [{"type": "text", "text": message["content"]}]}
        return message


def after(text: str | None, word: str) -> str | None:
    """What follows the last occurrence of `word`."""
    if text is None:
        return None
    at = text.rfind(word)
    return None if at < 0 else text[at + len(word) :]


def between(text: str | None, first: str, second: str) -> str | None:
    """What is between the last `first` and the next `second`."""
    rest = after(text, first)
    if rest is None:
        return None
    at = rest.find(second)
    return None if at < 0 else rest[:at]


def common_prefix(first: str, second: str) -> str:
    size = 0
    for a, b in zip(first, second, strict=False):
        if a != b:
            break
        size += 1
    return first[:size]


def common_suffix(first: str, second: str) -> str:
    """The longest common ending that does not begin inside a control token of either text."""
    size = 0
    for a, b in zip(reversed(first), reversed(second), strict=False):
        if a != b:
            break
        size += 1
    size = min(size - _inside(first, len(first) - size), size - _inside(second, len(second) - size))
    return first[len(first) - size :] if size > 0 else ""


def markers(text: str) -> list[tuple[int, int]]:
    """Where the control tokens of `text` are."""
    return [found.span() for found in _MARKER.finditer(text)]


def marker_start(text: str) -> int | None:
    """Where a control token starts that `text` ends with, trailing blanks aside; None if it ends with none."""
    stripped = len(text.rstrip())
    for found in _MARKER.finditer(text):
        if found.end() == stripped:
            return found.start()
    return None


def _inside(text: str, position: int) -> int:
    """How far `position` has to move right to leave the control token it lies in."""
    for found in _MARKER.finditer(text):
        if found.start() < position < found.end():
            return found.end() - position
    return 0
