"""The engine-core adapter against an engine core of our own, over real sockets."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
import zmq.asyncio

from turnwire.engines.interface import Completion, Constraint, Engine, EngineError, Hints, TokenBatch
from turnwire.engines.pool.pool import PoolLimits, Worker, WorkerPool
from turnwire.engines.scripted.script import Line
from turnwire.engines.vllm_core.attachment import Attachment, recall, remember
from turnwire.engines.vllm_core.engine import VLLMCoreEngine
from turnwire.engines.vllm_core.generation import HELD
from turnwire.engines.vllm_core.logprobs import columns, token_logprobs
from turnwire.engines.vllm_core.reception import Patience

from .conformance import CHECKS, Subject, Watch, collect, fails, ids_of, request, soon, text_of
from .engine_core import EngineCore, free_address
from .toytokenizer import ToyTokenizer

TOKENIZER = ToyTokenizer()


class CoreSubject:
    """The adapter in front of an engine core. What the core cannot say, the adapter says: a prompt that does not fit,
    an id that the model does not have, too many at once."""

    name = "vllm-core"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @asynccontextmanager
    async def open(self, line: Line) -> AsyncIterator[tuple[Engine, Watch | None]]:
        refusing = line.error if line.finish == "error" and line.after == 0 else ""
        async with running(
            self._folder,
            line,
            window=64 if refusing == "context_overflow" else 1000,
            vocabulary=150 if refusing == "invalid_request" else 4096,
            limit=0 if refusing == "overloaded" else 100,
        ) as (engine, core):
            yield engine, core


@asynccontextmanager
async def running(
    folder: Path,
    line: Line,
    *,
    limit: int = 100,
    patience: Patience | None = None,
    tokenizer: ToyTokenizer = TOKENIZER,
    **options: Any,
) -> AsyncIterator[tuple[VLLMCoreEngine, EngineCore]]:
    """A started engine and its core."""
    address = free_address()
    engine = VLLMCoreEngine(address, tokenizer, state=folder / "state.json", limit=limit, patience=patience)
    core = EngineCore(address, line, **options)
    try:
        await asyncio.gather(engine.start(), core.start())
        yield engine, core
    finally:
        await engine.close()
        if not core.dead.is_set():
            core.kill()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_conformance(check: Callable[[Subject], Awaitable[None]], tmp_path: Path) -> None:
    await check(CoreSubject(tmp_path))


class Heard:
    """A receiver that keeps every call."""

    def __init__(self) -> None:
        self.batches: list[TokenBatch] = []
        self.completion: Completion | None = None
        self.error: EngineError | None = None

    def tokens(self, batch: TokenBatch) -> None:
        self.batches.append(batch)

    def events(self, batch: object) -> None:
        raise AssertionError("no events here")

    def done(self, completion: Completion) -> None:
        assert not self.over
        self.completion = completion

    def failed(self, error: EngineError) -> None:
        assert not self.over
        self.error = error

    @property
    def over(self) -> bool:
        return self.completion is not None or self.error is not None

    @property
    def text(self) -> str:
        return "".join(batch.text for batch in self.batches)


@pytest.mark.parametrize(
    ("changes", "kind", "word"),
    [
        ({"prompt_ids": []}, "invalid_request", "empty"),
        ({"prompt_ids": [5] * 1000}, "context_overflow", "prompt is too long: 1000 tokens > 999"),
        ({"prompt_ids": [1, 4096]}, "invalid_request", "token id 4096"),
        ({"prompt_ids": [1, -1]}, "invalid_request", "token id -1"),
        ({"temperature": -1.0}, "invalid_request", "temperature"),
        ({"temperature": 2.5}, "invalid_request", "temperature"),
        ({"temperature": float("nan")}, "invalid_request", "temperature"),
        ({"top_p": 0.0}, "invalid_request", "top_p"),
        ({"top_k": -2}, "invalid_request", "top_k"),
        ({"min_p": 1.5}, "invalid_request", "min_p"),
        ({"presence_penalty": 2.5}, "invalid_request", "presence_penalty"),
        ({"repetition_penalty": 0.0}, "invalid_request", "repetition_penalty"),
        ({"repetition_penalty": float("inf")}, "invalid_request", "repetition_penalty"),
        ({"seed": 2**64}, "invalid_request", "seed"),
        ({"max_tokens": 0}, "invalid_request", "max_tokens"),
        ({"logprobs": 21}, "invalid_request", "logprobs"),
        ({"logit_bias": {"4096": 1.0}}, "invalid_request", "logit_bias"),
        ({"logit_bias": {"one": 1.0}}, "invalid_request", "logit_bias"),
        ({"logit_bias": {"1": float("nan")}}, "invalid_request", "logit_bias"),
    ],
)
async def test_what_would_end_the_core_is_refused_before_it_is_sent(
    changes: dict[str, Any], kind: str, word: str, tmp_path: Path
) -> None:
    async with running(tmp_path, Line(text="one two")) as (engine, core):
        prompt = changes.pop("prompt_ids", None)
        error, _text = await fails(engine, request(prompt, **changes))
        assert error.kind == kind
        assert word in error.message
        assert core.requests == []
        steps, _completion = await collect(engine, request())
        assert text_of(steps) == "one two", "and the core serves on"


async def test_a_schema_too_deep_for_the_compiler_is_refused(tmp_path: Path) -> None:
    deep: dict[str, object] = {}
    for _ in range(70):
        deep = {"properties": deep}
    async with running(tmp_path, Line(text="one")) as (engine, core):
        wanted = msgspec.structs.replace(request(), constraint=Constraint(json_schema=deep))
        error, _text = await fails(engine, wanted)
        assert (error.kind, "nested" in error.message) == ("invalid_request", True)
        assert core.requests == []


async def test_everything_that_was_asked_is_on_the_wire(tmp_path: Path) -> None:
    async with running(tmp_path, Line(text="one")) as (engine, core):
        schema: dict[str, object] = {"type": "boolean"}
        wanted = msgspec.structs.replace(
            request(temperature=0.5, top_k=5, seed=7, logit_bias={"5": 300.0}, stop=("zz",), presence_penalty=1.0),
            hints=Hints(request_id="same", priority=3, cache_salt="tenant"),
            stop_token_ids=(260, 7, 99_999),
            constraint=Constraint(json_schema=schema),
        )
        await collect(engine, wanted)
        await collect(engine, msgspec.structs.replace(wanted, constraint=Constraint(lark='start: "a"')))
        first, second = core.requests
        assert first[0] != second[0], "the same request id twice is never sent"
        assert first[1] == list(range(100, 180))
        assert first[3] == {
            "temperature": 0.5,
            "top_k": 5,
            "seed": 7,
            "presence_penalty": 1.0,
            "logit_bias": {5: 100.0},
            "max_tokens": 920,
            "_eos_token_id": 260,
            "stop_token_ids": [260, 7],
            "structured_outputs": {"json": '{"type":"boolean"}', "_backend": "xgrammar"},
        }
        assert second[3]["structured_outputs"] == {"grammar": 'start: "a"', "_backend": "xgrammar"}
        assert (first[7], first[11], first[13]) == ("tenant", 0, -3)


async def test_a_version_that_is_not_known_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(EngineError) as caught:
        async with running(tmp_path, Line(text="one"), version="0.33.1"):
            pass
    assert caught.value.kind == "invalid_request"
    assert "0.33.1" in caught.value.message
    assert "known: 0.32" in caught.value.message
    assert "vllm:http://" in caught.value.message


async def test_a_core_that_wants_a_coordinator_is_refused(tmp_path: Path) -> None:
    address = free_address()
    engine = VLLMCoreEngine(address, TOKENIZER, state=tmp_path / "s")
    core = EngineCore(address, Line(text="one"), size=2)
    with pytest.raises(EngineError, match="coordinator"):
        await asyncio.gather(engine.start(), core.start(hash="abc"))
    await engine.close()
    core.kill()


async def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    async with running(tmp_path, Line(text="one")) as (engine, _core):
        place = engine._reception._address
        second = VLLMCoreEngine(place, TOKENIZER, state=tmp_path / "t")
        with pytest.raises(EngineError, match="cannot be bound"):
            await second.start()
        await second.close()


async def test_no_core_is_unreachable_and_a_late_one_serves(tmp_path: Path) -> None:
    address = free_address()
    engine = VLLMCoreEngine(address, TOKENIZER, state=tmp_path / "s", patience=Patience(greeting=0.1))
    with pytest.raises(EngineError) as caught:
        await engine.start()
    assert caught.value.kind == "unreachable"
    assert "--headless" in caught.value.message
    error, _text = await fails(engine, request())
    assert error.kind == "unreachable"
    core = EngineCore(address, Line(text="late"))
    await core.start()
    async with asyncio.timeout(10):
        while not await engine.health():
            await asyncio.sleep(0.01)
    steps, _completion = await collect(engine, request())
    assert text_of(steps) == "late"
    await engine.close()
    core.kill()


async def test_several_cores_share_the_work_and_a_session_keeps_its_core(tmp_path: Path) -> None:
    address = free_address()
    line = Line(text="word " * 30, delay_ms=5)
    engine = VLLMCoreEngine(address, TOKENIZER, state=tmp_path / "s")
    cores = [EngineCore(address, line, rank=rank, size=2) for rank in range(2)]
    await asyncio.gather(engine.start(), *(core.start() for core in cores))
    await asyncio.gather(*(collect(engine, request()) for _ in range(8)))
    assert [len(core.requests) for core in cores] == [4, 4]
    for core in cores:
        core.requests.clear()
    session = msgspec.structs.replace(request(), hints=Hints(request_id="r", session="s"))
    for _ in range(4):
        await collect(engine, session)
    assert sorted(len(core.requests) for core in cores) == [0, 4]
    # One dies: what ran on it ends, the other's goes on.
    ends = await _both(engine, cores)
    assert sorted(ends) == ["disconnected", "stop"]
    assert await engine.health()
    await engine.close()
    cores[1].kill()


async def _both(engine: VLLMCoreEngine, cores: list[EngineCore]) -> list[str]:
    heard = [Heard(), Heard()]
    for one in heard:
        engine.submit(request(), one)
    await soon(lambda: all(one.batches for one in heard))
    cores[0].kill()
    await soon(lambda: all(one.over for one in heard))
    return [one.completion.reason if one.completion else one.error.kind for one in heard if one.completion or one.error]


async def test_a_core_that_fails_says_so_to_all(tmp_path: Path) -> None:
    async with running(tmp_path, Line(text="one two", finish="hang", after=1)) as (engine, core):
        heard = Heard()
        engine.submit(request(), heard)
        await soon(lambda: bool(heard.batches))
        await core.die()
        await soon(lambda: heard.over)
        assert heard.error is not None
        assert (heard.error.kind, "its log says why" in heard.error.message) == ("disconnected", True)
        assert not await engine.health()


async def test_a_core_started_again_serves_again(tmp_path: Path) -> None:
    async with running(tmp_path, Line(text="one")) as (engine, core):
        core.kill()
        await _unhealthy(engine)
        again = EngineCore(core._address, Line(text="two"), window=500)
        await again.start()
        async with asyncio.timeout(10):
            while not await engine.health():
                await asyncio.sleep(0.01)
        steps, _completion = await collect(engine, request())
        assert text_of(steps) == "two"
        error, _text = await fails(engine, request([1] * 600))
        assert error.kind == "context_overflow", "the new core's window counts"
        again.kill()


async def _unhealthy(engine: VLLMCoreEngine) -> None:
    async with asyncio.timeout(10):
        while await engine.health():
            await asyncio.sleep(0.01)


async def test_a_frontend_started_again_goes_on_with_the_core(tmp_path: Path) -> None:
    address, state = free_address(), tmp_path / "state.json"
    first = VLLMCoreEngine(address, TOKENIZER, state=state)
    core = EngineCore(address, Line(text="word " * 900, burst=1, delay_ms=5))
    await asyncio.gather(first.start(), core.start())
    heard = Heard()
    first.submit(request(), heard)
    await soon(lambda: bool(heard.batches))
    # As a process that is killed: nothing is aborted.
    first._running.clear()
    await first.close()
    second = VLLMCoreEngine(address, TOKENIZER, state=state)
    info = await second.start()
    assert (info.version, info.window) == ("0.32.0", 1000)
    await soon(lambda: core.aborts == 1)
    core.line = Line(text="here again")
    steps, _completion = await collect(second, request())
    assert text_of(steps) == "here again"
    error, _text = await fails(second, request([4096]))
    assert error.kind == "invalid_request", "the vocabulary is remembered too"
    await second.close()
    core.kill()


async def test_what_cores_reported_is_kept_by_a_frontend_that_closes_at_once(tmp_path: Path) -> None:
    address, state = free_address(), tmp_path / "state.json"
    first = VLLMCoreEngine(address, TOKENIZER, state=state)
    busy = first._reception._writer.submit(time.sleep, 0.5)
    core = EngineCore(address, Line(text="here"))
    await asyncio.gather(first.start(), core.start())
    assert not busy.done()
    await first.close()
    second = VLLMCoreEngine(address, TOKENIZER, state=state)
    await second.start()
    steps, _completion = await collect(second, request())
    assert text_of(steps) == "here"
    await second.close()
    core.kill()


async def test_the_last_of_several_cores_is_kept_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was known before it is never written over what is known now."""
    begun: list[int] = []
    written: list[int] = []

    def slow(file: Path, attachment: Attachment) -> None:
        begun.append(len(attachment.cores))
        time.sleep(0.3 if len(begun) == 1 else 0)
        remember(file, attachment)
        written.append(len(attachment.cores))

    monkeypatch.setattr("turnwire.engines.vllm_core.reception.remember", slow)
    address, state = free_address(), tmp_path / "state.json"
    engine = VLLMCoreEngine(address, TOKENIZER, state=state)
    cores = [EngineCore(address, Line(text="one"), rank=rank, size=2) for rank in range(2)]
    starting = asyncio.ensure_future(engine.start())
    for core in cores:
        await core.start()
    await starting
    await soon(lambda: len(written) == 2)
    kept = recall(state)
    assert kept is not None
    assert sorted(kept.cores) == [0, 1]
    await engine.close()
    for core in cores:
        core.kill()


