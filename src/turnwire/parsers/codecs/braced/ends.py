"""Looks ahead in Gemma's notation: whether a mark ends its string, and whether a key follows a comma or is missing one.

Promise: a mark ends a string only where the next member, element or bracket follows it; how far is looked is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from turnwire.parsers.scanner import WAIT, Scanner, blanks

__all__ = ["LOOK", "OPENS_STRING", "RUN_ON", "bare_key", "ends_output", "ends_string", "key_follows"]

LOOK: Final = 64
"""How far is looked ahead."""

RUN_ON: Final = re.compile(r"(-?[0-9][0-9.eE+-]*|true|false|null|True|False|None)\s+([A-Za-z_]\w*):\s*(.*)", re.DOTALL)
"""A number or a word, then a key with its colon, where a comma should be."""

OPENS_STRING: Final = re.compile(r"(?:[{,](?:\s|\\n){0,8}[A-Za-z_][\w.-]{0,40}\s{0,8}:|\[)(?:\s|\\n){0,8}\Z")
"""JSON text after which a mark opens a string, in a call that a string quotes."""

_BRACKETS = re.compile(r"[\s}\]]*")
_AHEAD = re.compile(r"""[ \t\r\n]*([^\s:,{}\[\]<>"']*)[ \t\r\n]*""")


def key_follows(text: str, pos: int, closing: bool) -> bool | None:
    """Whether a key follows a comma; None if only more text can tell."""
    ahead = text[pos : pos + LOOK]
    found = _AHEAD.match(ahead)
    if found is None or found.end() == len(ahead):
        return False if closing or len(ahead) == LOOK else None
    char = ahead[found.end()]
    return char == ":" if found.group(1) else char in "}\"'<"


def bare_key(text: str, pos: int, closing: bool) -> str | None:
    """The key that follows with its colon ("" if none does); None if only more text can tell."""
    ahead = text[pos : pos + LOOK]
    found = _AHEAD.match(ahead)
    if found is None or found.end() == len(ahead):
        return "" if closing or len(ahead) == LOOK else None
    return found.group(1) if ahead[found.end()] == ":" else ""


def ends_string(
    text: str, pos: int, closing: bool, inside: str, closers: Scanner, mark: str, known: Callable[[str], bool]
) -> bool | None:
    """Whether the mark before `pos` ends its string in an object or a list (`inside`): a bracket, the closer of the
    call, the next member or element, or a known key without its comma follows. None if only more text can tell."""
    at = blanks(text, pos)
    if at == len(text) or at - pos > LOOK:
        return True if closing else None if at - pos <= LOOK else False
    char = text[at]
    if char in "}]":
        return _bracket_ends(text, at + 1, closing, closers)
    if char == ",":
        return key_follows(text, at + 1, closing) if inside == "{" else _element_follows(text, at + 1, closing, mark)
    marker = closers.at(text, at, closing)
    if marker is not None:
        end = at + len(marker)
        if marker is WAIT or end == len(text):
            return True if closing and marker is not WAIT else None
        return text[end] not in "\"'`\\"  # code that mentions both
    if inside != "{":
        return False
    key = bare_key(text, at, closing)
    return None if key is None else bool(key) and known(key)


def ends_output(text: str, pos: int, closing: bool, closers: Scanner) -> bool | None:
    """Whether the output ends here with nothing but brackets and a closer. None if only more text can tell."""
    found = _BRACKETS.match(text, pos)
    at = pos if found is None else found.end()
    marker = closers.at(text, at, closing) if at < len(text) else None
    if marker is WAIT:
        return None
    end = blanks(text, at + len(marker or ""))
    if end < len(text) or end - pos > LOOK:
        return False
    return True if closing else None


def _bracket_ends(text: str, pos: int, closing: bool, closers: Scanner) -> bool | None:
    """After a bracket: another one, a comma, the closer of the call, or the end."""
    at = blanks(text, pos)
    if at == len(text) or at - pos > LOOK:
        return True if closing else None if at - pos <= LOOK else False
    if text[at] in "}],":
        return True
    marker = closers.at(text, at, closing)
    return None if marker is WAIT else marker is not None or not text[at].isalnum()


def _element_follows(text: str, pos: int, closing: bool, mark: str) -> bool | None:
    """After a comma in a list: a value."""
    at = blanks(text, pos)
    if at == len(text):
        return False if closing or at - pos > LOOK else None
    if text[at] in '{["-]' or text[at].isalnum():
        return True
    begun = mark.startswith(text[at : at + len(mark)])
    return None if begun and len(text) - at < len(mark) and not closing else text.startswith(mark, at)
