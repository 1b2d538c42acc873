"""The line in which turns wait for a worker: by priority, then by arrival, with a bound.

Promise: sans-IO; a ticket leaves the line exactly once, by being served or by giving up.
"""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

__all__ = ["Ticket", "WaitingLine"]

T = TypeVar("T")


class Ticket(Generic[T]):
    """A place in the line."""

    __slots__ = ("gone", "item", "rank")

    def __init__(self, rank: tuple[int, int], item: T) -> None:
        self.rank = rank
        self.item = item
        self.gone = False

    def __lt__(self, other: Ticket[T]) -> bool:
        return self.rank < other.rank


class WaitingLine(Generic[T]):
    """A bounded priority line; a higher priority is served earlier."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._heap: list[Ticket[T]] = []
        self._arrivals = 0
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    @property
    def full(self) -> bool:
        return self._waiting >= self._limit

    def join(self, item: T, priority: int = 0) -> Ticket[T]:
        """Take a place; the caller has checked `full`."""
        self._arrivals += 1
        ticket = Ticket((-priority, self._arrivals), item)
        heapq.heappush(self._heap, ticket)
        self._waiting += 1
        return ticket

    def leave(self, ticket: Ticket[T]) -> None:
        """Give up a place; leaving twice does nothing."""
        if not ticket.gone:
            ticket.gone = True
            self._waiting -= 1

    def head(self) -> Ticket[T] | None:
        """Who is next, without taking them out."""
        while self._heap and self._heap[0].gone:
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else None

    def serve(self) -> Ticket[T] | None:
        """Take out who is next."""
        ticket = self.head()
        if ticket is not None:
            heapq.heappop(self._heap)
            self.leave(ticket)
        return ticket
