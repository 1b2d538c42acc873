"""Workers that refuse, break, freeze, come late, know less or are taken away: what becomes of the turns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import msgspec
import pytest

from turnwire.engines.bridge import pull
from turnwire.engines.interface import (
    Capabilities,
    Completion,
    Constraint,
    EngineError,
    EngineInfo,
    GenerateRequest,
    Generation,
    Hints,
    Receiver,
    Route,
    TokenBatch,
    worker_number,
)
from turnwire.engines.pool.pool import PoolLimits, Worker, WorkerPool
from turnwire.engines.pool.router import Router
from turnwire.engines.pool.routing import Decision, TokenCost, TurnView, WorkerView
from turnwire.turns import Conversation, Sampling

from .test_pool import ByteTokenizer

SAID = list(b"what the model says, word for word")


class Stage:
    """A generation that its engine plays token by token."""

    def __init__(self, engine: StagedEngine, request: GenerateRequest, receiver: Receiver) -> None:
        self.engine, self.request, self.receiver = engine, request, receiver
        self.at = request.resumed
        self.aborted = False
        self.next = asyncio.get_running_loop().call_soon(self.step)

    def step(self) -> None:
        engine = self.engine
        if engine.frozen:
            return
        probe = not self.request.conversation.messages and self.request.hints.request_id.startswith("probe")
        if engine.error is not None and not (probe and engine.probes_well) and self.at >= engine.after:
            self.next = None
            self.receiver.failed(engine.error)
        elif self.at == len(SAID) or probe:
            self.receiver.done(Completion("stop", len(self.request.prompt_ids), self.at - self.request.resumed))
        else:
            token = SAID[self.at]
            self.at += 1
            self.next = asyncio.get_running_loop().call_later(engine.pace, self.step)
            self.receiver.tokens(TokenBatch(chr(token), (token,)))

    def abort(self) -> None:
        self.aborted = True
        if self.next is not None:
            self.next.cancel()

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class StagedEngine:
    """Says SAID; fails with `error` at token `after`, or falls silent while `frozen`."""

    def __init__(self, **capabilities: object) -> None:
        self.capabilities = Capabilities(yields="tokens", **capabilities)  # type: ignore[arg-type]
        self.discovered = self.capabilities
        self.error: EngineError | None = None
        self.after = 0
        self.pace = 0.0
        self.frozen = False
        self.probes_well = False
        self.absent = False
        self.info = EngineInfo(name="staged")
        self.starts = 0
        self.asked: list[Stage] = []

    @property
    def turns(self) -> list[Stage]:
        return [stage for stage in self.asked if not stage.request.hints.request_id.startswith("probe")]

    async def start(self) -> EngineInfo:
        self.starts += 1
        if self.absent:
            raise EngineError("unreachable", "nobody there")
        self.capabilities = self.discovered
        return self.info

    async def health(self) -> bool:
        while self.frozen:
            await asyncio.sleep(0.01)
        return not self.absent

    async def embed(self, inputs: Sequence[str]) -> list[list[float]]:
        return []

    async def close(self) -> None:
        self.closed = True

    def submit(self, request: GenerateRequest, receiver: Receiver) -> Generation:
        stage = Stage(self, request, receiver)
        self.asked.append(stage)
        return stage


def turn(**over: object) -> GenerateRequest:
    hints = {name: over.pop(name) for name in Hints.__struct_fields__ if name in over}
    fields = {
        "prompt_ids": [1, 2, 3],
        "sampling": Sampling(max_tokens=500),
        "hints": Hints(**({"request_id": "r"} | hints)),  # type: ignore[arg-type]
        "conversation": Conversation(model="m", messages=()),
    }
    return GenerateRequest(**(fields | over))  # type: ignore[arg-type]


def pool(*engines: StagedEngine, **limits: float) -> WorkerPool:
    workers = [Worker(engine, name) for engine, name in zip(engines, "abcd", strict=False)]
    return WorkerPool(workers, ByteTokenizer(), PoolLimits(**limits))  # type: ignore[arg-type]


async def answer(engines: WorkerPool, request: GenerateRequest | None = None) -> bytes:
    said = bytearray()
    async with asyncio.timeout(20):
        async for step in pull(engines, request or turn()):
            if isinstance(step, TokenBatch):
                said += bytes(step.ids)
    return bytes(said)


async def refused(engines: WorkerPool, request: GenerateRequest | None = None) -> EngineError:
    with pytest.raises(EngineError) as caught:
        await answer(engines, request)
    return caught.value


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def states(engines: WorkerPool) -> list[str]:
    return [worker.state for worker in engines.workers]


async def test_a_worker_that_the_client_names_takes_the_turn_while_it_takes_turns() -> None:
    engines = [StagedEngine() for _ in range(3)]
    three = pool(*engines)
    for _ in range(3):
        await answer(three, turn(worker=worker_number("c")))
    assert [len(engine.turns) for engine in engines] == [0, 0, 3]
    assert three.router.statistics.named == 3
    engines[2].error = EngineError("unreachable", "gone")
    assert await answer(three, turn(worker=worker_number("c"))) == bytes(SAID)
    assert await answer(three, turn(worker=worker_number("nobody"))) == bytes(SAID)
    assert len(engines[0].turns) + len(engines[1].turns) == 2


# ----------------------------------------------------------------------------------------------- refusals, breakage


@pytest.mark.parametrize("pause", [None, 30.0])
async def test_a_worker_that_always_refuses_is_asked_once_and_the_other_answers_everything(pause: float | None) -> None:
    refusing, idle = StagedEngine(), StagedEngine()
    refusing.error = EngineError("overloaded", "busy", retry_after=pause)
    engines = pool(refusing, idle)
    for _ in range(12):
        assert await answer(engines) == bytes(SAID)
    assert (len(refusing.turns), len(idle.turns)) == (1, 12)
    assert (engines.workers[0].state, engines.active) == ("suspect", 0)


@pytest.mark.parametrize("kind", ["internal", "timeout"])
async def test_a_worker_that_always_breaks_is_soon_left_alone(kind: str) -> None:
    breaking, idle = StagedEngine(), StagedEngine()
    breaking.error = EngineError(kind, "HTTP 500")  # type: ignore[arg-type]
    engines = pool(breaking, idle)
    for _ in range(12):
        assert await answer(engines) == bytes(SAID)
        await asyncio.sleep(0.01)
    assert len(breaking.turns) <= 3
    assert len(idle.turns) == 12


async def test_a_worker_whose_probes_succeed_while_its_turns_fail_is_taken_out_after_three() -> None:
    breaking, idle = StagedEngine(), StagedEngine()
    breaking.error, breaking.probes_well = EngineError("internal", "HTTP 500"), True
    engines = pool(breaking, idle)
    for _ in range(12):
        await answer(engines)
        await until(lambda: states(engines)[0] != "suspect")
    assert len(breaking.turns) == 3
    assert engines.workers[0].down
    breaking.error = None
    await until(lambda: states(engines)[0] == "healthy")
    await answer(engines)
    assert len(breaking.turns) == 4, "it serves again"


async def test_engine_death_told_in_an_event_moves_the_turn() -> None:
    dying, idle = StagedEngine(), StagedEngine()
    dying.error, dying.after = EngineError("internal", "EngineCore encountered an issue."), 7
    engines = pool(dying, idle)
    assert await answer(engines) == bytes(SAID)
    assert idle.turns[0].request.resumed == 7
    assert engines.statistics.migrations == 1


async def test_what_fails_everywhere_is_not_held_against_every_worker() -> None:
    engines_of = [StagedEngine() for _ in range(3)]
    for engine in engines_of:
        engine.error = EngineError("internal", "this prompt breaks me")
    engines = pool(*engines_of)
    assert (await refused(engines)).kind == "internal"
    assert [len(engine.turns) for engine in engines_of].count(0) == 0
    assert states(engines).count("healthy") == 2


async def test_all_workers_ask_for_a_long_pause() -> None:
    one, two = StagedEngine(), StagedEngine()
    for engine in (one, two):
        engine.error = EngineError("overloaded", "busy", retry_after=40)
    engines = pool(one, two)
    error = await refused(engines)
    assert error.kind == "overloaded"
    error = await refused(engines)
    assert error.retry_after == pytest.approx(40, abs=5)
    assert (len(one.turns), len(two.turns)) == (1, 1), "nobody is asked again before its time"


async def test_all_workers_ask_for_a_short_pause_and_the_turn_waits() -> None:
    engine = StagedEngine()
    engine.error = EngineError("overloaded", "busy", retry_after=0.2)
    engines = pool(engine)
    await refused(engines)
    engine.error = None
    assert await answer(engines) == bytes(SAID)
    assert len(engine.turns) == 2


# --------------------------------------------------------------------------------------------------- frozen workers


async def test_a_frozen_worker_loses_its_turns_to_an_idle_one() -> None:
    frozen, idle = StagedEngine(), StagedEngine()
    frozen.frozen = True
    engines = pool(frozen, idle, first_token=0.1)
    for _ in range(4):
        assert await answer(engines) == bytes(SAID)
    assert len(frozen.turns) == 1
    assert frozen.turns[0].aborted
    assert states(engines)[0] in ("suspect", "down")
    assert engines.statistics.moved_late == 1
    assert engines.active == 0


async def test_a_worker_that_freezes_in_mid_stream_loses_its_turn_without_gap_or_repeat() -> None:
    freezing, idle = StagedEngine(), StagedEngine()
    freezing.pace = 0.01
    engines = pool(freezing, idle, stall=0.1)
    running = asyncio.ensure_future(answer(engines))
    await until(lambda: bool(freezing.turns) and freezing.turns[0].at > 5)
    freezing.frozen = True
    assert await running == bytes(SAID)
    assert idle.turns[0].request.resumed == freezing.turns[0].at


async def test_a_long_silence_of_a_worker_that_probes_well_is_doubted_less_and_less_often() -> None:
    slow, clock = StagedEngine(), asyncio.get_running_loop()
    slow.pace, probes = 60, 0
    engines = pool(slow, stall=0.02)

    async def probe(thorough: bool) -> tuple[bool, bool]:
        nonlocal probes
        probes += 1
        return True, True

    engines.workers[0].probe = probe  # type: ignore[method-assign]
    began = clock.time()
    running = asyncio.ensure_future(answer(engines))
    await until(lambda: probes == 4)
    assert clock.time() - began >= 8 * 0.02, "each doubt takes twice the silence of the one before"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_slow_worker_without_a_better_one_is_left_in_peace() -> None:
    slow = StagedEngine()
    slow.frozen = True
    engines = pool(slow, first_token=0.05)
    running = asyncio.ensure_future(answer(engines))
    await until(lambda: states(engines)[0] == "suspect")
    slow.frozen = False
    slow.turns[0].step()
    assert await running == bytes(SAID)
    assert len(slow.turns) == 1


async def test_a_reader_who_pauses_is_no_silent_worker() -> None:
    engine, idle = StagedEngine(), StagedEngine()
    engine.frozen = True
    engines = pool(engine, idle, first_token=0.05)
    generation = engines.submit(turn(), _Deaf())
    generation.pause()
    await asyncio.sleep(0.3)
    assert (len(idle.turns), states(engines)) == (0, ["healthy", "healthy"])
    generation.abort()


class _Deaf:
    def _ignore(self, _: object) -> None: ...

    tokens = events = done = failed = _ignore


# ------------------------------------------------------------------------------------------- what a worker can do

SALTED = {"cache_salt": True, "guided": frozenset({"json_schema"})}


async def test_a_worker_that_is_down_at_start_is_discovered_when_it_comes_up() -> None:
    first, second = StagedEngine(), StagedEngine(**SALTED)
    first.absent, first.discovered = True, Capabilities(yields="tokens", **SALTED)  # type: ignore[arg-type]
    first.info = EngineInfo(name="staged", model="m", window=4096)
    engines = pool(first, second)
    await engines.start()
    assert states(engines) == ["down", "healthy"]
    assert engines.capabilities.cache_salt, "what the other one can do is not hidden by it"
    assert engines.capabilities.guided == {"json_schema"}
    await answer(engines, turn(cache_salt="tenant"))
    assert second.turns[0].request.hints.cache_salt == "tenant"
    first.absent = False
    await until(lambda: states(engines) == ["healthy", "healthy"])
    assert engines.workers[0].info == first.info
    assert first.capabilities.cache_salt


async def test_a_turn_goes_only_to_a_worker_that_can_do_what_it_asks_for() -> None:
    plain, able = StagedEngine(), StagedEngine(**SALTED)
    engines = pool(plain, able)
    for _ in range(5):
        await answer(engines, turn(cache_salt="tenant"))
        await answer(engines, turn(constraint=Constraint(json_schema={"type": "object"})))
    assert (len(plain.turns), len(able.turns)) == (0, 10)
    error = await refused(engines, turn(constraint=Constraint(regex="a+")))
    assert error.kind == "invalid_request"
    assert "guided decoding" in error.message


async def test_a_turn_that_needs_a_busy_worker_does_not_block_those_that_do_not() -> None:
    plain, able = StagedEngine(), StagedEngine(**SALTED)
    able.frozen = True
    engines = pool(plain, able, concurrency=1)
    holding = asyncio.ensure_future(answer(engines, turn(cache_salt="tenant")))
    waiting = asyncio.ensure_future(answer(engines, turn(cache_salt="tenant")))
    await until(lambda: engines.waiting == 1)
    async with asyncio.timeout(5):
        assert await answer(engines) == bytes(SAID)
    assert not waiting.done()
    holding.cancel()
    waiting.cancel()
    await asyncio.gather(holding, waiting, return_exceptions=True)
    assert (engines.active, engines.waiting) == (0, 0)


async def test_a_prompt_goes_only_where_it_fits() -> None:
    small, large = StagedEngine(), StagedEngine()
    small.info, large.info = EngineInfo(name="s", window=10), EngineInfo(name="s", window=1000)
    engines = pool(small, large)
    await engines.start()
    assert await answer(engines, turn(prompt_ids=list(range(50)))) == bytes(SAID)
    assert (len(small.turns), len(large.turns)) == (0, 1)


async def test_nobody_there_is_told_after_the_time_for_recovery() -> None:
    engine = StagedEngine()
    engine.error = EngineError("unreachable", "refused")
    engine.absent = True
    engines = pool(engine, recovery=0.1)
    error = await refused(engines)
    assert error.kind == "unreachable"
    assert error.retry_after


# --------------------------------------------------------------------------------------------- deadlines, fairness


async def test_who_has_a_deadline_waits_no_longer() -> None:
    engine = StagedEngine()
    engine.frozen = True
    engines = pool(engine, concurrency=1)
    holding = asyncio.ensure_future(answer(engines))
    await until(lambda: engines.active == 1)
    error = await refused(engines, turn(deadline=time.monotonic() + 0.05))
    assert error.kind == "timeout"
    assert (await refused(engines, turn(deadline=time.monotonic() - 1))).kind == "timeout"
    holding.cancel()
    await asyncio.gather(holding, return_exceptions=True)
    assert engines.active == 0


async def test_one_tenant_floods_and_another_is_served_next() -> None:
    engine = StagedEngine()
    engines = pool(engine, concurrency=1)
    order: list[str] = []

    async def ask(tenant: str) -> None:
        await answer(engines, turn(tenant=tenant))
        order.append(tenant)

    engine.frozen = True
    flood = [asyncio.ensure_future(ask("flood")) for _ in range(60)]
    await until(lambda: engines.waiting == 59)
    small = [asyncio.ensure_future(ask("small")) for _ in range(3)]
    await until(lambda: engines.waiting == 62)
    engine.frozen = False
    engine.turns[0].step()
    await asyncio.gather(*flood, *small)
    assert max(place for place, tenant in enumerate(order) if tenant == "small") < 8, order


# -------------------------------------------------------------------------------------------- workers at run time


async def test_workers_are_added_drained_and_removed_while_turns_run() -> None:
    first = StagedEngine()
    first.pace = 0.01
    engines = pool(first)
    running = asyncio.ensure_future(answer(engines))
    await until(lambda: engines.active == 1)
    second = StagedEngine()
    await engines.add(second, "second")
    engines.drain("a")
    assert await answer(engines) == bytes(SAID)
    assert (len(first.turns), len(second.turns)) == (1, 1)
    await engines.remove("a")
    assert await running == bytes(SAID), "it ran to its end where it was"
    assert [worker.name for worker in engines.workers] == ["second"]
    with pytest.raises(KeyError):
        engines.drain("a")


async def test_closing_the_pool_ends_running_and_waiting_turns() -> None:
    engine = StagedEngine()
    engine.frozen = True
    engines = pool(engine, concurrency=1)
    waiting: list[EngineError] = []

    class Waiting(_Deaf):
        def failed(self, error: EngineError) -> None:  # type: ignore[override]
            waiting.append(error)

    engines.submit(turn(), _Deaf())
    engines.submit(turn(), Waiting())
    assert engines.waiting == 1
    await engines.close()
    assert [error.kind for error in waiting] == ["disconnected"]


async def test_the_session_and_the_warm_cache_keep_a_turn_where_it_was() -> None:
    one, two = StagedEngine(), StagedEngine()
    engines = pool(one, two)
    request = turn(prompt_ids=list(range(1000)), session="s")
    await answer(engines, turn())
    for _ in range(4):
        await answer(engines, request)
        request = msgspec.structs.replace(request, prompt_ids=[*request.prompt_ids, *range(200)])
    counts = sorted(len([stage for stage in engine.turns if stage.request.hints.session]) for engine in (one, two))
    assert counts == [0, 4]


class Routed(_Deaf):
    """Remembers where its turn went."""

    def __init__(self) -> None:
        self.routes: list[Route] = []

    def routed(self, route: Route) -> None:
        self.routes.append(route)


async def test_eight_at_once_with_one_long_prefix_find_it_on_the_workers_that_read_it() -> None:
    staged = [StagedEngine() for _ in range(4)]
    for engine in staged:
        engine.frozen = True
    engines = pool(*staged)
    scaffold = list(range(35_000))
    receivers = [Routed() for _ in range(8)]
    generations = [
        engines.submit(turn(prompt_ids=[*scaffold, *[number] * 500], session=f"agent-{number}"), receiver)
        for number, receiver in enumerate(receivers)
    ]
    routes = [receiver.routes[0] for receiver in receivers]
    used = {route.worker for route in routes}
    cold = [route for route in routes if max(route.cached, route.pending) < 34_000]
    assert len(cold) == len(used), "each worker reads it once"
    assert [route.label for route in routes][:1] == ["w1"]
    assert engines.workers[0].load.prefilling >= 35_500
    for generation in generations:
        generation.abort()
    assert all(len(worker.reading) == worker.load.prefilling == 0 for worker in engines.workers)


async def test_a_policy_of_the_operators_own_decides_and_its_faults_do_no_harm() -> None:
    class Last:
        def choose(self, turn: TurnView, workers: Sequence[WorkerView]) -> Decision | None:
            if turn.prompt == 4:
                raise ZeroDivisionError
            return Decision(len(workers) - 1 if turn.prompt == 3 else 99, "load")

    one, two = StagedEngine(), StagedEngine()
    engines = WorkerPool([Worker(one, "a"), Worker(two, "b")], ByteTokenizer(), PoolLimits(), Router(Last()))
    await answer(engines)
    assert (len(one.turns), len(two.turns)) == (0, 1)
    for prompt in ([1, 2, 3, 4], [1, 2]):
        assert await answer(engines, turn(prompt_ids=prompt)) == bytes(SAID)
    assert engines.router.statistics.policy_failures == 2


async def test_a_hard_session_waits_for_its_worker_and_nobody_waits_for_it() -> None:
    one, two = StagedEngine(), StagedEngine()
    workers = [Worker(one, "a"), Worker(two, "b")]
    router = Router(TokenCost(affinity="hard"))
    engines = WorkerPool(workers, ByteTokenizer(), PoolLimits(concurrency=1), router)
    await answer(engines, turn(session="s"))
    one.frozen = True
    engines.submit(turn(session="s"), _Deaf())
    engines.submit(turn(session="s"), _Deaf())
    assert (engines.workers[0].active, engines.waiting) == (1, 1)
    async with asyncio.timeout(5):
        await answer(engines, turn())
    assert (len(one.turns), len(two.turns), engines.waiting) == (2, 1, 1)
    await engines.close()


async def test_a_worker_that_freezes_behind_its_last_token_leaves_nothing_to_ask_for() -> None:
    frozen, idle = StagedEngine(), StagedEngine()
    engines = pool(frozen, idle, stall=0.05)
    wanted = turn(sampling=Sampling(max_tokens=3))
    frozen.pace = 0.002
    said: list[bytes] = []

    class Until(Stage):
        def step(self) -> None:
            if self.at < 3:
                super().step()

    def submit(request: GenerateRequest, receiver: Receiver) -> Generation:
        stage = Until(frozen, request, receiver)
        frozen.asked.append(stage)
        return stage

    frozen.submit = submit  # type: ignore[method-assign]
    said.append(await answer(engines, wanted))
    assert said == [bytes(SAID[:3])]
    assert idle.turns == []
    assert frozen.turns[0].aborted


async def test_a_worker_that_was_removed_is_not_probed_any_more() -> None:
    """Its turn fails when it is closed, which says nothing new."""

    class Closing(StagedEngine):
        async def close(self) -> None:
            self.absent = True
            for stage in self.asked:
                if not stage.aborted:
                    stage.receiver.failed(EngineError("disconnected", "the engine was closed"))

    leaving, staying = Closing(), StagedEngine()
    leaving.frozen = True
    engines = pool(leaving, staying)
    running = asyncio.ensure_future(answer(engines))
    await until(lambda: engines.active == 1)
    await engines.remove("a", patience=0.01)
    assert await running == bytes(SAID)
    assert engines._checks == {}


async def test_a_worker_whose_answers_surprise_its_adapter_is_probed_on() -> None:
    class Surprising(StagedEngine):
        surprises = 2

        async def start(self) -> EngineInfo:
            if self.starts and self.surprises:
                self.surprises -= 1
                raise ValueError("what is this?")
            return await super().start()

    engine = Surprising()
    engines = pool(engine)
    await engines.start()
    engine.error = EngineError("unreachable", "gone")
    running = asyncio.ensure_future(answer(engines))
    await until(lambda: states(engines) == ["down"])
    engine.error = None
    assert await running == bytes(SAID)
    assert engine.surprises == 0


async def test_a_worker_may_be_removed_twice() -> None:
    first, second = StagedEngine(), StagedEngine()
    first.frozen = True
    engines = pool(first, second)
    running = asyncio.ensure_future(answer(engines))
    await until(lambda: engines.active == 1)
    removed = [asyncio.ensure_future(engines.remove("a", patience=10.0)) for _ in range(2)]
    await asyncio.sleep(0)
    first.frozen = False
    first.turns[0].step()
    assert await running == bytes(SAID)
    async with asyncio.timeout(5):
        await asyncio.gather(*removed)
    assert [worker.name for worker in engines.workers] == ["b"]


async def test_a_worker_whose_adapter_fails_at_a_thorough_probe_is_probed_on(caplog: pytest.LogCaptureFixture) -> None:
    class Surprising(StagedEngine):
        def submit(self, request: GenerateRequest, receiver: Receiver) -> Generation:
            if request.hints.request_id.startswith("probe"):
                raise TypeError("what is this?")
            return super().submit(request, receiver)

    worker = Worker(Surprising(), "a")
    assert await worker.probe(True) == (False, True)
    assert "what is this?" in caplog.text
