"""Finds the next marker in a piece of text at C speed and says which tail could still become one.

Promise: a search never goes back further than the longest marker.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

__all__ = ["WAIT", "Scanner", "blanks", "prose_pattern"]

WAIT: Final = ""
"""What `Scanner.at` answers when the text ends inside a marker: only more text can tell."""


class Scanner:
    """A fixed set of literal markers. Of two markers that begin at one place the longer wins; no marker may hold
    another in its middle. A pattern is an alternation of literals, so a search never backtracks further than the
    longest marker."""

    __slots__ = ("_find", "_first", "_growing", "_longest", "_match", "_prefixes")

    def __init__(self, markers: Iterable[str]) -> None:
        ordered = sorted(set(markers), key=lambda marker: (-len(marker), marker))
        pattern = re.compile("|".join(map(re.escape, ordered)) or r"(?!)")
        self._find = pattern.search
        self._match = pattern.match
        self._longest = len(ordered[0]) if ordered else 0
        self._prefixes = frozenset(marker[:size] for marker in ordered for size in range(1, len(marker)))
        self._growing = self._prefixes.intersection(ordered)
        firsts = "".join(sorted({re.escape(marker[0]) for marker in ordered}))
        self._first = re.compile(f"[{firsts}]" if firsts else r"(?!)").finditer

    def find(self, text: str, pos: int, closing: bool = False) -> tuple[int, int]:
        """Where the next marker is, as (start, stop). Without one: (cut, -1), where everything before `cut` is plain
        and the rest is a tail that may still grow into a marker (empty when `closing`)."""
        found = self._find(text, pos)
        end = len(text)
        if found is not None:
            start, stop = found.span()
            if found.group() in self._growing and not closing and text[start : start + self._longest] in self._prefixes:
                return start, -1
            return start, stop
        if not closing:
            tail = end - self._longest + 1
            for first in self._first(text, tail if tail > pos else pos):
                if text[first.start() :] in self._prefixes:
                    return first.start(), -1
        return end, -1

    def at(self, text: str, pos: int, closing: bool = False) -> str | None:
        """The marker that begins exactly at `pos`, None if there is none, WAIT if it is not yet decided."""
        found = self._match(text, pos)
        if found is not None:
            marker = found.group()
            if marker in self._growing and not closing and text[pos : pos + self._longest] in self._prefixes:
                return WAIT
            return marker
        if not closing and len(text) - pos < self._longest and text[pos:] in self._prefixes:
            return WAIT
        return None


def prose_pattern(markers: Iterable[str]) -> str:
    """A pattern that finds nothing in text that is surely plain prose: no marker begins in it, and it does not end in
    whitespace (which may turn out to belong to the format)."""
    firsts = "".join(sorted({re.escape(marker[0]) for marker in markers}))
    return rf"[{firsts}]|[ \t\r\n]\Z" if firsts else r"[ \t\r\n]\Z"


_BLANKS = re.compile(r"[ \t\r\n]*")


def blanks(text: str, pos: int) -> int:
    """The position after the whitespace that begins at `pos`."""
    found = _BLANKS.match(text, pos)
    return pos if found is None else found.end()