async def test_a_damaged_memory_of_cores_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("{no")
    async with running(tmp_path, Line(text="one")) as (engine, _core):
        steps, _completion = await collect(engine, request())
        assert text_of(steps) == "one"


async def test_a_core_that_reads_no_more_is_given_up(tmp_path: Path) -> None:
    patience = Patience(silence=0.2, answer=0.3)
    async with running(tmp_path, Line(text="one"), patience=patience) as (engine, core):
        core.deaf = True
        error, _text = await fails(engine, request())
        assert (error.kind, "does not answer" in error.message) == ("unreachable", True)
        assert not await engine.health()


async def test_a_slow_core_that_answers_is_waited_for(tmp_path: Path) -> None:
    patience = Patience(silence=0.1, answer=0.3)
    async with running(tmp_path, Line(text="one"), patience=patience) as (engine, core):
        core.header_delay = 1.0
        steps, _completion = await collect(engine, request())
        assert text_of(steps) == "one"
        assert core.calls


async def test_a_stop_string_ends_the_cores_work(tmp_path: Path) -> None:
    async with running(tmp_path, Line(text="one two three " * 100, burst=1, delay_ms=2)) as (engine, core):
        steps, completion = await collect(engine, request(stop=("two",)))
        assert (text_of(steps), completion.stop_sequence, completion.output_tokens) == ("one ", "two", 2)
        assert len(ids_of(steps)) == 2
        await soon(lambda: core.aborts == 1)


