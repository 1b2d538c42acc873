"""When the arguments of a call are whole, for APIs that do not say it.

Promise: each character is looked at once.
"""

from __future__ import annotations

__all__ = ["ArgumentsEnd"]


class ArgumentsEnd:
    """Follows the text of a JSON object to its closing brace."""

    def __init__(self) -> None:
        self._depth = 0
        self._quoted = False
        self._escaped = False

    def feed(self, text: str) -> bool:
        """Whether the object closes in this piece."""
        closed = False
        for character in text:
            if self._quoted:
                if self._escaped:
                    self._escaped = False
                elif character == "\\":
                    self._escaped = True
                elif character == '"':
                    self._quoted = False
            elif character == '"':
                self._quoted = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                closed = closed or self._depth == 0
        return closed
