"""Whether two argument texts say the same, whatever a client did to the writing.

Promise: order of keys, blanks and escapes of the JSON, numbers rounded as JavaScript does, numbers and booleans written
as strings or the other way round, blanks at line ends, added defaults and dropped nulls make no difference; any other
change does. Linear, bounded, never raises.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Any

import msgspec

__all__ = ["MARK_SIZE", "argument_marks", "same_arguments"]

MARK_SIZE = 4
_MOST_LEAVES = 512
_MOST_DEPTH = 24
_NUMBER = re.compile(r"-?\d{1,40}(?:\.\d{1,40})?(?:[eE][+-]?\d{1,3})?")
_SAFE = 2**53  # up to here JavaScript's numbers, which are doubles, hold every integer
_SAFE_DIGITS = 15
_ABSENT = object()


def argument_marks(arguments: str) -> tuple[frozenset[bytes], frozenset[bytes]] | None:
    """A mark for each value in the arguments, and of those the marks of values that a client may have added by itself
    (switches, numbers, blanks). None where the text cannot be compared: it is not JSON, or too large."""
    value = _decoded(arguments)
    if isinstance(value, str):  # an object that was encoded twice
        value = _decoded(value)
    if value is _ABSENT:
        return None
    marks: set[bytes] = set()
    addable: set[bytes] = set()
    todo: list[tuple[str, Any, int]] = [("", value, 0)]
    while todo:
        path, value, depth = todo.pop()
        if isinstance(value, dict) and value:
            if depth >= _MOST_DEPTH:
                return None
            # A null says as much as a missing value, and clients drop it.
            todo.extend((f"{path}/{key}", inner, depth + 1) for key, inner in value.items() if inner is not None)
        elif isinstance(value, list) and value:
            if depth >= _MOST_DEPTH:
                return None
            todo.extend((f"{path}/{place}", inner, depth + 1) for place, inner in enumerate(value))
        elif path or not isinstance(value, dict):
            spelled = _spelled(value)
            mark = blake2b(f"{path}={spelled}".encode("utf-8", "surrogatepass"), digest_size=MARK_SIZE).digest()
            marks.add(mark)
            if not isinstance(value, str) or not spelled:
                addable.add(mark)
        if len(marks) + len(todo) > _MOST_LEAVES:
            return None
    return frozenset(marks), frozenset(addable)


def same_arguments(written: frozenset[bytes], sent: str) -> bool:
    """Whether `sent` holds everything that was written and nothing else but what a client may have added."""
    found = argument_marks(sent)
    if found is None:
        return False
    marks, addable = found
    return written <= marks and marks - written <= addable


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text or "{}")
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        return _ABSENT


def _spelled(value: Any) -> str:
    """A scalar's one spelling."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, str):
        text = value.strip()
        if text in ("true", "false", "null"):
            return text
        # Longer digits in a string are a name, which nobody rounds.
        if _NUMBER.fullmatch(text) and sum(map(str.isdigit, text)) <= _SAFE_DIGITS:
            return _number(text)
        return "\n".join([line.rstrip() for line in text.splitlines()])
    if isinstance(value, (dict, list)):
        return "{}" if isinstance(value, dict) else "[]"
    return _number(repr(value))


def _number(text: str) -> str:
    """A number as the double that JavaScript makes of it."""
    number = float(text)
    return str(int(number)) if number.is_integer() and abs(number) <= _SAFE else repr(number)
