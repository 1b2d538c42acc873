"""Prompts that are read ahead: only by idle workers, for one conversation at a time, and given up for any turn."""

from __future__ import annotations

import asyncio

import msgspec

from turnwire.engines.interface import EngineError, GenerateRequest
from turnwire.engines.pool.pool import WorkerPool

from .test_workers import StagedEngine, _Deaf, answer, pool, turn, until

NEXT = list(range(1_000))


def ahead(**over: object) -> GenerateRequest:
    return turn(prompt_ids=NEXT, session="s", **over)


async def begun(*engines: StagedEngine, **limits: float) -> WorkerPool:
    """A pool that has had a turn of the conversation `s`."""
    subject = pool(*engines, **limits)
    await answer(subject, turn(session="s"))
    return subject


async def test_the_next_prompt_is_read_where_the_conversation_lives_and_its_turn_finds_it() -> None:
    one, two = StagedEngine(), StagedEngine()
    engines = await begun(one, two)
    assert engines.read_ahead.begin(ahead(), 100)
    (sent,) = [stage for stage in one.turns if stage.request.hints.request_id.startswith("ahead-")]
    assert (sent.request.sampling.max_tokens, sent.request.hints.priority) == (1, -100)
    assert sent.request.prompt_ids == NEXT
    await until(lambda: not any(entry.running for entry in engines.read_ahead._ahead.values()))
    await answer(engines, turn(prompt_ids=[*NEXT, 5], session="s"))
    told = engines.read_ahead.statistics
    assert (told.hit, told.wasted, told.cut, told.tokens) == (1, 0, 0, 900)
    assert not two.turns
    assert engines.active == 0


async def test_what_is_held_already_is_not_read_again() -> None:
    engines = await begun(StagedEngine())
    assert not engines.read_ahead.begin(ahead(), 900)
    assert engines.read_ahead.statistics.needless == 1


async def test_a_turn_that_comes_early_ends_it() -> None:
    engine = StagedEngine()
    engines = await begun(engine)
    engine.frozen = True
    assert engines.read_ahead.begin(ahead(), 0)
    engine.frozen = False
    await answer(engines, turn(prompt_ids=[*NEXT, 5], session="s"))
    assert engine.turns[1].aborted
    assert engines.read_ahead.statistics.cut == 1


async def test_any_turn_goes_first_and_a_busy_worker_reads_nothing_ahead() -> None:
    engine = StagedEngine()
    engines = await begun(engine)
    engine.frozen = True
    assert engines.read_ahead.begin(ahead(), 0)
    engines.submit(turn(session="another"), _Deaf())
    assert engine.turns[1].aborted
    assert not engines.read_ahead.begin(ahead(), 0), "a prompt is being read"
    assert (engines.read_ahead.statistics.wasted, engines.read_ahead.statistics.busy) == (1, 1)


async def test_a_conversation_that_goes_on_otherwise_is_counted_as_waste() -> None:
    engines = await begun(StagedEngine())
    assert engines.read_ahead.begin(ahead(), 0)
    await until(lambda: not any(entry.running for entry in engines.read_ahead._ahead.values()))
    await answer(engines, turn(prompt_ids=[7, 8, 9], session="s"))
    assert engines.read_ahead.statistics.wasted == 1
    request = msgspec.structs.replace(ahead(), hints=msgspec.structs.replace(ahead().hints, session="unknown"))
    assert not engines.read_ahead.begin(request, 0), "nobody knows where it lives"


async def test_a_worker_is_warmed_for_sessions_that_are_about_to_start() -> None:
    one, two = StagedEngine(), StagedEngine()
    engines = pool(one, two)
    (warmed,) = await engines.read_ahead.warm(turn(prompt_ids=NEXT), every=False)
    assert (warmed.worker, warmed.state, warmed.tokens) == ("w1", "read", 1000)
    assert one.turns[0].request.prompt_ids == NEXT
    assert one.turns[0].request.sampling.max_tokens == 1
    assert not two.turns
    warm = await engines.read_ahead.warm(turn(prompt_ids=NEXT), every=True)
    assert [(row.worker, row.state) for row in warm] == [("w1", "held"), ("w2", "read")]
    assert (engines.read_ahead.statistics.warmed, engines.read_ahead.statistics.tokens) == (2, 2000)
    assert engines.active == 0


async def test_a_turn_stops_warming_and_a_busy_worker_is_not_warmed() -> None:
    engine = StagedEngine()
    engines = pool(engine)
    engine.frozen = True
    warming = asyncio.ensure_future(engines.read_ahead.warm(turn(prompt_ids=NEXT), every=True))
    await until(lambda: bool(engine.turns))
    assert [row.state for row in await engines.read_ahead.warm(turn(prompt_ids=NEXT), every=True)] == ["busy"]
    engines.submit(turn(session="another"), _Deaf())
    assert [row.state for row in await warming] == ["stopped"]
    assert engine.turns[0].aborted
    assert not engines.read_ahead._warming


async def test_an_engine_that_fails_is_said_to_have() -> None:
    engine = StagedEngine()
    engine.error = EngineError("internal", "broken")
    engines = pool(engine)
    assert [row.state for row in await engines.read_ahead.warm(turn(prompt_ids=NEXT), every=True)] == ["failed"]
