"""The tools of a request and the choice among them.

Promise: every tool the client can run is offered to the model; a tool that only a hosted service could run is left out
and noted, never refused.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from turnwire.protocols.json_body import any_value, first_byte, invalid, nesting, part
from turnwire.protocols.limits import Limits
from turnwire.turns import JSON, Note, Tool, ToolChoice

__all__ = ["WireTool", "read_tool_choice", "read_tools", "tool_from"]


class WireTool(msgspec.Struct):
    """A tool as the wire defines it; `cache_control`, `eager_input_streaming` and the like need no reading: nothing is
    cached by mark, and arguments always stream."""

    name: str | None = None
    type: str | None = None
    description: str | None = None
    input_schema: msgspec.Raw = msgspec.Raw(b"")
    defer_loading: bool | None = None
    strict: bool | None = None


class _WireChoice(msgspec.Struct):
    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


_TOOLS = msgspec.json.Decoder(list[msgspec.Raw])
_TOOL = msgspec.json.Decoder(WireTool)
_CHOICE = msgspec.json.Decoder(_WireChoice)
_MODES: Mapping[str, str] = {"auto": "auto", "any": "required", "none": "none", "tool": "named"}

_TEXT: JSON = {"type": "string"}
_RANGE: JSON = {"type": "array", "items": {"type": "integer"}}
_CLIENT_TOOLS: Mapping[str, tuple[str, dict[str, JSON]]] = {
    "bash_": (
        "Run a shell command in a session that persists between calls; `restart` starts a new session.",
        {"type": "object", "properties": {"command": _TEXT, "restart": {"type": "boolean"}}},
    ),
    "text_editor_": (
        "View, create and edit text files.",
        {
            "type": "object",
            "properties": {
                "command": {"type": "string", "enum": ["view", "create", "str_replace", "insert"]},
                "path": _TEXT,
                "file_text": _TEXT,
                "old_str": _TEXT,
                "new_str": _TEXT,
                "insert_line": {"type": "integer"},
                "insert_text": _TEXT,
                "view_range": _RANGE,
            },
            "required": ["command", "path"],
        },
    ),
    "memory_": (
        "Read and write files in a directory that outlives the conversation.",
        {
            "type": "object",
            "properties": {
                "command": {"type": "string", "enum": ["view", "create", "str_replace", "insert", "delete", "rename"]},
                "path": _TEXT,
                "file_text": _TEXT,
                "old_str": _TEXT,
                "new_str": _TEXT,
                "insert_line": {"type": "integer"},
                "insert_text": _TEXT,
                "view_range": _RANGE,
                "old_path": _TEXT,
                "new_path": _TEXT,
            },
            "required": ["command"],
        },
    ),
}
"""Tools that the client runs but names only by type: prefix of the type, what they do, their arguments."""


def read_tools(raw: msgspec.Raw, limits: Limits, notes: list[Note]) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    """The tools on offer, and the names of the hosted tools that were left out."""
    items = part(_TOOLS, raw, "tools")
    if len(items) > limits.tools:
        raise invalid("tools", f"{len(items)} tools; the limit is {limits.tools}")
    tools: dict[str, Tool] = {}
    hosted: list[str] = []
    searches = False
    for index, item in enumerate(items):
        path = f"tools.{index}"
        wire = part(_TOOL, item, path)
        tool = tool_from(wire, path, limits)
        if tool is None:
            hosted.append(wire.name or wire.type or "")
            searches = searches or (wire.type or "").startswith("tool_search_tool")
            notes.append(
                Note(
                    "tools.hosted_ignored", f"{path}: {wire.type} has no schema and is run by nobody here; not offered"
                )
            )
        elif tool.name in tools:
            notes.append(Note("tools.duplicate", f"{path}: {tool.name} is defined twice; the first definition holds"))
        else:
            tools[tool.name] = tool
    if searches and any(tool.deferred for tool in tools.values()):
        notes.append(
            Note("tools.search_replaced", "hosted tool search is not offered: deferred tools are shown at once")
        )
        return tuple(msgspec.structs.replace(tool, deferred=False) for tool in tools.values()), tuple(hosted)
    return tuple(tools.values()), tuple(hosted)


def read_tool_choice(
    raw: msgspec.Raw, tools: tuple[Tool, ...], hosted: tuple[str, ...], notes: list[Note], *, continued: bool = False
) -> ToolChoice:
    """The client's choice among the tools. A request that continues a thread (`continued`) has its tools elsewhere."""
    if first_byte(raw) == '"':
        wire = _WireChoice(any_value(raw, "tool_choice"))
    else:
        wire = part(_CHOICE, raw, "tool_choice")
    mode = _MODES.get(wire.type)
    if mode is None:
        raise invalid("tool_choice.type", f"{wire.type!r} is none of auto, any, tool, none")
    parallel = not wire.disable_parallel_tool_use
    if mode == "named":
        if not wire.name:
            raise invalid("tool_choice.name", "needed with type 'tool'")
        if wire.name in hosted:
            notes.append(Note("tools.choice_ignored", f"tool_choice names {wire.name}, which is not offered"))
            return ToolChoice(parallel=parallel)
        if not continued and all(tool.name != wire.name for tool in tools):
            raise invalid("tool_choice.name", f"no tool named {wire.name!r} in tools")
        return ToolChoice(mode="named", name=wire.name, parallel=parallel)
    if mode == "required":
        if tools or continued:
            return ToolChoice(mode="required", parallel=parallel)
        if not hosted:
            raise invalid("tool_choice", "type 'any' needs at least one tool")
        notes.append(Note("tools.choice_ignored", "tool_choice forces a call, but no tool is offered"))
    return ToolChoice(mode="none" if mode == "none" else "auto", parallel=parallel)


def tool_from(wire: WireTool, path: str, limits: Limits) -> Tool | None:
    """The tool behind a definition; None for one that the client cannot run."""
    kind = wire.type or "custom"
    has_schema = first_byte(wire.input_schema) == "{"
    description, schema = wire.description or "", None
    if has_schema:
        if nesting(wire.input_schema, limits.depth):
            raise invalid(f"{path}.input_schema", f"nested deeper than {limits.depth}")
        schema = any_value(wire.input_schema, f"{path}.input_schema")
    elif kind == "custom":
        schema = {"type": "object", "properties": {}}
    else:
        for prefix, (about, known) in _CLIENT_TOOLS.items():
            if kind.startswith(prefix):
                description, schema = description or about, known
    if schema is None:
        return None
    if not wire.name or len(wire.name) > limits.name_chars:
        raise invalid(f"{path}.name", f"a tool needs a name of 1 to {limits.name_chars} characters")
    return Tool(
        name=wire.name,
        description=description,
        schema=schema,
        strict=bool(wire.strict),
        deferred=bool(wire.defer_loading),
    )