async def test_a_paused_receiver_gets_everything_later(tmp_path: Path) -> None:
    async with running(tmp_path, Line(text="one two three four", burst=1, delay_ms=1)) as (engine, core):
        heard = Heard()
        generation = engine.submit(request(), heard)
        generation.pause()
        await soon(lambda: not core._running and bool(core.requests))
        await asyncio.sleep(0.05)
        assert not heard.batches
        generation.resume()
        await soon(lambda: heard.over)
        assert heard.text == "one two three four"
        assert len(heard.batches) == 1, "all that waited is one batch"


async def test_a_paused_receiver_is_not_waited_for_without_end(tmp_path: Path) -> None:
    async with running(tmp_path, Line(text="one", finish="hang", after=1)) as (engine, core):
        heard = Heard()
        generation = engine.submit(request(), heard)
        await soon(lambda: bool(heard.batches))
        generation.pause()
        name = core.requests[0][0]
        await core.send([[name, [97] * HELD]])
        await core.send([[name, [97]]])
        await soon(lambda: heard.over)
        assert heard.error is not None
        assert (heard.error.kind, "too slowly" in heard.error.message) == ("overloaded", True)
        await soon(lambda: core.aborts == 1)


async def test_an_abort_is_silent_and_late_outputs_are_passed_over(tmp_path: Path) -> None:
    async with running(tmp_path, Line(text="one", finish="hang", after=1)) as (engine, core):
        heard = Heard()
        generation = engine.submit(request(), heard)
        await soon(lambda: bool(heard.batches))
        generation.abort()
        generation.abort()
        await soon(lambda: core.aborts == 1)
        await core.send([[core.requests[0][0], [97], None, None, None, 2]])
        core.line = Line(text="next")
        steps, _completion = await collect(engine, request())
        assert text_of(steps) == "next"
        assert len(heard.batches) == 1
        assert not heard.over


