"""Tools that come and go in mid-conversation: `tool_addition` and `tool_removal` blocks.

Promise: a change becomes a sentence at its own place in the conversation, so that everything before it stays the same
prompt. An added tool joins the offer as a deferred one: callable, but not part of the prompt's tool section.
"""

from __future__ import annotations

from typing import Any

import msgspec

from turnwire.protocols.anthropic.request.tools import WireTool, tool_from
from turnwire.protocols.fields.body import part
from turnwire.protocols.limits import Limits
from turnwire.turns import TextBlock, Tool

__all__ = ["TOOL_CHANGES", "read_tool_change"]

TOOL_CHANGES = frozenset({"tool_addition", "tool_removal"})


class _WireChanged(msgspec.Struct):
    type: str
    name: str | None = None
    definition: WireTool | None = None


class _WireChange(msgspec.Struct):
    type: str
    tool: _WireChanged


_CHANGE = msgspec.json.Decoder(_WireChange)
_encode = msgspec.json.Encoder().encode


def read_tool_change(raw: bytes | msgspec.Raw, path: str, tools: dict[str, Tool], limits: Limits) -> TextBlock | None:
    """The sentence that says the change, with `tools` updated; None where the change names a tool we do not have."""
    wire = part(_CHANGE, raw, path)
    changed = wire.tool
    if wire.type == "tool_removal":
        if changed.name not in tools:
            return None
        return TextBlock(text=f"The tool {changed.name} is no longer available.\n")
    if changed.type == "tool_definition" and changed.definition is not None:
        tool = tool_from(changed.definition, f"{path}.tool.definition", limits)
        if tool is None:
            return None
        tools[tool.name] = msgspec.structs.replace(tool, deferred=True)
        return _announcement(tool)
    known = tools.get(changed.name or "") if changed.type == "tool_reference" else None
    return _announcement(known) if known is not None else None


def _announcement(tool: Tool) -> TextBlock:
    signature: dict[str, Any] = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    return TextBlock(text=f"From here on this tool is available:\n{_encode(signature).decode()}\n")
