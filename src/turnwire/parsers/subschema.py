"""Finds what a JSON schema says about the inside of a value: a member of an object, an element of an array.

Promise: references are followed, unions joined, and both are bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from turnwire.parsers.schema import resolve_ref

__all__ = ["element", "has_member", "member"]

_MOST: Final = 64
"""Schemas looked at for one question; a schema that needs more has no answer."""


def _branches(schema: Any, root: Any) -> Iterator[dict[str, Any]]:
    """The schema itself and every schema it refers to or is a union of."""
    waiting = [schema]
    for _ in range(_MOST):
        if not waiting:
            return
        here = waiting.pop(0)
        if not isinstance(here, dict):
            continue
        yield here
        if "$ref" in here:
            waiting.append(resolve_ref(here["$ref"], root))
        for union in ("anyOf", "oneOf", "allOf"):
            if isinstance(here.get(union), list):
                waiting += here[union][:_MOST]


def member(schema: Any, root: Any, key: str) -> Any:
    """The schema of an object's member, None where nothing is said."""
    others: Any = None
    for branch in _branches(schema, root):
        properties = branch.get("properties")
        if isinstance(properties, dict) and key in properties:
            return properties[key]
        if others is None and isinstance(branch.get("additionalProperties"), dict):
            others = branch["additionalProperties"]
    return others


def has_member(schema: Any, root: Any, key: str) -> bool:
    """Whether the schema names this member."""
    return any(
        isinstance(branch.get("properties"), dict) and key in branch["properties"] for branch in _branches(schema, root)
    )


def element(schema: Any, root: Any) -> Any:
    """The schema of an array's elements, None where nothing is said."""
    for branch in _branches(schema, root):
        if isinstance(branch.get("items"), dict):
            return branch["items"]
    return None