async def test_an_abort_of_the_engines_own_is_a_disconnect(tmp_path: Path) -> None:
    """So that the turn can go on elsewhere: vLLM is being shut down."""
    async with running(tmp_path, Line(text="one", finish="hang", after=1)) as (engine, core):
        heard = Heard()
        engine.submit(request(), heard)
        await soon(lambda: bool(heard.batches))
        await core.send([[core.requests[0][0], [], None, None, None, 2]])
        await soon(lambda: heard.over)
        assert heard.error is not None
        assert heard.error.kind == "disconnected"


async def test_a_constraint_that_cannot_be_compiled_is_the_clients_error(tmp_path: Path) -> None:
    async with running(tmp_path, Line(text="one", finish="error", after=0)) as (engine, _core):
        error, _text = await fails(engine, msgspec.structs.replace(request(), constraint=Constraint(regex="(")))
        assert error.kind == "invalid_request"


@pytest.mark.parametrize(
    "said",
    [
        b"\x93\x00",
        b"\x92\x00\x91\x92\xa1\xff\x90",
        b"\x92\x00\x91\x93\xa1a\x90" + b"\x91" * 90_000 + b"\xc0",
    ],
    ids=["cut", "no text", "deep"],
)
async def test_a_message_that_cannot_be_read_ends_what_runs(said: bytes, tmp_path: Path) -> None:
    async with running(tmp_path, Line(text="one", finish="hang", after=1)) as (engine, core):
        heard = Heard()
        engine.submit(request(), heard)
        await soon(lambda: bool(heard.batches))
        await core._output.send(said)
        await soon(lambda: heard.over)
        assert heard.error is not None
        assert "cannot be read" in heard.error.message
        await soon(lambda: core.aborts == 1)


