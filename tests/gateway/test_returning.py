"""Memory goes back to the system in the quiet after turns, once, and never while one lives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from turnwire.gateway import returning
from turnwire.gateway.turns.heartbeat import Heartbeat

QUIET_S = 0.02


class FakeTurn:
    silent = False
    writing = False

    def beat(self) -> None:
        pass

    def expire(self, reason: str) -> None:
        pass


class Gateway:
    """A heartbeat whose quiet is watched, and how often memory was given back."""

    def __init__(self) -> None:
        self.heartbeat = Heartbeat(keepalive_s=60, idle_s=60, stall_s=60)
        self.returned = 0


@pytest.fixture
async def gateway(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Gateway]:
    made = Gateway()

    def count() -> None:
        assert len(made.heartbeat) == 0
        made.returned += 1

    monkeypatch.setattr(returning, "return_memory", count)
    task = asyncio.create_task(returning.return_when_quiet(made.heartbeat, QUIET_S))
    yield made
    assert not task.done()
    task.cancel()


async def until_returned(gateway: Gateway, times: int) -> None:
    async with asyncio.timeout(5):
        while gateway.returned < times:
            await asyncio.sleep(QUIET_S / 4)


async def test_a_gateway_that_served_nothing_has_nothing_to_give(gateway: Gateway) -> None:
    await asyncio.sleep(5 * QUIET_S)
    assert gateway.returned == 0


async def test_memory_goes_back_once_after_every_busy_time(gateway: Gateway) -> None:
    for times in (1, 2):
        turn = FakeTurn()
        gateway.heartbeat.watch(turn)
        await asyncio.sleep(5 * QUIET_S)
        assert gateway.returned == times - 1
        gateway.heartbeat.forget(turn)
        await until_returned(gateway, times)
        await asyncio.sleep(5 * QUIET_S)
        assert gateway.returned == times
