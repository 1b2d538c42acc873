"""Whether a JSON value fits a JSON schema, for the part of JSON Schema that tool calls use.

Promise: bounded work, no regular expressions of the client's; what a long value or a schema without end leaves
unchecked counts as fitting. Covered: type, enum, const, properties, required, additionalProperties, items, prefixItems,
minItems, maxItems, minLength, maxLength, minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf, anyOf,
oneOf, allOf, not, and `$ref` within the schema. Everything else (pattern, format, dependent and conditional keywords)
is not looked at.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from turnwire.parsers.schema import resolve_ref

__all__ = ["Work", "faults"]

_DEPTH = 64
_MOST = 8
_WORK = 20_000


class Work:
    """How many schemas and members of their lists may still be looked at, for one value or for all of a turn. A schema
    that refers to itself in each part of a union has no end."""

    def __init__(self) -> None:
        self.left = _WORK


def faults(value: Any, schema: Any, work: Work | None = None) -> tuple[str, ...]:
    """What is wrong with `value`, at most a handful of faults, each with its place; empty where it fits."""
    found: list[str] = []
    for fault in _Checker(schema, work or Work()).check(value, schema, "", 0):
        found.append(fault)
        if len(found) >= _MOST:
            break
    return tuple(found)


_TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
    "number": (int, float),
    "integer": int,
}


def _no_multiple(value: float, step: float) -> bool:
    try:
        return step != 0 and value % step != 0
    except OverflowError:
        # A number beyond all floats beside a float.
        return False


_SIZES: dict[str, Callable[[Any, Any], bool]] = {
    "minimum": operator.lt,
    "maximum": operator.gt,
    "exclusiveMinimum": operator.le,
    "exclusiveMaximum": operator.ge,
    "multipleOf": _no_multiple,
}
_LENGTHS: dict[str, Callable[[Any, Any], bool]] = {"minLength": operator.lt, "maxLength": operator.gt}
_COUNTS: dict[str, Callable[[Any, Any], bool]] = {"minItems": operator.lt, "maxItems": operator.gt}


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return kind not in _TYPES or isinstance(value, _TYPES[kind])


class _Checker:
    def __init__(self, root: Any, work: Work) -> None:
        self._root = root
        self._work = work

    def check(self, value: Any, schema: Any, place: str, depth: int) -> Iterator[str]:
        if schema is False:
            yield f"{place or 'the value'} is not allowed"
        self._work.left -= 1
        if not isinstance(schema, Mapping) or depth > _DEPTH or self._work.left < 0:
            return
        if "$ref" in schema:
            yield from self.check(value, resolve_ref(schema["$ref"], self._root), place, depth + 1)
        kinds = schema.get("type")
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if isinstance(kinds, list) and not any(_is(value, str(kind)) for kind in kinds):
            yield f"{place or 'the value'} is not of type {' or '.join(map(str, kinds))}"
            return
        if isinstance(schema.get("enum"), list) and not self._among(value, schema["enum"]):
            yield f"{place or 'the value'} is none of {schema['enum']!r}"
        if "const" in schema and not _same(value, schema["const"]):
            yield f"{place or 'the value'} is not {schema['const']!r}"
        yield from self._bounds(value, schema, place)
        if isinstance(value, dict):
            yield from self._object(value, schema, place, depth)
        if isinstance(value, list):
            yield from self._array(value, schema, place, depth)
        yield from self._combined(value, schema, place, depth)

    def _among(self, value: Any, choices: list[Any]) -> bool:
        self._work.left -= len(choices)
        return any(_same(value, one) for one in choices)

    def _bounds(self, value: Any, schema: Mapping[str, Any], place: str) -> Iterator[str]:
        if isinstance(value, bool):
            return
        size, limits = (value, _SIZES) if isinstance(value, int | float) else (0, {})
        if isinstance(value, str | list):
            size, limits = len(value), _LENGTHS if isinstance(value, str) else _COUNTS
        for name, breaks in limits.items():
            limit = schema.get(name)
            if isinstance(limit, int | float) and not isinstance(limit, bool) and breaks(size, limit):
                yield f"{place or 'the value'} breaks {name} {limit}"

    def _object(self, value: dict[str, Any], schema: Mapping[str, Any], place: str, depth: int) -> Iterator[str]:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, Mapping) else {}
        required = _listed(schema, "required")
        self._work.left -= len(required)
        for name in required:
            # What is no name is demanded of nobody.
            if isinstance(name, str) and name not in value:
                yield f"{_at(place, name)} is missing"
        extra = schema.get("additionalProperties", True)
        for name, member in value.items():
            if name in properties:
                yield from self.check(member, properties[name], _at(place, name), depth + 1)
            elif extra is False:
                yield f"{_at(place, name)} is not a known property"
            else:
                yield from self.check(member, extra, _at(place, name), depth + 1)

    def _array(self, value: list[Any], schema: Mapping[str, Any], place: str, depth: int) -> Iterator[str]:
        first = schema.get("prefixItems")
        first = first if isinstance(first, list) else []
        for index, item in enumerate(value):
            wanted = first[index] if index < len(first) else schema.get("items", True)
            yield from self.check(item, wanted, f"{place}[{index}]", depth + 1)

    def _combined(self, value: Any, schema: Mapping[str, Any], place: str, depth: int) -> Iterator[str]:
        for part in _listed(schema, "allOf"):
            yield from self.check(value, part, place, depth + 1)
        for name in ("anyOf", "oneOf"):
            choices = _listed(schema, name)
            fitting = sum(next(self.check(value, choice, place, depth + 1), None) is None for choice in choices)
            if choices and (fitting == 0 or (name == "oneOf" and fitting > 1)):
                yield f"{place or 'the value'} fits {fitting} of the {len(choices)} choices of {name}"
        if "not" in schema and next(self.check(value, schema["not"], place, depth + 1), None) is None:
            yield f"{place or 'the value'} is what it must not be"


def _listed(schema: Mapping[str, Any], name: str) -> list[Any]:
    found = schema.get(name)
    return found if isinstance(found, list) else []


def _same(value: Any, other: Any) -> bool:
    # JSON's true is not its 1.
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


def _at(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name