async def test_a_receiver_that_fails_ends_only_its_own(tmp_path: Path) -> None:
    class Broken(Heard):
        def tokens(self, batch: TokenBatch) -> None:
            raise RuntimeError("a defect")

    async with running(tmp_path, Line(text="one two three", burst=1, delay_ms=20)) as (engine, core):
        broken, heard = Broken(), Heard()
        engine.submit(request(), broken)
        engine.submit(request(), heard)
        await soon(lambda: heard.over)
        assert heard.text == "one two three"
        await soon(lambda: core.aborts == 1)

    class Worse(Heard):
        def failed(self, error: EngineError) -> None:
            raise RuntimeError("a defect")

    async with running(tmp_path, Line(text="one two three", finish="hang", after=1)) as (engine, core):
        worse, heard = Worse(), Heard()
        engine.submit(request(), worse)
        engine.submit(request(), heard)
        await soon(lambda: bool(heard.batches))
        core.kill()
        await soon(lambda: heard.over)


async def test_long_arrays_of_log_probabilities_travel_apart(tmp_path: Path) -> None:
    async with running(tmp_path, Line(text="one two three four five six", cut="all")) as (engine, _core):
        steps, _completion = await collect(engine, request(logprobs=20))
        told = [entry for step in steps if isinstance(step, TokenBatch) for entry in step.logprobs]
        assert [entry.token for entry in told] == ["one ", "two ", "three ", "four ", "five ", "six"]
        assert [round(value, 3) for _token, value in told[0].top] == [-1.5 - place for place in range(20)]


async def test_a_tokenizer_of_another_model_is_warned_of(tmp_path: Path) -> None:
    address = free_address()
    engine = VLLMCoreEngine(address, TOKENIZER, state=tmp_path / "s")
    core = EngineCore(address, Line(text="one"), vocabulary=200)
    info, _ = await asyncio.gather(engine.start(), core.start())
    assert any("another model's" in warning for warning in info.warnings)
    await engine.close()
    core.kill()


async def test_starting_again_tells_what_is_there_now(tmp_path: Path) -> None:
    """A pool asks a worker anew what it is when it was gone."""
    async with running(tmp_path, Line(text="one")) as (engine, core):
        core.kill()
        await _unhealthy(engine)
        again = EngineCore(core._address, Line(text="two"), window=500)
        again.ready["kv_events_config"] = {"publisher": "zmq", "endpoint": "tcp://*:5557", "topic": "kv"}
        info, _ = await asyncio.gather(engine.start(), again.start())
        assert info.window == 500
        assert [source.endpoint for source in info.kv_events] == ["tcp://127.0.0.1:5557"]
        again.kill()


