"""The worker pool: retries, migration without gap or repeat, admission by priority, and places given back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest

from turnwire.engines.bridge import pull, push
from turnwire.engines.http.spelling import Speller
from turnwire.engines.interface import (
    Capabilities,
    Completion,
    Constraint,
    EngineError,
    EngineInfo,
    EventBatch,
    GenerateRequest,
    Generation,
    Hints,
    Receiver,
    Step,
    TokenBatch,
)
from turnwire.engines.pool.after_failure import Budget
from turnwire.engines.pool.pool import PoolLimits, Worker, WorkerPool
from turnwire.turns import BlockOpened, Conversation, Sampling

TEXT = "naïve café, 東京 and 🙂 done"
BYTES = list(TEXT.encode())


class ByteDetokenizer:
    def __init__(self) -> None:
        self._held = b""

    def feed(self, ids: Sequence[int]) -> str:
        self._held += bytes(ids)
        for cut in range(len(self._held), max(len(self._held) - 4, -1), -1):
            try:
                text = self._held[:cut].decode()
            except UnicodeDecodeError:
                continue
            self._held = self._held[cut:]
            return text
        return ""

    def flush(self) -> str:
        return self._held.decode(errors="replace")


class ByteTokenizer:
    """One token per byte, so that a death can fall inside a character."""

    special_tokens: dict[str, int] = {}
    vocab_size = 256

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int], *, skip_special: bool = False) -> str:
        return bytes(ids).decode(errors="replace")

    def detokenizer(self, *, skip_special: bool = False) -> ByteDetokenizer:
        return ByteDetokenizer()


class FakeEngine:
    """Says TEXT byte by byte, from where the prompt stops; dies after `dies_after` tokens of each of its first
    `deaths` generations."""

    capabilities = Capabilities(yields="tokens", guided=frozenset({"regex"}))

    def __init__(self, *, deaths: int = 0, dies_after: int = 0, kind: str = "disconnected") -> None:
        self.deaths = deaths
        self.dies_after = dies_after
        self.kind = kind
        self.seen: list[GenerateRequest] = []
        self.open = 0
        self.gate: asyncio.Event | None = None

    async def start(self) -> EngineInfo:
        return EngineInfo(name="fake")

    def submit(self, request: GenerateRequest, receiver: Receiver) -> Generation:
        return push(self._steps(request), receiver)

    async def _steps(self, request: GenerateRequest) -> AsyncGenerator[Step, None]:
        self.seen.append(request)
        self.open += 1
        try:
            if self.gate is not None:
                await self.gate.wait()
            dying = self.deaths > 0
            self.deaths -= dying
            detokenizer = ByteDetokenizer()
            for count, token in enumerate(BYTES[request.resumed :]):
                if dying and count == self.dies_after:
                    raise EngineError(self.kind, "died")  # type: ignore[arg-type]
                yield TokenBatch(detokenizer.feed([token]), (token,))
                await asyncio.sleep(0)
            yield Completion("stop", len(request.prompt_ids), len(BYTES) - request.resumed)
        finally:
            self.open -= 1

    async def health(self) -> bool:
        return True

    async def embed(self, inputs: Sequence[str]) -> list[list[float]]:
        return [[1.0] for _ in inputs]

    async def close(self) -> None:
        pass


def request(priority: int = 0, **over: object) -> GenerateRequest:
    fields: dict[str, object] = {
        "prompt_ids": [1, 2, 3],
        "sampling": Sampling(max_tokens=500),
        "hints": Hints(request_id="r", priority=priority),
        "conversation": Conversation(model="m", messages=()),
    }
    return GenerateRequest(**(fields | over))  # type: ignore[arg-type]


def pool(*engines: FakeEngine, **limits: float) -> WorkerPool:
    workers = [Worker(engine, f"w{index}") for index, engine in enumerate(engines)]
    budget = Budget(**{name: limits.pop(name) for name in Budget.__struct_fields__ if name in limits})  # type: ignore[arg-type]
    return WorkerPool(workers, ByteTokenizer(), PoolLimits(budget=budget, **limits))  # type: ignore[arg-type]


async def collect(
    engines: WorkerPool, asked: GenerateRequest, *, structured: bool = False
) -> tuple[str, list[int], Completion]:
    text, ids, end = "", [], None
    async for step in pull(engines, asked):
        if isinstance(step, TokenBatch):
            text += step.text
            ids.extend(step.ids)
        elif not structured:
            assert isinstance(step, Completion)
            end = step
    assert end is not None
    return text, ids, end


async def test_a_turn_moves_on_after_a_death_at_any_token_without_gap_or_repeat() -> None:
    for dies_after in range(len(BYTES)):
        first, second = FakeEngine(deaths=1, dies_after=dies_after), FakeEngine()
        engines = pool(first, second)
        text, ids, end = await collect(engines, request())
        assert (text, ids) == (TEXT, BYTES)
        assert (end.prompt_tokens, end.output_tokens) == (3, len(BYTES))
        assert engines.statistics.migrations + engines.statistics.retries == 1
        assert engines.active == 0


async def test_the_same_worker_restarted_goes_on() -> None:
    engines = pool(FakeEngine(deaths=2, dies_after=7))
    text, ids, _ = await collect(engines, request())
    assert (text, ids) == (TEXT, BYTES)
    assert engines.statistics.migrations == 2
    assert engines.statistics.aborts == 0


async def test_moves_are_bounded_and_then_the_error_is_told() -> None:
    engines = pool(FakeEngine(deaths=99, dies_after=3), migrations=2)
    with pytest.raises(EngineError, match="died"):
        await collect(engines, request())
    assert engines.statistics.migrations == 2
    assert engines.active == 0


async def test_a_turn_on_the_move_is_not_lost_to_a_worker_that_is_gone_or_busy() -> None:
    for kind in ("unreachable", "overloaded"):
        dying, gone, last = FakeEngine(deaths=1, dies_after=9), FakeEngine(deaths=1, kind=kind), FakeEngine()
        engines = pool(dying, gone, last)
        text, ids, _ = await collect(engines, request())
        assert (text, ids) == (TEXT, BYTES)
        assert (engines.statistics.migrations, engines.active) == (1, 0)


async def test_a_worker_that_got_somewhere_before_it_died_does_not_use_up_the_moves() -> None:
    engines = pool(FakeEngine(deaths=5, dies_after=6), migrations=1, progress=6)
    text, ids, _ = await collect(engines, request())
    assert (text, ids) == (TEXT, BYTES)
    assert engines.statistics.migrations == 5
    engines = pool(FakeEngine(deaths=5, dies_after=6), migrations=1, progress=7)
    with pytest.raises(EngineError):
        await collect(engines, request())


async def test_what_an_engine_told_in_events_is_never_asked_for_again() -> None:
    class Structured(FakeEngine):
        def submit(self, request: GenerateRequest, receiver: Receiver) -> Generation:
            return push(self._steps(request), receiver)

        async def _steps(self, request: GenerateRequest) -> AsyncGenerator[Step, None]:
            self.seen.append(request)
            yield EventBatch((BlockOpened(0, "text"),))
            raise EngineError("disconnected", "died")

    first, second = Structured(), Structured()
    with pytest.raises(EngineError, match="died"):
        await collect(pool(first, second), request(), structured=True)
    assert len(first.seen) + len(second.seen) == 1


async def test_a_guided_turn_does_not_move() -> None:
    engines = pool(FakeEngine(deaths=1, dies_after=3), FakeEngine())
    with pytest.raises(EngineError):
        await collect(engines, request(constraint=Constraint(regex="a+")))
    assert engines.statistics.migrations_failed == 1


async def test_a_refusal_before_the_first_token_is_tried_elsewhere_but_a_bad_request_is_not() -> None:
    engines = pool(FakeEngine(deaths=1, kind="overloaded"), FakeEngine())
    assert (await collect(engines, request()))[0] == TEXT
    engines = pool(FakeEngine(deaths=1, kind="invalid_request"), FakeEngine())
    with pytest.raises(EngineError) as caught:
        await collect(engines, request())
    assert caught.value.kind == "invalid_request"


async def test_leaving_early_aborts_the_worker_once_and_gives_the_place_back() -> None:
    engine = FakeEngine()
    engines = pool(engine)
    steps = pull(engines, request())
    await anext(steps)
    assert (engine.open, engines.active) == (1, 1)
    await steps.aclose()
    assert engines.active == 0
    while engine.open:
        await asyncio.sleep(0)
    assert engines.statistics.aborts == 1


async def test_waiting_turns_are_served_by_priority_and_the_queue_is_bounded() -> None:
    engine = FakeEngine()
    engine.gate = asyncio.Event()
    engines = pool(engine, concurrency=1, queue=2)
    order: list[int] = []

    async def ask(priority: int) -> None:
        await collect(engines, request(priority))
        order.append(priority)

    running = [asyncio.create_task(ask(priority)) for priority in (0, 1, 9)]
    while engines.waiting < 2:
        await asyncio.sleep(0)
    with pytest.raises(EngineError) as caught:
        await collect(engines, request())
    assert caught.value.kind == "overloaded"
    assert caught.value.retry_after
    engine.gate.set()
    await asyncio.gather(*running)
    assert order == [0, 9, 1]
    assert (engines.active, engines.waiting) == (0, 0)


async def test_who_waits_too_long_or_gives_up_leaves_the_line() -> None:
    engine = FakeEngine()
    engine.gate = asyncio.Event()
    engines = pool(engine, concurrency=1, queue_timeout=0.05)
    holder = asyncio.create_task(collect(engines, request()))
    await asyncio.sleep(0)
    with pytest.raises(EngineError, match="too long"):
        await collect(engines, request())
    impatient = asyncio.create_task(collect(engines, request()))
    while engines.waiting < 1:
        await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.gather(impatient, return_exceptions=True)
    assert engines.waiting == 0
    engine.gate.set()
    await holder
    assert engines.active == 0


async def test_a_turn_that_always_makes_a_little_progress_still_ends() -> None:
    engines = pool(FakeEngine(deaths=99, dies_after=2), progress=1, moves=5)
    with pytest.raises(EngineError, match="died"):
        await collect(engines, request())
    assert engines.statistics.migrations == 5


class Stopping(FakeEngine):
    """Looks for the stop strings in its own output, as engines do: `spans` says how many tokens a batch has."""

    spans = 1

    async def _steps(self, request: GenerateRequest) -> AsyncGenerator[Step, None]:
        self.seen.append(request)
        dying = self.deaths > 0
        self.deaths -= dying
        speller = Speller(ByteTokenizer(), request.sampling.stop)
        left = BYTES[request.resumed :]
        for start in range(0, len(left), self.spans):
            if dying and start >= self.dies_after:
                raise EngineError("disconnected", "died")
            ids = left[start : start + self.spans]
            text, taken = speller.feed(ids)
            yield TokenBatch(text, tuple(ids[:taken]))
            if speller.stopped_by is not None:
                yield Completion("stop_sequence", len(request.prompt_ids), start + taken, 0, speller.stopped_by)
                return
            await asyncio.sleep(0)
        yield TokenBatch(speller.flush())
        yield Completion("stop", len(request.prompt_ids), len(left))


@pytest.mark.parametrize("spans", [1, 3])
@pytest.mark.parametrize("stop", ["東京", "and", "é, ", "done", "never"])
async def test_a_stop_string_holds_wherever_the_worker_dies(stop: str, spans: int) -> None:
    """Also where the two halves of the string are two workers' words, and what was held back for it is not lost."""
    alone = Stopping()
    asked = request(sampling=Sampling(max_tokens=500, stop=(stop,)))
    text, ids, end = await collect(pool(alone), asked)
    assert stop not in text
    for dies_after in range(len(ids)):
        first, second = Stopping(deaths=1, dies_after=dies_after), Stopping()
        first.spans = second.spans = spans
        engines = pool(first, second)
        told = await collect(engines, asked)
        assert told[:2] == (text, ids), dies_after
        assert (told[2].reason, told[2].stop_sequence) == (end.reason, end.stop_sequence)
        assert (told[2].prompt_tokens, told[2].output_tokens) == (end.prompt_tokens, end.output_tokens)
        assert engines.active == 0


