"""Reading JSON that a server sent, which may have any shape.

Promise: no shape raises; what is not there, or is of another type, is None or empty.
"""

from __future__ import annotations

import msgspec

__all__ = ["at", "items", "mapping", "number", "parsed", "string"]


def parsed(text: str | bytes) -> object | None:
    """The JSON value, or None where the text is none."""
    try:
        value: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return value


def at(value: object, *path: str | int) -> object | None:
    """What lies at a path of keys and places."""
    for step in path:
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, dict) else None
        else:
            value = value[step] if isinstance(value, list) and -len(value) <= step < len(value) else None
    return value


def string(value: object, *path: str | int) -> str | None:
    """The text at a path."""
    found = at(value, *path)
    return found if isinstance(found, str) else None


def number(value: object, *path: str | int) -> int | None:
    """The whole number at a path."""
    found = at(value, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def items(value: object, *path: str | int) -> list[object]:
    """The list at a path."""
    found = at(value, *path)
    return found if isinstance(found, list) else []


def mapping(value: object, *path: str | int) -> dict[str, object]:
    """The object at a path."""
    found = at(value, *path)
    return found if isinstance(found, dict) else {}