async def _healthy(engine: VLLMCoreEngine) -> None:
    async with asyncio.timeout(10):
        while not await engine.health():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("which", ["requests", "outputs", "both"])
async def test_a_connection_that_breaks_ends_what_runs_and_the_core_goes_on(which: str, tmp_path: Path) -> None:
    """The core is not started again; libzmq connects again by itself, and what nobody waits for is aborted."""
    async with running(tmp_path, Line(text="word " * 900, burst=1, delay_ms=5)) as (engine, core):
        heard = Heard()
        engine.submit(request(), heard)
        await soon(lambda: bool(heard.batches))
        outputs = engine._cores.get(0).outputs  # type: ignore[union-attr]
        assert outputs is not None
        began = asyncio.get_running_loop().time()
        if which != "requests":
            outputs.drop()
        if which != "outputs":
            engine._wire._engines[0].drop()
        await soon(lambda: heard.over)
        assert asyncio.get_running_loop().time() - began < 0.3, "at once"
        assert heard.error is not None
        assert heard.error.kind == "disconnected"
        assert not await engine.health()
        error, _text = await fails(engine, request())
        assert error.kind == "unreachable", "refused instead of queued"
        await _healthy(engine)
        await soon(lambda: core.aborts == 1)
        core.line = Line(text="goes on")
        steps, _completion = await collect(engine, request())
        assert text_of(steps) == "goes on"
        core.line = Line(text="one", finish="hang", after=1)
        heard = Heard()
        engine.submit(request(), heard)
        await soon(lambda: bool(heard.batches))
        core.kill()
        await soon(lambda: heard.over)


async def test_a_connection_that_takes_anothers_place_ends_what_runs(tmp_path: Path) -> None:
    """The old one is still open here: its host was cut off and says nothing more."""
    async with running(tmp_path, Line(text="one", finish="hang", after=1)) as (engine, core):
        heard = Heard()
        engine.submit(request(), heard)
        await soon(lambda: bool(heard.batches))
        old = core._output
        core._output = core._context.socket(zmq.PUSH)
        core._output.connect(engine._wire._places[2])
        await core.send([])
        await soon(lambda: heard.over)
        assert heard.error is not None
        assert "broke" in heard.error.message
        old.close()
        core.line = Line(text="goes on")
        steps, _completion = await collect(engine, request())
        assert text_of(steps) == "goes on"


async def test_the_failure_of_one_core_is_not_that_of_another(tmp_path: Path) -> None:
    address = free_address()
    line = Line(text="one", finish="hang", after=1)
    engine = VLLMCoreEngine(address, TOKENIZER, state=tmp_path / "s")
    cores = [EngineCore(address, line, rank=rank, size=2) for rank in range(2)]
    await asyncio.gather(engine.start(), *(core.start() for core in cores))
    heard = [Heard(), Heard()]
    for one in heard:
        engine.submit(request(), one)
    await soon(lambda: all(one.batches for one in heard))
    await cores[0].die()
    await soon(lambda: any(one.over for one in heard))
    await asyncio.sleep(0.1)
    assert sorted(one.over for one in heard) == [False, True]
    assert await engine.health()
    await engine.close()
    cores[1].kill()


async def test_the_cores_that_are_left_go_on_as_the_worker_of_a_pool(tmp_path: Path) -> None:
    address = free_address()
    engine = VLLMCoreEngine(address, TOKENIZER, state=tmp_path / "s")
    cores = [EngineCore(address, Line(text="word " * 30, burst=1, delay_ms=5), rank=rank, size=2) for rank in range(2)]
    pool = WorkerPool([Worker(engine, "cores")], TOKENIZER, PoolLimits(recovery=5.0))
    await asyncio.gather(pool.start(), *(core.start() for core in cores))
    heard = [Heard(), Heard()]
    for one in heard:
        pool.submit(request(), one)
    await soon(lambda: all(one.batches for one in heard))
    cores[0].kill()
    await soon(lambda: all(one.over for one in heard))
    assert [one.error for one in heard] == [None, None]
    assert len(cores[1].requests) == 2
    steps, _completion = await collect(pool, request())
    assert text_of(steps) == "word " * 30
    await pool.close()
    cores[1].kill()


