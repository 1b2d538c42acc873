"""The heartbeat: it beats for silent turns, leaves busy ones alone, and ends those beyond their deadline."""

from __future__ import annotations

import asyncio

from turnwire.gateway.turns.heartbeat import Heartbeat


class FakeTurn:
    def __init__(self) -> None:
        self.silent = True
        self.writing = False
        self.beats = 0
        self.ended: list[str] = []

    def beat(self) -> None:
        self.beats += 1

    def expire(self, reason: str) -> None:
        self.ended.append(reason)


def heartbeat(**over: float) -> Heartbeat:
    limits = {"keepalive_s": 0.02, "idle_s": 10.0, "stall_s": 10.0, "tick_s": 0.01} | over
    return Heartbeat(**limits)


async def until(condition: object) -> None:
    assert callable(condition)
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


async def test_a_silent_turn_gets_signs_of_life_and_a_forgotten_one_none() -> None:
    hearts, turn = heartbeat(), FakeTurn()
    hearts.watch(turn)
    await until(lambda: turn.beats >= 2)
    hearts.forget(turn)
    assert len(hearts) == 0
    seen = turn.beats
    await asyncio.sleep(0.05)
    assert turn.beats == seen
    assert turn.ended == []


async def test_a_silent_engine_is_ended_and_a_talking_one_is_not() -> None:
    hearts, quiet, talking = heartbeat(idle_s=0.05), FakeTurn(), FakeTurn()
    hearts.watch(quiet)
    hearts.watch(talking)

    async def talk() -> None:
        while True:
            talking.silent = False
            await asyncio.sleep(0)

    speaker = asyncio.create_task(talk())
    await until(lambda: quiet.ended)
    speaker.cancel()
    assert quiet.ended[0] == "idle"
    assert talking.ended == []
    assert talking.beats == 0
    hearts.forget(quiet)
    hearts.forget(talking)


async def test_a_reader_that_never_reads_is_cut() -> None:
    hearts, turn = heartbeat(stall_s=0.05), FakeTurn()
    turn.writing = True
    hearts.watch(turn)
    await until(lambda: turn.ended)
    assert turn.ended[0] == "stalled"
    assert turn.beats == 0
    hearts.forget(turn)
