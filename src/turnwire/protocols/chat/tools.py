"""The tools of a Chat Completions request and the choice among them.

Promise: function tools, the older `functions`, and custom tools are offered; a hosted tool that nobody here can run is
left out and noted, never refused.
"""

from __future__ import annotations

from typing import Any

from turnwire.protocols.json_body import invalid
from turnwire.protocols.limits import Limits
from turnwire.turns import Note, Tool, ToolChoice

__all__ = ["read_tool_choice", "read_tools"]


def read_tools(tools: Any, functions: Any, limits: Limits, notes: list[Note]) -> tuple[Tool, ...]:
    """The tools on offer, in the order sent."""
    wires = tools if tools is not None else [{"type": "function", "function": f} for f in functions or ()]
    if not isinstance(wires, list):
        raise invalid("tools", "must be a list")
    if len(wires) > limits.tools:
        raise invalid("tools", f"{len(wires)} tools; the limit is {limits.tools}")
    found: dict[str, Tool] = {}
    for index, wire in enumerate(wires):
        path = f"tools.{index}"
        tool = _tool(wire, path, notes)
        if tool is None:
            continue
        if len(tool.name) > limits.name_chars:
            raise invalid(f"{path}.function.name", f"longer than {limits.name_chars} characters")
        if tool.name in found:
            notes.append(Note("tools.duplicate", f"{path}: {tool.name} is defined twice; the first definition holds"))
        else:
            found[tool.name] = tool
    return tuple(found.values())


def _tool(wire: Any, path: str, notes: list[Note]) -> Tool | None:
    if not isinstance(wire, dict):
        raise invalid(path, "must be an object")
    kind = wire.get("type", "function")
    if kind not in ("function", "custom"):
        notes.append(
            Note("tools.hosted_ignored", f"{path}: a tool of type {kind!r} is run by nobody here; not offered")
        )
        return None
    inner = wire.get(kind)
    body: dict[str, Any] = inner if isinstance(inner, dict) else wire
    name = body.get("name")
    if not isinstance(name, str) or not name:
        raise invalid(f"{path}.{kind}.name", "must be a string")
    description = body.get("description")
    text = description if isinstance(description, str) else ""
    if kind == "custom":
        notes.append(Note("tools.custom_as_function", f"{path}: calls of {name} come as a function with one `input`"))
        return Tool(name=name, description=text, kind="custom", schema=_RAW_INPUT, **_grammar(body))
    schema = body.get("parameters")
    if schema is not None and not isinstance(schema, dict):
        raise invalid(f"{path}.function.parameters", "must be a JSON schema object")
    return Tool(name=name, description=text, schema=schema or _NO_ARGUMENTS, strict=body.get("strict") is True)


_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}
_RAW_INPUT: dict[str, Any] = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


def _grammar(body: dict[str, Any]) -> dict[str, Any]:
    form = body.get("format")
    grammar = form.get("grammar", form) if isinstance(form, dict) else {}
    definition = grammar.get("definition") if isinstance(grammar, dict) else None
    if not isinstance(definition, str):
        return {}
    return {"grammar": definition, "grammar_syntax": grammar.get("syntax")}


def read_tool_choice(choice: Any, parallel: Any, tools: tuple[Tool, ...]) -> ToolChoice:
    """The choice; a named tool must be on offer."""
    several = parallel is not False
    if choice is None or choice == "auto":
        return ToolChoice(parallel=several)
    if choice in ("none", "required"):
        if choice == "required" and not tools:
            raise invalid("tool_choice", "is 'required' although no tools are offered")
        return ToolChoice(mode=choice, parallel=several)
    if isinstance(choice, dict):
        body = choice.get("function") or choice.get("custom") or choice
        name = body.get("name") if isinstance(body, dict) else None
        if isinstance(name, str):
            if all(tool.name != name for tool in tools):
                raise invalid("tool_choice", f"names the tool '{name}', which is not in tools")
            return ToolChoice(mode="named", name=name, parallel=several)
    raise invalid("tool_choice", "must be 'auto', 'none', 'required' or {\"type\": \"function\", \"function\": {…}}")