async def test_strangers_at_the_ports_hurt_nobody(tmp_path: Path) -> None:
    async with running(tmp_path, Line(text="word " * 50, burst=1, delay_ms=5)) as (engine, core):
        heard = Heard()
        engine.submit(request(), heard)
        await soon(lambda: bool(heard.batches))
        writers = []
        for step in range(3):
            for said in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" + bytes(8) + b"\x7f\3", b"\0" * 100_000):
                _reader, writer = await asyncio.open_connection("127.0.0.1", engine._wire._port + step)
                writer.write(said)
                writers.append(writer)
        context = zmq.asyncio.Context()
        for kind, step in ((zmq.PUSH, 2), (zmq.DEALER, 0)):
            junk = context.socket(kind)
            junk.setsockopt(zmq.IDENTITY, b"\7\0")
            junk.connect(engine._wire._places[step])
            await junk.send(b"\x93\x00")
        await soon(lambda: heard.over)
        assert heard.text == "word " * 50
        assert engine._cores.serving
        context.destroy(linger=0)
        for writer in writers:
            writer.close()
        assert len(core.requests) == 1


async def test_a_core_that_does_not_read_is_overloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwire.engines.vllm_core.zmtp.WAITING", 1 << 20)
    async with running(tmp_path, Line(text="one"), limit=100_000, window=100_000) as (engine, core):
        assert core._reader is not None
        core._reader.cancel()
        heard = [Heard()]
        while not heard[-1].over and len(heard) < 10_000:
            heard.append(Heard())
            engine.submit(request([300] * 5000), heard[-1])
            await asyncio.sleep(0)
        error = heard[-1].error
        assert error is not None
        assert (error.kind, error.retry_after) == ("overloaded", 2)
        assert not any(one.over for one in heard[:-1])


async def test_a_finished_answer_that_waits_for_its_reader_outlives_its_core(tmp_path: Path) -> None:
    async with running(tmp_path, Line(text="one two three", burst=1)) as (engine, core):
        heard = Heard()
        generation = engine.submit(request(), heard)
        generation.pause()
        kept: Any = generation
        await soon(lambda: kept._finish is not None)
        core.kill()
        await soon(lambda: heard.over)
        assert heard.error is None
        assert heard.text == "one two three"


async def test_what_came_before_the_word_of_a_cores_death_counts(tmp_path: Path) -> None:
    """Both in one read: the tokens, one of them a request's last, and then the end."""
    async with running(tmp_path, Line(text="one", finish="hang", after=1)) as (engine, core):
        heard = [Heard(), Heard()]
        for one in heard:
            engine.submit(request(), one)
        await soon(lambda: all(one.batches for one in heard))
        first, second = (told[0] for told in core.requests)
        link = engine._cores.get(0).outputs  # type: ignore[union-attr]
        assert link is not None
        step = [0, [[first, [97, 260], None, None, None, 0], [second, [98]]], None, 0.0, None]
        engine._reception.messages(link, [[msgspec.msgpack.encode(step)], [b"ENGINE_CORE_DEAD"]])
        assert [one.text for one in heard] == ["onea", "oneb"]
        assert heard[0].completion is not None
        assert heard[1].error is not None
        assert heard[1].error.kind == "disconnected"


async def test_what_came_before_a_message_that_cannot_be_read_counts(tmp_path: Path) -> None:
    async with running(tmp_path, Line(text="one", finish="hang", after=1)) as (engine, core):
        heard = Heard()
        engine.submit(request(), heard)
        await soon(lambda: bool(heard.batches))
        link = engine._cores.get(0).outputs  # type: ignore[union-attr]
        assert link is not None
        step = [0, [[core.requests[0][0], [97, 260], None, None, None, 0]], None, 0.0, None]
        engine._reception.messages(link, [[msgspec.msgpack.encode(step)], [b"\x93\x00"]])
        assert heard.completion is not None
        assert heard.text == "onea"


async def test_an_abort_reaches_a_core_that_is_behind_with_reading(tmp_path: Path) -> None:
    """Else it would write to the end for nobody once it reads again."""
    async with running(tmp_path, Line(text="one", finish="hang", after=1)) as (engine, core):
        heard = Heard()
        generation = engine.submit(request(), heard)
        await soon(lambda: bool(heard.batches))
        engine._wire._engines[0].full = True
        error, _text = await fails(engine, request())
        assert error.kind == "overloaded"
        generation.abort()
        await soon(lambda: core.aborts == 1)


