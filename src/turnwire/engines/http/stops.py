"""Stop strings for engines that give tokens only: found in the text as it streams.

Promise: text that may still become a stop string is held back and nothing else is; what is released never contains
the start of one that came true. Work is linear in the text.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["StopFinder"]


class StopFinder:
    """Looks for stop strings across chunks of text."""

    __slots__ = ("_held", "_longest", "_stops", "found")

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""
        self.found: str | None = None

    def feed(self, text: str) -> str:
        """The text that is certain; after `found` is set, nothing more is."""
        if not self._stops:
            return text
        if self.found is not None:
            return ""
        text = self._held + text
        first = len(text)
        for stop in self._stops:
            at = text.find(stop)
            if 0 <= at < first:
                first, self.found = at, stop
        if self.found is not None:
            self._held = ""
            return text[:first]
        hold = self._may_begin(text)
        self._held = text[len(text) - hold :]
        return text[: len(text) - hold]

    def flush(self) -> str:
        """What was held back, now that nothing follows."""
        text, self._held = self._held, ""
        return text

    def _may_begin(self, text: str) -> int:
        """How long the longest end of `text` is that a stop string begins with."""
        for size in range(min(self._longest - 1, len(text)), 0, -1):
            tail = text[-size:]
            if any(stop.startswith(tail) for stop in self._stops):
                return size
        return 0