async def test_a_character_that_stays_incomplete_is_told_after_a_move_too() -> None:
    class Cut(Stopping):
        async def _steps(self, request: GenerateRequest) -> AsyncGenerator[Step, None]:
            left = [*b"cut ", 0xE6][request.resumed :]
            dying = self.deaths > 0
            self.deaths -= dying
            detokenizer = ByteDetokenizer()
            for place, token in enumerate(left):
                if dying and place == 2:
                    raise EngineError("disconnected", "died")
                yield TokenBatch(detokenizer.feed([token]), (token,))
            yield TokenBatch(detokenizer.flush())
            yield Completion("length", len(request.prompt_ids), len(left))

    assert (await collect(pool(Cut()), request()))[0] == "cut \ufffd"
    assert (await collect(pool(Cut(deaths=1), Cut()), request()))[0] == "cut \ufffd"


async def test_what_a_dead_worker_held_back_is_told_where_nothing_is_left_to_write() -> None:
    wanted = Sampling(max_tokens=6, stop=("ve coffee",))
    engines = pool(Stopping(deaths=1, dies_after=6), Stopping())
    text, ids, end = await collect(engines, request(sampling=wanted))
    assert (text, ids, end.reason) == ("naïve", BYTES[:6], "length")


async def test_a_turn_that_was_resumed_before_it_came_counts_that_too() -> None:
    """As one whose thought the gateway closed, and sent again."""
    first, second = FakeEngine(deaths=1, dies_after=5), FakeEngine()
    text, ids, _ = await collect(pool(first, second), request(resumed=2))
    assert (text, ids) == (TEXT[2:], BYTES[2:])
    assert [asked.resumed for asked in second.seen] == [7]