async def test_ids_that_cannot_be_spelled_end_only_their_own_generation(tmp_path: Path) -> None:
    class Strict(ToyTokenizer):
        """As one that wants ids without a sign."""

        def detokenizer(self, *, skip_special: bool = False) -> Any:
            whole = super().detokenizer(skip_special=skip_special)

            class Checked:
                def feed(self, ids: Sequence[int]) -> str:
                    if min(ids, default=0) < 0:
                        raise OverflowError("can't convert negative int to unsigned")
                    return whole.feed(ids)

                flush = whole.flush

            return Checked()

    async with running(tmp_path, Line(text="one", finish="hang", after=1), tokenizer=Strict()) as (engine, core):
        heard = [Heard(), Heard()]
        for one in heard:
            engine.submit(request(), one)
        await soon(lambda: all(one.batches for one in heard))
        first, second = (told[0] for told in core.requests)
        await core.send([[first, [-1]], [second, [97]]])
        await soon(lambda: heard[0].over)
        assert heard[0].error is not None
        assert heard[0].error.kind == "internal"
        assert heard[1].text == "onea"
        await soon(lambda: core.aborts == 1)


async def test_nothing_is_asked_of_a_core_whose_outputs_may_be_lost(tmp_path: Path) -> None:
    """Neither by whoever hears of the break first, and asks again at once."""

    class Again(Heard):
        def failed(self, error: EngineError) -> None:
            super().failed(error)
            engine.submit(request(), second)

    second = Heard()
    async with running(tmp_path, Line(text="one", finish="hang", after=1)) as (engine, core):
        heard = Again()
        engine.submit(request(), heard)
        await soon(lambda: bool(heard.batches))
        outputs = engine._cores.get(0).outputs  # type: ignore[union-attr]
        assert outputs is not None
        outputs.drop()
        await soon(lambda: second.over)
        assert second.error is not None
        assert second.error.kind == "unreachable"
        await _healthy(engine)
        assert len(core.requests) == 1


async def test_what_a_core_reports_may_be_nothing_that_a_file_holds(tmp_path: Path) -> None:
    address = free_address()
    engine = VLLMCoreEngine(address, TOKENIZER, state=tmp_path / "state" / "core.json")
    core = EngineCore(address, Line(text="here"))
    core.ready["kv_events_config"] = {"x": msgspec.msgpack.Ext(5, b"1")}
    await asyncio.gather(engine.start(), core.start())
    steps, _completion = await collect(engine, request())
    assert text_of(steps) == "here"
    await engine.close()
    again = VLLMCoreEngine(address, TOKENIZER, state=tmp_path / "other.json")
    starting = asyncio.ensure_future(again.start())
    await soon(lambda: again._wire.is_open)
    starting.cancel()
    await again.close()
    assert os.listdir(tmp_path) == []
    core.kill()


def test_what_cannot_be_kept_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "core.json").mkdir()
    with pytest.raises(OSError):
        remember(tmp_path / "core.json", Attachment({}, {}))
    assert [found.name for found in tmp_path.iterdir()] == ["core.json"]


async def test_aborts_for_what_nobody_asked_are_bounded_too(tmp_path: Path) -> None:
    """A core that does not read them, and goes on writing, has no more of them waiting for it."""
    async with running(tmp_path, Line(text="one", finish="hang", after=1)) as (engine, core):
        told: list[bytes] = []
        engine._wire._engines[0]._transport = Sink(told)
        link = engine._cores.get(0).outputs
        assert link is not None
        foreign = msgspec.msgpack.encode([0, [["another's", [97]]], None, 0.0, None])
        for full, sent in ((True, 0), (False, 1), (False, 1)):
            engine._wire._engines[0].full = full
            engine._reception.messages(link, [[foreign]] * 3)
            assert len(told) == sent
        assert core.requests == []


class Sink(asyncio.Transport):
    """Takes what is written."""

    def __init__(self, told: list[bytes]) -> None:
        super().__init__()
        self._told = told

    def write(self, data: Any) -> None:
        self._told.append(bytes(data))

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize("width", [float("inf"), float("nan"), 0, -5, None])
def test_a_width_that_is_none_is_the_engines_fault(width: object) -> None:
    with pytest.raises(EngineError):
        columns([["<i4", [1, width], b""]])


@pytest.mark.parametrize("rows", [[0], "a", b"a"])
@pytest.mark.parametrize("swapped", [False, True])
def test_a_shape_that_is_no_number_takes_no_memory(rows: object, swapped: bool) -> None:
    shape = [1 << 62, rows] if swapped else [rows, 1 << 62]
    with pytest.raises(EngineError):
        token_logprobs([["<i4", shape, b""], ["<f4", [1, 1], b""]], [b""], str)
