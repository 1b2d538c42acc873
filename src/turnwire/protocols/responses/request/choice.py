"""The choice among the tools of a Responses request.

Promise: a named tool must be on offer, and a demanded call of what cannot be run here is refused: the answer would be
an invention.
"""

from __future__ import annotations

from typing import Any

from turnwire.protocols.fields.body import invalid
from turnwire.protocols.fields.reader import Fields
from turnwire.protocols.responses.tools import Toolbox
from turnwire.turns import HostedUse, ToolChoice

__all__ = ["read_tool_choice"]


def read_tool_choice(fields: Fields, toolbox: Toolbox) -> ToolChoice:
    """The choice; `allowed_tools` also narrows the toolbox."""
    value = fields.value("tool_choice")
    parallel = fields.flag("parallel_tool_calls", default=True)
    match value:
        case None | "auto":
            return ToolChoice(parallel=parallel)
        case "none":
            return ToolChoice(mode="none", parallel=parallel)
        case "required":
            return ToolChoice(mode="required", parallel=parallel)
        case str():
            raise invalid("tool_choice", "must be auto, none, required or an object that names a tool")
        case dict():
            return _object_choice(value, fields, toolbox, parallel)
    raise invalid("tool_choice", "must be a string or an object")


def _object_choice(value: dict[str, Any], fields: Fields, toolbox: Toolbox, parallel: bool) -> ToolChoice:
    kind = value.get("type")
    if kind == "allowed_tools":
        return _allowed(value, fields, toolbox, parallel)
    if kind in ("function", "custom"):
        name = _chosen(value, toolbox)
        if name not in {tool.name for tool in toolbox.tools}:
            raise invalid("tool_choice.name", f"no tool '{value.get('name')}' is in `tools`")
        return ToolChoice(mode="named", name=name, parallel=parallel)
    hosted = next((name for name, use in toolbox.hosted.items() if _is_kind(kind, value, use)), None)
    if hosted is not None:
        return ToolChoice(mode="named", name=hosted, parallel=parallel)
    raise invalid("tool_choice", f"a call of '{str(kind)[:64]}' is demanded, but nothing here runs it; use auto")


def _is_kind(kind: object, value: dict[str, Any], use: HostedUse) -> bool:
    """Whether a choice names this tool of the gateway's own."""
    if use.kind == "mcp":
        return kind == "mcp" and value.get("server_label") == use.server and value.get("name") in (None, use.tool)
    if use.kind == "code_execution":
        return kind == "code_interpreter"
    return isinstance(kind, str) and kind.startswith(use.kind)


def _allowed(value: dict[str, Any], fields: Fields, toolbox: Toolbox, parallel: bool) -> ToolChoice:
    listed = value.get("tools")
    if not isinstance(listed, list) or not all(isinstance(tool, dict) for tool in listed):
        raise invalid("tool_choice.tools", "must be a list of tools")
    toolbox.keep(_chosen(tool, toolbox) for tool in listed)
    fields.notes.add("tools.allowed_only", "only the allowed tools are shown; changing the list changes the prompt")
    return ToolChoice(mode="required" if value.get("mode") == "required" else "auto", parallel=parallel)


def _chosen(value: dict[str, Any], toolbox: Toolbox) -> str:
    name, namespace = value.get("name"), value.get("namespace")
    if not isinstance(name, str):
        return ""
    return toolbox.name_of(name, namespace if isinstance(namespace, str) and namespace else None)