async def test_a_deadline_is_for_turns_that_wait_to_begin() -> None:
    class Slow(FakeEngine):
        async def _steps(self, request: GenerateRequest) -> AsyncGenerator[Step, None]:
            yield TokenBatch(TEXT[:2], tuple(BYTES[:2]))
            await asyncio.sleep(0.06)
            raise EngineError("disconnected", "died")

    engines = pool(Slow(), FakeEngine())
    hints = Hints(request_id="r", deadline=asyncio.get_running_loop().time() + 0.05)
    assert (await collect(engines, request(hints=hints)))[0] == TEXT


async def test_text_without_ids_comes_whole_from_the_worker_that_took_the_turn_second() -> None:
    class Texts(FakeEngine):
        capabilities = Capabilities(yields="text")

        async def _steps(self, request: GenerateRequest) -> AsyncGenerator[Step, None]:
            if self.deaths:
                raise EngineError("overloaded", "busy")
            for character in TEXT:
                yield TokenBatch(character)
            yield Completion("stop", len(request.prompt_ids), len(TEXT))

    text, _ids, end = await collect(pool(Texts(deaths=1), Texts()), request())
    assert (text, end.output_tokens) == (TEXT, len(TEXT))


async def test_the_counts_of_a_server_that_counts_prompts_itself_stay_its_own_after_a_refusal() -> None:
    class Structured(FakeEngine):
        async def _steps(self, request: GenerateRequest) -> AsyncGenerator[Step, None]:
            if self.deaths:
                raise EngineError("overloaded", "busy")
            yield EventBatch((BlockOpened(0, "text"),))
            yield Completion("stop", 1234, 5, 1000)

    steps = [step async for step in pull(pool(Structured(deaths=1), Structured()), request(prompt_ids=[]))]
    assert steps[-1] == Completion("stop", 1234, 5, 1000)


