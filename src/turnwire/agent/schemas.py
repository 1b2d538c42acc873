"""The JSON schema of a Python function's arguments: from its types, its defaults and its docstring.

Promise: what the schema allows is what the function gets. Shared definitions are written out in place, since small
models do not follow references.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from typing import Any

import msgspec

from turnwire.parsers.schema import resolve_ref

__all__ = ["ToolDefinitionError", "arguments_type", "described", "described_parameters", "inlined"]

_SECTION = re.compile(r"^(Args|Arguments|Parameters)\s*:\s*$")
_OTHER_SECTION = re.compile(r"^(Returns|Return|Raises|Yields|Example|Examples|Note|Notes)\s*:")
_ENTRY = re.compile(r"^(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_FIELD = re.compile(r"^:param\s+(?:[\w\[\], |.]+\s)?(\w+)\s*:\s*(.*)$")
_DEPTH = 32


class ToolDefinitionError(TypeError):
    """A function that cannot be a tool; the message says what to change."""


def arguments_type(function: Callable[..., Any], name: str, hints: Mapping[str, Any]) -> type[msgspec.Struct]:
    """A struct with one field per parameter; a parameter without a type takes anything."""
    fields: list[Any] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise ToolDefinitionError(f"{name}: the parameter '{parameter}' has no name that a model could send; use "
                                      "plain or keyword-only parameters.")  # fmt: skip
        hint = hints.get(parameter.name, Any)
        if parameter.default is parameter.empty:
            fields.append((parameter.name, hint))
        else:
            # Through a factory, because a shared mutable default is refused.
            fields.append((parameter.name, hint, msgspec.field(default_factory=partial(copy, parameter.default))))
    try:
        struct = msgspec.defstruct(f"{name}_arguments", fields, kw_only=True)
        msgspec.json.schema(struct)
    except (TypeError, ValueError) as error:
        raise ToolDefinitionError(f"{name}: its types have no JSON schema: {error}") from None
    return struct


def inlined(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with every `$ref` replaced by what it means, without generated titles."""

    def open_up(value: Any, depth: int) -> Any:
        if depth > _DEPTH:
            raise ToolDefinitionError("A tool's type refers to itself; give it a type of bounded depth.")
        if isinstance(value, dict):
            if "$ref" in value:
                return open_up(resolve_ref(value["$ref"], schema), depth + 1)
            opened = {
                key: {name: open_up(inner, depth + 1) for name, inner in item.items()}
                if key == "properties"
                else open_up(item, depth + 1)
                for key, item in value.items()
                if key not in ("$defs", "title")
            }
            if "enum" in opened and all(isinstance(word, str) for word in opened["enum"]):
                opened["type"] = "string"
            return opened
        if isinstance(value, list):
            return [open_up(item, depth + 1) for item in value]
        return value

    opened = open_up({key: value for key, value in schema.items() if key != "$defs"}, 0)
    assert isinstance(opened, dict)
    opened.setdefault("type", "object")
    opened.setdefault("properties", {})
    return opened


def described(doc: str) -> tuple[str, dict[str, str]]:
    """A docstring's text before its sections, and what it says of each parameter (Google or Sphinx style)."""
    summary: list[str] = []
    parameters: dict[str, str] = {}
    inside = over = False
    last = ""
    for line in doc.splitlines():
        text = line.strip()
        field = _FIELD.match(text)
        if field:
            last = field.group(1)
            parameters[last] = field.group(2)
            over = True
        elif not line.startswith((" ", "\t")) and _SECTION.match(text):
            inside, last = True, ""
        elif not line.startswith((" ", "\t")) and (_OTHER_SECTION.match(text) or text.startswith(":")):
            inside, over, last = False, True, ""
        elif inside and (entry := _ENTRY.match(text)):
            last = entry.group(1)
            parameters[last] = entry.group(2)
        elif last and text:
            parameters[last] = f"{parameters[last]} {text}".strip()
        elif not inside and not over:
            summary.append(text)
    return "\n".join(summary).strip(), parameters


def described_parameters(schema: dict[str, Any], parameters: Mapping[str, str]) -> dict[str, Any]:
    """The schema with the docstring's words on its parameters, where the types brought none."""
    for name, text in parameters.items():
        if text and name in schema["properties"]:
            schema["properties"][name].setdefault("description", text)
    return schema
