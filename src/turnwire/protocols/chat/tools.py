"""The tools of a Chat Completions request and the choice among them.

Promise: function tools, the older `functions`, and custom tools are offered; a hosted tool that nobody here can run is
left out and noted, never refused.
"""

from __future__ import annotations

from typing import Any

import msgspec

from turnwire.conventions import RAW_INPUT, raw_input_schema
from turnwire.protocols.fields.body import any_value, elements, invalid
from turnwire.protocols.fields.decoded import DecodedParts, PartNote, PartReader
from turnwire.protocols.fields.members import MEMBERS, member_notes
from turnwire.protocols.fields.reader import Fields
from turnwire.protocols.limits import Limits
from turnwire.turns import Tool, ToolChoice

__all__ = ["allowed_tools", "read_tool_choice", "read_tools"]


class OfferedTools(msgspec.Struct, frozen=True):
    """The tools on offer, in the order sent, and what was noted while reading them."""

    tools: tuple[Tool, ...] = ()
    notes: tuple[PartNote, ...] = ()


def read_tools(fields: Fields, cache: DecodedParts | None) -> tuple[Tool, ...]:
    """The tools on offer. A list that was seen before is not decoded again."""
    name = "tools" if fields.has("tools") else "functions"
    raw, limits = fields.raw(name), fields.limits
    if raw is None:
        return ()
    bare = name == "functions"
    reader = PartReader(cache, lambda data: _tools(data, limits, bare), f"chat.{name}", limits)
    offered = reader.value(raw, name)
    fields.notes.on_part(name, offered.notes)
    return offered.tools


def _tools(data: bytes, limits: Limits, bare: bool) -> OfferedTools:
    items = elements(data, "", "must be a list")
    if len(items) > limits.tools:
        raise invalid("", f"{len(items)} tools; the limit is {limits.tools}")
    found: dict[str, Tool] = {}
    notes: list[PartNote] = []
    for index, item in enumerate(items):
        path = f".{index}"
        wire = any_value(item, path, limits.depth)
        tool = _tool({"type": "function", "function": wire} if bare else wire, path, notes)
        if tool is None:
            continue
        if len(tool.name) > limits.name_chars:
            raise invalid(f"{path}.function.name", f"longer than {limits.name_chars} characters")
        if tool.name in found:
            text = f"{tool.name} is defined twice; the first definition holds"
            notes.append(PartNote("tools.duplicate", path, text, tool.name))
        else:
            found[tool.name] = tool
    return OfferedTools(tuple(found.values()), tuple(notes))


def _tool(wire: Any, path: str, notes: list[PartNote]) -> Tool | None:
    if not isinstance(wire, dict):
        raise invalid(path, "must be an object")
    kind = wire.get("type", "function")
    if kind not in ("function", "custom"):
        shown = str(kind)[:64]
        text = f"a tool of type {shown!r} is run by nobody here; not offered"
        notes.append(PartNote("tools.hosted_ignored", path, text, shown))
        return None
    inner = wire.get(kind)
    body: dict[str, Any] = inner if isinstance(inner, dict) else wire
    notes += member_notes(MEMBERS["Chat Completions"], {**wire, **body}, path)
    name = body.get("name")
    if not isinstance(name, str) or not name:
        raise invalid(f"{path}.{kind}.name", "must be a string")
    description = body.get("description")
    text = description if isinstance(description, str) else ""
    if kind == "custom":
        about = f"calls of {name} come as a function with one `{RAW_INPUT}`"
        notes.append(PartNote("tools.custom_as_function", path, about, name))
        return Tool(name=name, description=text, kind="custom", schema=raw_input_schema(), **_grammar(body))
    schema = body.get("parameters")
    if schema is not None and not isinstance(schema, dict):
        raise invalid(f"{path}.function.parameters", "must be a JSON schema object")
    return Tool(name=name, description=text, schema=schema or _NO_ARGUMENTS, strict=body.get("strict") is True)


_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}


def _grammar(body: dict[str, Any]) -> dict[str, Any]:
    form = body.get("format")
    grammar = form.get("grammar", form) if isinstance(form, dict) else {}
    definition = grammar.get("definition") if isinstance(grammar, dict) else None
    if not isinstance(definition, str):
        return {}
    return {"grammar": definition, "grammar_syntax": grammar.get("syntax")}


def allowed_tools(fields: Fields, tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
    """The tools that the choice leaves on offer: all of them, unless it lists those that are allowed."""
    choice = fields.value("tool_choice")
    if not isinstance(choice, dict) or choice.get("type") != "allowed_tools":
        return tools
    allowed = choice.get("allowed_tools")
    listed = allowed.get("tools") if isinstance(allowed, dict) else None
    if not isinstance(listed, list) or not all(isinstance(tool, dict) for tool in listed):
        raise invalid("tool_choice.allowed_tools.tools", "must be a list of tools")
    bodies = [tool.get("function") or tool.get("custom") or tool for tool in listed]
    offered, names = {tool.name for tool in tools}, set[str]()
    for body in bodies:
        name = body.get("name") if isinstance(body, dict) else None
        if not isinstance(name, str):
            raise invalid("tool_choice.allowed_tools.tools", "must name each tool")
        if name not in offered:
            raise invalid("tool_choice.allowed_tools.tools", f"names {name!r}, which is not in tools")
        names.add(name)
    fields.notes.add("tools.allowed_only", "only the allowed tools are shown; changing the list changes the prompt")
    return tuple(tool for tool in tools if tool.name in names)


def read_tool_choice(fields: Fields, tools: tuple[Tool, ...]) -> ToolChoice:
    """The choice; a named tool must be on offer."""
    choice = fields.value("tool_choice")
    if choice is None:
        choice = fields.value("function_call")
    several = fields.flag("parallel_tool_calls", default=True)
    if choice is None or choice == "auto":
        return ToolChoice(parallel=several)
    if choice in ("none", "required"):
        if choice == "required" and not tools:
            raise invalid("tool_choice", "is 'required' although no tools are offered")
        return ToolChoice(mode=choice, parallel=several)
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        allowed = choice.get("allowed_tools")
        required = isinstance(allowed, dict) and allowed.get("mode") == "required"
        return ToolChoice(mode="required" if required else "auto", parallel=several)
    if isinstance(choice, dict):
        body = choice.get("function") or choice.get("custom") or choice
        name = body.get("name") if isinstance(body, dict) else None
        if isinstance(name, str):
            if all(tool.name != name for tool in tools):
                raise invalid("tool_choice", f"names the tool '{name}', which is not in tools")
            return ToolChoice(mode="named", name=name, parallel=several)
    raise invalid("tool_choice", "must be 'auto', 'none', 'required' or {\"type\": \"function\", \"function\": {…}}")
