"""Which worker a conversation lives on: the one that had its last turn, for as long as that says something.

Promise: sans-IO and bounded; every time is given. A conversation that was not heard of for its life time lives nowhere;
what the conversations of a worker hold is known at any time without counting them.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

__all__ = ["Bindings"]


class _Binding(msgspec.Struct, gc=False):
    worker: str
    until: float
    tokens: int


class Bindings:
    """Conversations and their workers, by name. `life` is in seconds."""

    def __init__(self, life: float = 900.0, capacity: int = 65_536) -> None:
        self._life = life
        self._capacity = capacity
        # In the order in which they end: each is renewed for the same time.
        self._bound: OrderedDict[str, _Binding] = OrderedDict()
        self._resident: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._bound)

    def worker(self, conversation: str, now: float) -> str | None:
        """Where a conversation lives."""
        self._expire(now)
        binding = self._bound.get(conversation)
        return binding.worker if binding is not None else None

    def resident(self, worker: str) -> int:
        """How many tokens the conversations that live on a worker have; what they share is counted for each."""
        return self._resident.get(worker, 0)

    def bind(self, conversation: str, worker: str, tokens: int, now: float) -> None:
        """A turn of a conversation goes to a worker, with a prompt of so many tokens."""
        self._expire(now)
        self.release(conversation)
        self._bound[conversation] = _Binding(worker, now + self._life, tokens)
        self._resident[worker] = self._resident.get(worker, 0) + tokens
        if len(self._bound) > self._capacity:
            self.release(next(iter(self._bound)))

    def release(self, conversation: str) -> None:
        """A conversation is over; one that is not known changes nothing."""
        binding = self._bound.pop(conversation, None)
        if binding is not None:
            left = self._resident.get(binding.worker, 0) - binding.tokens
            if left > 0:
                self._resident[binding.worker] = left
            else:
                self._resident.pop(binding.worker, None)

    def forget(self, worker: str) -> None:
        """A worker is gone with all it held."""
        for name in [name for name, binding in self._bound.items() if binding.worker == worker]:
            self.release(name)

    def _expire(self, now: float) -> None:
        while self._bound:
            name = next(iter(self._bound))
            if self._bound[name].until > now:
                return
            self.release(name)
