"""Admission to the embedded engine: who may run when the context memory and the slots are shared.

Promise: what is admitted at any moment fits both; waiters go by priority, then by arrival; leaving gives back exactly
what entering took, also when a waiter is cancelled.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

__all__ = ["ContextPool"]


class ContextPool:
    """`slots` generations at once, and never more than `tokens` of context among them."""

    def __init__(self, slots: int, tokens: int) -> None:
        self._slots = slots
        self._tokens = tokens
        self._arrivals = count()
        self._waiting: list[tuple[int, int, int, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def hold(self, tokens: int, priority: int = 0) -> AsyncIterator[None]:
        """Wait for a slot and `tokens` of context, hold them, give them back. The caller has checked that they fit
        the empty pool."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (-priority, next(self._arrivals), tokens, turn))
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_back(tokens)
            else:
                turn.cancel()
                self._admit()
            raise
        try:
            yield
        finally:
            self._give_back(tokens)

    def _give_back(self, tokens: int) -> None:
        self._slots += 1
        self._tokens += tokens
        self._admit()

    def _admit(self) -> None:
        # The first in line is never overtaken by a smaller one after it: a long prompt would starve.
        while self._waiting and self._slots:
            _, _, tokens, turn = self._waiting[0]
            if turn.done():
                heapq.heappop(self._waiting)
            elif tokens <= self._tokens:
                heapq.heappop(self._waiting)
                self._slots -= 1
                self._tokens -= tokens
                turn.set_result(None)
            else:
                return
