"""Markdown that arrives in pieces, split into what can be shown for good and what may still change.

Promise: sans-IO and linear. Joining everything that was settled and the rest gives the text back; a settled part never
ends inside a code block.
"""

from __future__ import annotations

__all__ = ["MarkdownFlow"]

_FENCES = ("```", "~~~")


class MarkdownFlow:
    """Text up to the last blank line outside a code block is settled; `rest` is the block being written."""

    def __init__(self) -> None:
        self._block: list[str] = []
        self._line = ""
        self._fence = ""

    @property
    def rest(self) -> str:
        """What is not settled yet."""
        return "".join(self._block) + self._line

    def feed(self, text: str) -> str:
        """More text; what became settled by it, empty if nothing did."""
        settled: list[str] = []
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self._block.append(line + "\n")
            mark = line.lstrip()[:3]
            if self._fence:
                if mark == self._fence:
                    self._fence = ""
            elif mark in _FENCES:
                self._fence = mark
            elif not line.strip():
                settled += self._block
                self._block = []
        return "".join(settled)

    def finish(self) -> str:
        """The text is over; what was left."""
        rest, self._block, self._line = self.rest, [], ""
        return rest
