"""Reading template messages in an encoding.

Promise: whatever shape a field has, these give a plain value or a TemplateFailure that says what is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from turnwire.prompts.templates.sandbox import TemplateFailure

__all__ = ["arguments_of", "calls_of", "compact", "text_of", "thought_of"]


def text_of(message: Mapping[str, Any]) -> str:
    """The message's text, from a string or from text parts."""
    content = message.get("content")
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    raise TemplateFailure("refused", "a message's content must be text or a list of text parts")


def thought_of(message: Mapping[str, Any]) -> str:
    thought = message.get("reasoning_content")
    return thought if isinstance(thought, str) else ""


def calls_of(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The functions of a message's tool calls."""
    return [call.get("function", call) for call in message.get("tool_calls") or ()]


def arguments_of(function: Mapping[str, Any]) -> dict[str, Any]:
    """A call's arguments as an object."""
    given = function.get("arguments")
    if isinstance(given, str):
        try:
            given = json.loads(given) if given.strip() else {}
        except ValueError:
            raise TemplateFailure("refused", "a call's arguments are not JSON") from None
    if not isinstance(given, dict):
        raise TemplateFailure("refused", "a call's arguments must be an object")
    return given


def compact(value: Any) -> str:
    """JSON as models write it, Unicode kept."""
    return json.dumps(value, ensure_ascii=False)
