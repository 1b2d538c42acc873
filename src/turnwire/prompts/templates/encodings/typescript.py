"""Tool schemas as TypeScript declarations, the form harmony models read.

Promise: any JSON schema gives a declaration; what has no TypeScript form becomes `any`. Depth is bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnwire.prompts.templates.encodings.messages import compact

__all__ = ["declared"]

_DEPTH = 12
_PLAIN = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean", "null": "null"}


def declared(function: Mapping[str, Any]) -> str:
    """`// description` and `type name = (_: {...}) => any;`"""
    comment = "".join(f"// {line}\n" for line in str(function.get("description") or "").splitlines())
    schema = function.get("parameters") or {}
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not properties:
        return f"{comment}type {function['name']} = () => any;"
    return f"{comment}type {function['name']} = (_: {_object(schema, 0)}) => any;"


def _object(schema: Mapping[str, Any], depth: int) -> str:
    required = schema.get("required") or ()
    lines = ["{"]
    for name, field in (schema.get("properties") or {}).items():
        details = field if isinstance(field, Mapping) else {}
        lines += [f"// {line}" for line in str(details.get("description") or "").splitlines()]
        default = f" // default: {compact(details['default'])}" if "default" in details else ""
        lines.append(f"{name}{'' if name in required else '?'}: {_type(details, depth + 1)},{default}")
    return "\n".join([*lines, "}"])


def _type(schema: Any, depth: int) -> str:
    if not isinstance(schema, Mapping) or depth > _DEPTH:
        return "any"
    if isinstance(schema.get("enum"), list):
        return " | ".join(compact(value) for value in schema["enum"]) or "any"
    for union in ("anyOf", "oneOf"):
        if isinstance(schema.get(union), list):
            return _union([_type(item, depth + 1) for item in schema[union]])
    kind = schema.get("type")
    if isinstance(kind, list):
        return _union([_type({**schema, "type": item}, depth + 1) for item in kind])
    if kind == "array":
        inner = _type(schema.get("items"), depth + 1)
        return f"({inner})[]" if " | " in inner else f"{inner}[]"
    if kind == "object":
        return _object(schema, depth) if schema.get("properties") else "object"
    written = _PLAIN.get(kind, "any") if isinstance(kind, str) else "any"
    return f"{written} | null" if schema.get("nullable") and written != "any" else written


def _union(options: list[str]) -> str:
    return " | ".join(dict.fromkeys(options)) or "any"
