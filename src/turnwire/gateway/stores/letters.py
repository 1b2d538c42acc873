"""What gateways that share a store send each other while both are there.

Promise: a letter reaches everybody who listens to its topic at that moment, once, in order, or not at all; nobody is
told of one that is lost. A listener that does not read loses the newest letters, never memory.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

__all__ = ["Letters", "Listeners"]

_MOST = 1024


class Letters:
    """The letters of one topic for one listener."""

    def __init__(self, leave: Callable[[Letters], None]) -> None:
        self._leave = leave
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue(_MOST)

    def put(self, letter: bytes) -> None:
        """Deliver a letter."""
        with contextlib.suppress(asyncio.QueueFull):
            self._waiting.put_nowait(letter)

    async def get(self, seconds: float | None = None) -> bytes | None:
        """The next letter; None where none has come within so many seconds."""
        try:
            return await asyncio.wait_for(self._waiting.get(), seconds)
        except TimeoutError:
            return None

    def close(self) -> None:
        """Listen no more."""
        self._leave(self)


class Listeners:
    """Those in this process who listen, by topic."""

    def __init__(self, deserted: Callable[[str], None] | None = None) -> None:
        self._by_topic: dict[str, list[Letters]] = {}
        self._deserted = deserted

    def __len__(self) -> int:
        return len(self._by_topic)

    @property
    def topics(self) -> list[str]:
        return list(self._by_topic)

    def add(self, topic: str) -> Letters:
        """One more listener."""

        def leave(letters: Letters) -> None:
            those = self._by_topic.get(topic, [])
            if letters in those:
                those.remove(letters)
            if not those and self._by_topic.pop(topic, None) is not None and self._deserted is not None:
                self._deserted(topic)

        letters = Letters(leave)
        self._by_topic.setdefault(topic, []).append(letters)
        return letters

    def deliver(self, topic: str, letter: bytes) -> None:
        """Give a letter to all who listen."""
        for letters in self._by_topic.get(topic, ()):
            letters.put(letter)
