"""The embedded engine over a scripted stand-in for llama.cpp: exact ids, ends, failures, sharing, aborts."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.engines import embedded_fake as fake

from turnwire.engines.bridge import pull
from turnwire.engines.embedded import engine as embedded
from turnwire.engines.embedded.engine import EmbeddedEngine, EmbeddedSettings
from turnwire.engines.embedded.grammar_tokens import with_tokens
from turnwire.engines.embedded.missing_ids import Fragments
from turnwire.engines.embedded.server import plan_context, safe_threads
from turnwire.engines.interface import (
    Completion,
    Constraint,
    Engine,
    EngineError,
    EventBatch,
    GenerateRequest,
    Hints,
    TokenBatch,
)
from turnwire.prompts.tokenizers.gguf_file import GGUFFacts
from turnwire.turns import Conversation, Note, Sampling


def ids_of(text: str) -> list[int]:
    """One token per byte, but two bytes at once where an entry for them exists."""
    data, found = text.encode(), []
    while data:
        size = next((len(m) for m in fake.MERGED if data.startswith(m)), 1)
        found.append(fake.VOCABULARY.index(data[:size]))
        data = data[size:]
    return found


def request(
    prompt: int = 5, *, priority: int = 0, constraint: Constraint | None = None, **wishes: Any
) -> GenerateRequest:
    return GenerateRequest(
        prompt_ids=[65] * prompt,
        sampling=Sampling(**wishes),
        hints=Hints(request_id="r", priority=priority),
        conversation=Conversation(model="m", messages=()),
        constraint=constraint,
    )


async def play(engine: EmbeddedEngine, wanted: GenerateRequest) -> tuple[str, list[int], Completion]:
    text, ids, ends = "", [], []
    async for step in pull(engine, wanted):
        if isinstance(step, TokenBatch):
            assert not ends
            text, ids = text + step.text, [*ids, *step.ids]
        else:
            ends.append(step)
    (end,) = ends
    return text, ids, end


@pytest.fixture
def script() -> fake.Script:
    return fake.Script()


@pytest.fixture
def module(script: fake.Script, monkeypatch: pytest.MonkeyPatch) -> Any:
    module = fake.fake_module(script)
    monkeypatch.setitem(sys.modules, "xllamacpp", module)
    monkeypatch.setattr(embedded.metadata, "version", lambda name: "2026.1")
    return module


@pytest.fixture
async def engine(module: Any, tmp_path: Path) -> AsyncIterator[EmbeddedEngine]:
    engine = EmbeddedEngine(fake.write_gguf(tmp_path / "tiny.gguf"), settings=EmbeddedSettings(slots=2, window=400))
    await engine.start()
    yield engine
    await engine.close()


async def test_start_says_what_was_found(module: Any, tmp_path: Path) -> None:
    engine = EmbeddedEngine(fake.write_gguf(tmp_path / "tiny.gguf", window=40_000))
    assert isinstance(engine, Engine)
    info = await engine.start()
    assert (info.name, info.version, info.model, info.window) == ("embedded", "2026.1", "tiny", 32_768)
    assert "40000" in info.warnings[0]
    assert engine.model_path.name == "tiny.gguf"
    assert await engine.health()
    await engine.close()
    assert not await engine.health()
    assert module.unloaded == 1


async def test_the_server_is_private_and_modest(engine: EmbeddedEngine, module: Any) -> None:
    (params,) = module.loaded
    assert len(params.api_keys[0]) >= 32
    assert params.port == 0
    assert params.n_ctx == 800
    assert params.kv_unified
    assert params.cache_ram_mib <= 512
    assert params.cpuparams.n_threads == params.cpuparams_batch.n_threads == safe_threads()
    assert params.n_threads_http > params.n_parallel


@pytest.mark.parametrize(
    ("heads", "kept", "width", "layers", "asked", "plan"),
    [
        (9, 3, 576, 30, None, (32_768, 2)),
        (12, 2, 1536, 28, None, (32_768, 2)),
        (12, 2, 1536, 28, 8192, (8192, 4)),
        (32, 8, 4096, 32, None, (16_384, 1)),
        (32, 8, 4096, 32, 32_768, (32_768, 1)),
        (64, [8] * 80, 8192, 80, None, (16_384, 1)),
        (0, 0, 0, 0, None, (32_768, 4)),
    ],
)
def test_context_memory_follows_the_model(
    heads: int, kept: Any, width: int, layers: int, asked: int | None, plan: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = {
        "m.attention.head_count": heads,
        "m.attention.head_count_kv": kept,
        "m.embedding_length": width,
        "m.block_count": layers,
    }
    monkeypatch.setattr("os.sysconf", lambda name: {"SC_PHYS_PAGES": 4 * 1024 * 1024, "SC_PAGE_SIZE": 4096}[name])
    facts = GGUFFacts(metadata=metadata if heads else {}, architecture="m", window=131_072)
    found = plan_context(facts, EmbeddedSettings(window=asked))
    assert (found.window, found.tokens // found.window) == plan


def test_a_small_machine_sets_less_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = {
        "m.attention.head_count": 12,
        "m.attention.head_count_kv": 2,
        "m.embedding_length": 1536,
        "m.block_count": 28,
    }
    facts = GGUFFacts(metadata=metadata, architecture="m", window=32_768)
    monkeypatch.setattr("os.sysconf", lambda name: {"SC_PHYS_PAGES": 512 * 1024, "SC_PAGE_SIZE": 4096}[name])
    found = plan_context(facts, EmbeddedSettings())
    assert found.window == found.tokens == 18_724


def test_one_core_is_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, threads in ((1, 1), (2, 1), (8, 7), (128, 16)):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, n=cores: set(range(n)), raising=False)
        assert safe_threads() == threads


@pytest.mark.parametrize("text", ["plain", "ünïcödé", "漢字 and 🎉🥳 mixed", "🎉", "a 🎉 b", "👩‍👩‍👧‍👦 family"])
async def test_every_id_is_told(engine: EmbeddedEngine, script: fake.Script, text: str) -> None:
    script.tokens = [*ids_of(text), fake.EOS_ID]
    said, ids, end = await play(engine, request())
    assert said == text
    assert ids == ids_of(text)
    assert end == Completion("stop", 5, len(ids) + 1)


async def test_special_tokens_are_spelled_out(engine: EmbeddedEngine, script: fake.Script) -> None:
    script.tokens = [fake.THINK_ID, *ids_of("hm"), fake.EOS_ID]
    said, ids, _ = await play(engine, request())
    assert said == "<think>hm"
    assert ids[0] == fake.THINK_ID


async def test_length_and_cached_tokens(engine: EmbeddedEngine, script: fake.Script) -> None:
    script.tokens, script.cached = ids_of("abcdef"), 4
    said, _, end = await play(engine, request(max_tokens=3))
    assert said == "abc"
    assert (end.reason, end.output_tokens, end.cached_tokens) == ("length", 3, 4)


async def test_a_stop_string_ends_the_turn(engine: EmbeddedEngine, script: fake.Script) -> None:
    script.tokens, script.cached = ids_of("one STOP two"), 2
    said, _, end = await play(engine, request(stop=("STOP", "two")))
    assert said == "one "
    assert (end.reason, end.stop_sequence, end.cached_tokens) == ("stop_sequence", "STOP", 2)


async def test_text_that_only_looked_like_a_stop_string_is_not_lost(
    engine: EmbeddedEngine, script: fake.Script
) -> None:
    script.tokens = [*ids_of("ST"), fake.EOS_ID]
    said, ids, end = await play(engine, request(stop=("STOP",)))
    assert (said, ids, end.reason) == ("ST", ids_of("ST"), "stop")


async def test_wishes_and_constraints_reach_the_server(engine: EmbeddedEngine, script: fake.Script) -> None:
    script.tokens = [fake.EOS_ID]
    await play(engine, request(temperature=0.5, seed=7, constraint=Constraint(gbnf='root ::= "x"')))
    await play(engine, request(constraint=Constraint(json_schema={"type": "object"})))
    first, second = script.bodies
    assert first["temperature"] == 0.5
    assert first["seed"] == 7
    assert first["grammar"] == 'root ::= "x"'
    assert "top_p" not in first
    assert second["json_schema"] == {"type": "object"}


def test_markers_in_a_grammar_are_named_as_tokens() -> None:
    specials = {"<tool_call>": 7, "</tool_call>": 8, "<tool": 9, "": 10}
    grammar = 'root ::= "" calls-1\ncalls-1 ::= "<tool_call>\\n{" x "}</tool_call>"\nx-2 ::= "\\"<tool_call>\\""\n'
    assert with_tokens(grammar, specials) == (
        'root ::= "" calls-1\ncalls-1 ::= <[7]> "\\n{" x "}" <[8]>\nx-2 ::= "\\"<tool_call>\\""\n'
    )
    assert with_tokens(grammar, {}) == grammar


async def test_a_grammar_reaches_the_server_with_its_tokens(engine: EmbeddedEngine, script: fake.Script) -> None:
    script.tokens = [fake.EOS_ID]
    await play(engine, request(constraint=Constraint(gbnf='root ::= "<think>" "x"')))
    assert script.bodies[0]["grammar"] == f'root ::= <[{fake.THINK_ID}]> "x"'


async def test_refusals_come_in_neutral_words(engine: EmbeddedEngine, script: fake.Script) -> None:
    with pytest.raises(EngineError, match="grammar") as refused:
        await play(engine, request(constraint=Constraint(gbnf="bad")))
    assert refused.value.kind == "invalid_request"
    with pytest.raises(EngineError) as overflow:
        await play(engine, request(prompt=600))
    assert overflow.value.kind == "context_overflow"


async def test_failures_after_the_first_token(engine: EmbeddedEngine, script: fake.Script) -> None:
    script.tokens, script.error_after = ids_of("abc"), 2
    with pytest.raises(EngineError) as failed:
        await play(engine, request())
    assert failed.value.kind == "internal"
    script.error_after, script.die_after = None, 1
    with pytest.raises(EngineError) as died:
        await play(engine, request())
    assert died.value.kind == "disconnected"
    script.die_after, script.tokens = None, [*ids_of("ok"), fake.EOS_ID]
    assert (await play(engine, request()))[0] == "ok"


async def test_no_more_than_the_slots_run_and_urgent_ones_go_first(engine: EmbeddedEngine, script: fake.Script) -> None:
    script.tokens, script.pause = [*ids_of("abc"), fake.EOS_ID], 0.01
    order: list[int] = []

    async def one(number: int, priority: int) -> None:
        await play(engine, request(priority=priority, max_tokens=8))
        order.append(number)

    tasks = [asyncio.create_task(one(number, 9 if number == 5 else 0)) for number in range(6)]
    await asyncio.gather(*tasks)
    assert script.most_running == 2
    assert order.index(5) < order.index(4)


async def test_context_memory_is_shared_and_never_overdrawn(engine: EmbeddedEngine, script: fake.Script) -> None:
    script.tokens, script.pause = [*ids_of("abc"), fake.EOS_ID], 0.01
    await asyncio.gather(*(play(engine, request(prompt=100, max_tokens=350)) for _ in range(3)))
    assert script.most_running == 2
    async with asyncio.timeout(10):
        while script.running:  # the answer is out a moment before the thread that wrote it has ended
            await asyncio.sleep(0.01)
    script.most_running = 0
    engine._pool._tokens -= 400
    await asyncio.gather(*(play(engine, request(prompt=100, max_tokens=350)) for _ in range(2)))
    assert script.most_running == 1


@pytest.mark.parametrize("steps", [0, 1, 3])
async def test_leaving_aborts_and_frees_the_slot(engine: EmbeddedEngine, script: fake.Script, steps: int) -> None:
    script.tokens, script.pause = ids_of("x" * 200), 0.005
    stream = pull(engine, request(max_tokens=200))
    for _ in range(steps):
        await anext(stream)
    await stream.aclose()
    if steps:
        for _ in range(200):
            if script.aborted:
                break
            await asyncio.sleep(0.01)
        assert script.aborted == 1
    script.tokens, script.pause = [fake.EOS_ID], 0.0
    await asyncio.gather(*(play(engine, request()) for _ in range(2)))


async def test_a_cancelled_waiter_takes_nothing_with_it(engine: EmbeddedEngine, script: fake.Script) -> None:
    script.tokens, script.pause = [*ids_of("abcdef"), fake.EOS_ID], 0.01
    tasks = [asyncio.create_task(play(engine, request(max_tokens=20))) for _ in range(5)]
    await asyncio.sleep(0.02)
    for task in tasks[1:4]:
        task.cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(outcome, BaseException) for outcome in done] == [False, True, True, True, False]
    script.pause = 0.0
    for _ in range(3):
        assert (await play(engine, request(max_tokens=20)))[0] == "abcdef"


async def test_closing_ends_running_generations(module: Any, script: fake.Script, tmp_path: Path) -> None:
    engine = EmbeddedEngine(fake.write_gguf(tmp_path / "tiny.gguf"), settings=EmbeddedSettings(slots=1))
    await engine.start()
    script.tokens, script.pause = ids_of("x" * 300), 0.01
    running = pull(engine, request(max_tokens=100))
    await anext(running)
    waiting = asyncio.create_task(play(engine, request(max_tokens=100)))
    await asyncio.sleep(0)
    await engine.close()
    with pytest.raises(EngineError) as ended:
        async for _ in running:
            pass
    assert ended.value.kind == "disconnected"
    with pytest.raises(EngineError) as refused:
        await waiting
    assert refused.value.kind == "disconnected"


async def test_what_cannot_be_loaded_says_what_to_do(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no.gguf").write_bytes(b"PK\x03\x04 not a model")
    for model, words in (
        (tmp_path / "no.gguf", "GGUF"),
        (fake.write_gguf(tmp_path / "broken.gguf"), "could not be loaded"),
        ("no-such-model", "neither a file"),
    ):
        with pytest.raises(EngineError, match=words):
            await EmbeddedEngine(model).start()
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(EngineError, match=r"turnwire\[embedded\]"):
        await EmbeddedEngine(fake.write_gguf(tmp_path / "tiny.gguf")).start()


def test_fragments_of_a_byte_fallback_vocabulary() -> None:
    fragments = Fragments("llama", ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁hi"])
    spelled = [1 + byte for byte in "é".encode()]
    assert fragments.recover("é", 2, [spelled[-1]]) == spelled
    assert fragments.recover("é", 3, [spelled[-1]]) is None
    assert fragments.recover("é", 2, [257]) is None
    assert fragments.recover("é", 2, []) is None


async def test_a_model_that_goes_round_in_circles_is_ended(engine: EmbeddedEngine, script: fake.Script) -> None:
    script.tokens, script.wait_after = ids_of("ab" * 5000), 389
    steps = [step async for step in pull(engine, request(max_tokens=390))]
    end = steps[-1]
    assert isinstance(end, Completion)
    assert (end.reason, end.output_tokens < 390) == ("length", True)
    notes = [event for step in steps if isinstance(step, EventBatch) for event in step.events]
    assert [note.code for note in notes if isinstance(note, Note)] == ["engine.loop"]


async def test_layers_on_a_gpu(module: Any, tmp_path: Path) -> None:
    settings = EmbeddedSettings(window=400, gpu_layers=12)
    engine = EmbeddedEngine(fake.write_gguf(tmp_path / "tiny.gguf"), settings=settings)
    info = await engine.start()
    await engine.close()
    assert module.loaded[-1].n_gpu_layers == 12
    assert any("no GPU can be used" in warning for warning in info.warnings)
