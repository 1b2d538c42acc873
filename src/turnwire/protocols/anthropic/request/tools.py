"""The tools of a request and the choice among them.

Promise: every tool the client can run is offered to the model, and every hosted tool that the gateway runs; any other
hosted tool is left out and noted, never refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from turnwire.protocols.fields.body import any_value, elements, first_byte, invalid, part
from turnwire.protocols.fields.decoded import DecodedParts, PartNote, PartReader
from turnwire.protocols.fields.members import MEMBERS, member_notes
from turnwire.protocols.fields.reader import Fields
from turnwire.protocols.hosted.offer import BASH, CODE, FETCH, NOTHING, SEARCH, HostedOffer, domains, server_tools
from turnwire.protocols.limits import Limits
from turnwire.turns import JSON, HostedUse, Tool, ToolChoice

__all__ = ["OfferedTools", "WireTool", "demanded_hosted", "read_tool_choice", "read_tools", "tool_from"]


class WireTool(msgspec.Struct):
    """A tool as the wire defines it; `cache_control`, `eager_input_streaming` and the like need no reading: nothing is
    cached by mark, and arguments always stream."""

    name: str | None = None
    type: str | None = None
    description: str | None = None
    input_schema: msgspec.Raw = msgspec.Raw(b"")
    defer_loading: bool | None = None
    strict: bool | None = None
    max_uses: int | None = None
    allowed_domains: JSON = None
    blocked_domains: JSON = None
    mcp_server_name: str | None = None


class _WireChoice(msgspec.Struct):
    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


_TOOL = msgspec.json.Decoder(WireTool)
_RAW_MEMBERS: msgspec.json.Decoder[Mapping[str, Any]] = msgspec.json.Decoder(dict[str, msgspec.Raw])
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


_KINDS: Mapping[str, tuple[Tool, ...]] = {
    "web_search_": (SEARCH,),
    "web_fetch_": (FETCH,),
    "code_execution_20250522": (CODE,),
    "code_execution_": (CODE, BASH),
}
"""Hosted tools that a gateway can run: prefix of the type (the first that fits counts), and how the model sees them.
Only the first version of code execution has no shell."""


class OfferedTools(msgspec.Struct, frozen=True):
    """The tools on offer, the names of the hosted tools that are left out, and how those that are run here are used."""

    tools: tuple[Tool, ...] = ()
    hosted: tuple[str, ...] = ()
    notes: tuple[PartNote, ...] = ()
    uses: Mapping[str, HostedUse] = msgspec.field(default_factory=dict)


def read_tools(fields: Fields, cache: DecodedParts | None, offer: HostedOffer = NOTHING) -> OfferedTools:
    """The tools of a request. A list that was seen before is not decoded again."""
    raw = fields.raw("tools")
    if raw is None:
        return OfferedTools()
    limits = fields.limits
    reader = PartReader(cache, lambda data: _tools(data, limits, offer), "anthropic.tools", limits, offer.mark)
    offered = reader.value(raw, "tools")
    fields.notes.on_part("tools", offered.notes)
    return offered


def _tools(data: bytes, limits: Limits, offer: HostedOffer) -> OfferedTools:
    items = elements(data, "", "must be a list of tools")
    if len(items) > limits.tools:
        raise invalid("", f"{len(items)} tools; the limit is {limits.tools}")
    tools: dict[str, Tool] = {}
    hosted: list[str] = []
    notes: list[PartNote] = []
    uses: dict[str, HostedUse] = {}
    searches = False
    for index, item in enumerate(items):
        path = f".{index}"
        wire = part(_TOOL, item, path)
        notes += member_notes(MEMBERS["Messages"], part(_RAW_MEMBERS, item, path), path)
        run_here = _run_here(wire, offer)
        for own, use in run_here:
            uses[own.name] = use
            tools.setdefault(own.name, own)
        if run_here:
            continue
        tool = tool_from(wire, path, limits)
        if tool is None:
            kind = (wire.type or "")[:64]
            hosted.append(wire.name or kind)
            searches = searches or kind.startswith("tool_search_tool")
            text = f"{kind} has no schema and nothing here runs it; not offered"
            notes.append(PartNote("tools.hosted_ignored", path, text, kind))
        elif tool.name in tools:
            text = f"{tool.name} is defined twice; the first definition holds"
            notes.append(PartNote("tools.duplicate", path, text, tool.name))
        else:
            tools[tool.name] = tool
    found = tuple(tools.values())
    if searches and any(tool.deferred for tool in found):
        text = "hosted tool search is not offered: deferred tools are shown at once"
        notes.append(PartNote("tools.search_replaced", "", text))
        found = tuple(msgspec.structs.replace(tool, deferred=False) for tool in found)
    return OfferedTools(found, tuple(hosted), tuple(notes), uses)


def _run_here(wire: WireTool, offer: HostedOffer) -> list[tuple[Tool, HostedUse]]:
    """The tools of a definition that the gateway runs itself."""
    kind = wire.type or ""
    if kind == "mcp_toolset":
        return server_tools(offer, wire.mcp_server_name or "", None)
    own = next((tools for prefix, tools in _KINDS.items() if kind.startswith(prefix)), ())
    return [
        (
            tool if tool is BASH else msgspec.structs.replace(tool, name=wire.name or tool.name),
            HostedUse(
                kind=tool.name,  # type: ignore[arg-type]
                server=tool.name,
                most=wire.max_uses,
                allowed=domains(wire.allowed_domains),
                blocked=domains(wire.blocked_domains),
            ),
        )
        for tool in own
        if tool.name in offer.kinds
    ]


def read_tool_choice(
    fields: Fields, tools: tuple[Tool, ...], hosted: tuple[str, ...], *, continued: bool = False
) -> ToolChoice:
    """The client's choice among the tools. A request that continues a thread (`continued`) has its tools elsewhere."""
    raw, notes = fields.raw("tool_choice"), fields.notes
    if raw is None:
        return ToolChoice()
    if first_byte(raw) == '"':
        wire = _WireChoice(fields.text("tool_choice") or "")
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
            notes.add("tools.choice_ignored", f"tool_choice names {wire.name}, which is not offered")
            return ToolChoice(parallel=parallel)
        if not continued and all(tool.name != wire.name for tool in tools):
            raise invalid("tool_choice.name", f"no tool named {wire.name!r} in tools")
        return ToolChoice(mode="named", name=wire.name, parallel=parallel)
    if mode == "required":
        if tools or continued:
            return ToolChoice(mode="required", parallel=parallel)
        if not hosted:
            raise invalid("tool_choice", "type 'any' needs at least one tool")
        notes.add("tools.choice_ignored", "tool_choice forces a call, but no tool is offered")
    return ToolChoice(mode="none" if mode == "none" else "auto", parallel=parallel)


def demanded_hosted(fields: Fields, tools: tuple[Tool, ...], hosted: tuple[str, ...]) -> str | None:
    """The hosted tool that a request demands a call of, where it is not offered; None where the model is free."""
    raw = fields.raw("tool_choice")
    if raw is None or first_byte(raw) != "{":
        return None
    wire = part(_CHOICE, raw, "tool_choice")
    if wire.type == "any":
        return hosted[0] if hosted and not tools else None
    return wire.name if wire.type == "tool" and wire.name in hosted else None


def tool_from(wire: WireTool, path: str, limits: Limits) -> Tool | None:
    """The tool of a definition; None for one that the client cannot run."""
    kind = wire.type or "custom"
    has_schema = first_byte(wire.input_schema) == "{"
    description, schema = wire.description or "", None
    if has_schema:
        schema = any_value(wire.input_schema, f"{path}.input_schema", limits.depth)
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
