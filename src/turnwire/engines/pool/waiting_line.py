"""The line in which turns wait for a worker: by rank, then fairly among tenants, then by tier, priority and arrival.

Promise: sans-IO, bounded. Among turns of equal rank the tenant that has had the fewest tokens for its weight is next,
so a tenant that floods the line, at whatever priority, delays itself and nobody else; one that was idle gets no credit
for the time it asked for nothing. A ticket leaves the line exactly once.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

__all__ = ["Ticket", "WaitingLine"]

T = TypeVar("T")

_TENANTS_KEPT = 4096
"""Tenants without a waiting turn whose use is remembered."""


class Ticket(Generic[T]):
    """A place in the line."""

    __slots__ = ("gone", "item", "order", "tenant")

    def __init__(self, tenant: str, order: tuple[int, int, float, int], item: T) -> None:
        self.tenant = tenant
        self.order = order
        self.item = item
        self.gone = False

    def __lt__(self, other: Ticket[T]) -> bool:
        return self.order < other.order


class WaitingLine(Generic[T]):
    """A bounded line."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._heaps: dict[str, list[Ticket[T]]] = {}
        self._used: OrderedDict[str, float] = OrderedDict()
        self._reserved: dict[str, float] = {}
        self._floor = 0.0
        self._arrivals = 0
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    @property
    def full(self) -> bool:
        return self._waiting >= self._limit

    def join(
        self,
        item: T,
        *,
        tenant: str = "",
        rank: int = 0,
        tier: int = 0,
        priority: int = 0,
        at: float = 0.0,
        again: bool = False,
    ) -> Ticket[T]:
        """Take a place at a time; the caller has checked `full`. A higher tier goes before the others of its tenant;
        within one, each step of priority is worth a second of waiting. Whoever was served and comes `again` goes before
        the others of its tier."""
        self._arrivals += 1
        when = float("-inf") if again else at - priority
        ticket = Ticket(tenant, (-rank, -tier, when, -self._arrivals if again else self._arrivals), item)
        if tenant not in self._heaps:
            # Coming back from idleness: level with whoever is served least now, not ahead by all that was not asked.
            least = min((self._used.get(other, 0.0) for other in self._heaps), default=self._floor)
            self._set(tenant, max(self._used.get(tenant, 0.0), least))
        heapq.heappush(self._heaps.setdefault(tenant, []), ticket)
        self._waiting += 1
        return ticket

    def leave(self, ticket: Ticket[T]) -> None:
        """Give up a place, served or not; leaving twice does nothing."""
        if ticket.gone:
            return
        ticket.gone = True
        self._waiting -= 1
        heap = self._heaps[ticket.tenant]
        while heap and heap[0].gone:
            heapq.heappop(heap)
        if not heap:
            del self._heaps[ticket.tenant]
            self._floor = max(self._floor, self._used.get(ticket.tenant, 0.0))

    def head(self) -> Ticket[T] | None:
        """Who is next."""
        heaps = self._heaps
        if len(heaps) == 1:
            return next(iter(heaps.values()))[0]
        return min((heap[0] for heap in heaps.values()), key=self._order, default=None)

    def in_order(self) -> Iterator[Ticket[T]]:
        """Everybody, next first."""
        waiting = (ticket for heap in self._heaps.values() for ticket in heap if not ticket.gone)
        return iter(sorted(waiting, key=self._order))

    def reserve(self, tenant: str, tokens: float) -> None:
        """Book what a turn that is served now will probably get."""
        self._reserved[tenant] = self._reserved.get(tenant, 0.0) + tokens

    def settle(self, tenant: str, reserved: float, tokens: float) -> None:
        """Book what it did get, in place of what was reserved for it."""
        left = self._reserved.get(tenant, 0.0) - reserved
        if left > 1e-6:
            self._reserved[tenant] = left
        else:
            self._reserved.pop(tenant, None)
        self._set(tenant, self._used.get(tenant, self._floor) + tokens)

    def _order(self, ticket: Ticket[T]) -> tuple[int, float, int, float, int]:
        tenant, (rank, tier, when, arrival) = ticket.tenant, ticket.order
        return rank, self._used.get(tenant, 0.0) + self._reserved.get(tenant, 0.0), tier, when, arrival

    def _set(self, tenant: str, used: float) -> None:
        self._used[tenant] = used
        self._used.move_to_end(tenant)
        if len(self._used) > _TENANTS_KEPT:
            for idle in self._used:
                if idle not in self._heaps:
                    del self._used[idle]
                    break
