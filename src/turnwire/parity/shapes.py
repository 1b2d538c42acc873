"""The shape of a request: what a harness tells a model before the task itself, and where two requests differ.

Promise: needs no model and no server; texts are shown by their size and hash, so a diff can be published.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

__all__ = ["Shape", "diff", "shape"]

# What of a request is neither conversation nor shape.
_CONVERSATION = ("messages", "input", "system", "instructions", "tools", "prompt_cache_key", "metadata", "user")
# What differs between any two requests of one harness.
_VOLATILE = ("client_metadata", "safety_identifier", "previous_response_id")


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What can be compared of a request. `tools` has a hash of each tool's definition by name, `settings` every field
    that is neither conversation nor tools."""

    instructions: str
    instructions_size: int
    tools: dict[str, str]
    settings: dict[str, str]


def shape(body: dict[str, Any]) -> Shape:
    """The shape of a request body of any of the three APIs."""
    instructions = _instructions(body)
    tools = {_name(tool): _hash(msgspec.json.encode(tool, order="sorted")) for tool in body.get("tools") or []}
    skipped = (*_CONVERSATION, *_VOLATILE)
    settings = {
        name: msgspec.json.encode(value, order="sorted").decode() for name, value in body.items() if name not in skipped
    }
    return Shape(
        instructions=_hash(instructions.encode()),
        instructions_size=len(instructions),
        tools=tools,
        settings=dict(sorted(settings.items())),
    )


def diff(first: Shape, second: Shape) -> list[str]:
    """Every difference as a line; none where the shapes are the same."""
    lines = []
    if first.instructions != second.instructions:
        lines.append(
            f"instructions: {first.instructions_size} characters ({first.instructions}) against "
            f"{second.instructions_size} ({second.instructions})"
        )
    for name in sorted(first.tools.keys() | second.tools.keys()):
        one, other = first.tools.get(name), second.tools.get(name)
        if one is None or other is None:
            lines.append(f"tool {name}: only in the {'second' if one is None else 'first'}")
        elif one != other:
            lines.append(f"tool {name}: defined differently")
    for name in sorted(first.settings.keys() | second.settings.keys()):
        was, now = first.settings.get(name, "absent"), second.settings.get(name, "absent")
        if was != now:
            lines.append(f"{name}: {was} against {now}")
    return lines


def _instructions(body: dict[str, Any]) -> str:
    """The system prompt of any API, with what the harness says as the developer."""
    told = _parts(body.get("instructions")) + _parts(body.get("system"))
    for name in ("messages", "input"):
        found = body.get(name)
        for message in found if isinstance(found, list) else []:
            if isinstance(message, dict) and message.get("role") in ("system", "developer"):
                told += _parts(message.get("content"))
    return "\n\n".join(told)


def _parts(content: object) -> list[str]:
    if isinstance(content, str):
        return [content]
    if isinstance(content, list):
        return [part if isinstance(part, str) else str(part.get("text", "")) for part in content if part]
    return []


def _name(tool: Any) -> str:
    if not isinstance(tool, dict):
        return repr(tool)[:80]
    inner = tool.get("function")
    return str(tool.get("name") or (inner.get("name") if isinstance(inner, dict) else None) or tool.get("type"))


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]