class AtOnce(FakeEngine):
    """Gives its receiver everything in one step of the event loop."""

    def __init__(self, text: str, end: Completion | EngineError) -> None:
        super().__init__()
        self.text, self.end = text, end

    def submit(self, request: GenerateRequest, receiver: Receiver) -> Generation:
        self.seen.append(request)
        leg = Leg()
        asyncio.get_running_loop().call_soon(self._play, receiver, leg)
        return leg

    def _play(self, receiver: Receiver, leg: Leg) -> None:
        # The worker holds back what may begin a stop string.
        receiver.tokens(TokenBatch(self.text.removesuffix("ST"), tuple(self.text.encode())))
        if leg.aborted:
            return
        if isinstance(self.end, Completion):
            receiver.done(self.end)
        else:
            receiver.failed(self.end)


class Leg:
    aborted = False

    def abort(self) -> None:
        self.aborted = True

    def pause(self) -> None: ...

    def resume(self) -> None: ...


@pytest.mark.parametrize(
    "end",
    [
        Completion("length", 5, 11),
        Completion("stop", 5, 11),
        Completion("stop_sequence", 5, 11, 0, "more"),
        EngineError("context_overflow", "no room"),
        EngineError("disconnected", "died"),
    ],
    ids=["length", "stop", "another one", "refused", "died"],
)
async def test_a_stop_string_of_two_workers_counts_though_the_second_ends_in_the_same_read(
    end: Completion | EngineError,
) -> None:
    engines = pool(AtOnce("xST", EngineError("disconnected", "died")), AtOnce("OP and more", end))
    text, ids, told = await collect(engines, request(sampling=Sampling(max_tokens=50, stop=("more", "STOP"))))
    assert (text, bytes(ids)) == ("x", b"xSTOP")
    assert (told.reason, told.stop_sequence, told.output_tokens) == ("stop_sequence", "STOP", 5)
    assert engines.active == 0


async def test_a_worker_that_fails_right_behind_a_stop_string_leaves_nothing_to_ask_for() -> None:
    second = FakeEngine()
    first = AtOnce("xSTOP", EngineError("disconnected", "died"))
    # As a worker that found the string tells it.
    first._play = lambda receiver, leg: (  # type: ignore[method-assign]
        receiver.tokens(TokenBatch("x", tuple(b"xSTOP"))),
        receiver.failed(first.end),
    )
    _text, ids, told = await collect(pool(first, second), request(sampling=Sampling(max_tokens=50, stop=("STOP",))))
    assert bytes(ids) == b"xSTOP"
    assert (told.reason, told.stop_sequence, told.output_tokens) == ("stop_sequence", "STOP", 5)
    assert second.seen == []


async def test_a_spent_budget_is_an_end_whatever_the_worker_says_then() -> None:
    """Also where another one could not go on."""
    engine = AtOnce("abc", EngineError("internal", "broken"))
    wanted = request(sampling=Sampling(max_tokens=3), constraint=Constraint(regex="abc"))
    text, _ids, told = await collect(pool(engine), wanted)
    assert (text, told.reason, told.output_tokens) == ("abc", "length", 3)
