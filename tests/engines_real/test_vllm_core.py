"""Real vLLM's engine core (CPU build, random weights, Qwen3's real tokenizer), spoken to without its server.

Every test binds the same ports anew and goes on with the same running core, as a frontend that is restarted does.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from turnwire.engines.bridge import pull
from turnwire.engines.interface import Completion, Constraint, EngineError, GenerateRequest, Hints, TokenBatch
from turnwire.engines.pool.kv_blocks import PromptBlocks
from turnwire.engines.pool.kv_index import KVIndex
from turnwire.engines.pool.kv_subscriber import KVSubscriber
from turnwire.engines.scripted.prefix_cache_model import PrefixCache
from turnwire.engines.vllm_core.attachment import state_file
from turnwire.engines.vllm_core.engine import VLLMCoreEngine
from turnwire.prompts.prompt import Tokenizer
from turnwire.prompts.tokenizers.load import load_tokenizer
from turnwire.turns import Conversation, Sampling

from .vllm_server import BLOCK, WINDOW, VLLMCore

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1200)]

END = 151645
FOREVER = {"151645": -100.0, "151643": -100.0}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("core")
    kept = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(folder)
    events, replay = (free_port() for _ in range(2))
    told = {"enable_kv_cache_events": True, "publisher": "zmq", "topic": "kv"}
    told |= {"endpoint": f"tcp://*:{events}", "replay_endpoint": f"tcp://*:{replay}"}
    flags = ("--disable-log-stats", "--scheduling-policy", "priority", "--num-gpu-blocks-override", "300")
    with VLLMCore(folder / "log", *flags, "--kv-events-config", json.dumps(told)) as running:
        yield running
    if kept is None:
        del os.environ["XDG_STATE_HOME"]
    else:
        os.environ["XDG_STATE_HOME"] = kept


@pytest.fixture(scope="module")
def tokenizer(core: Any) -> Tokenizer:
    return load_tokenizer(core.installation.tokenizer)


@pytest.fixture
async def engine(core: Any, tokenizer: Tokenizer) -> AsyncIterator[VLLMCoreEngine]:
    subject = VLLMCoreEngine(core.address, tokenizer)
    info = await subject.start()
    assert (info.version, info.window, info.warnings) == ("0.32.0", WINDOW, ())
    yield subject
    await subject.close()


def asking(
    ids: list[int], *, constraint: Constraint | None = None, salt: str | None = None, priority: int = 0, **wishes: Any
) -> GenerateRequest:
    return GenerateRequest(
        prompt_ids=ids,
        sampling=Sampling(**{"temperature": 0.0, **wishes}),
        hints=Hints(request_id="test", cache_salt=salt, priority=priority),
        conversation=Conversation(model="tiny", messages=()),
        constraint=constraint,
        stop_token_ids=(END,),
    )


async def generated(engine: VLLMCoreEngine, wanted: GenerateRequest) -> tuple[str, list[int], Completion]:
    text, ids = "", list[int]()
    async for step in pull(engine, wanted):
        if isinstance(step, Completion):
            return text, ids, step
        assert isinstance(step, TokenBatch)
        text += step.text
        ids += step.ids
    pytest.fail("no completion")


async def refused(engine: VLLMCoreEngine, wanted: GenerateRequest) -> str:
    with pytest.raises(EngineError) as caught:
        await generated(engine, wanted)
    return caught.value.kind


async def test_its_vocabulary_is_learnt(engine: VLLMCoreEngine) -> None:
    assert engine._cores.vocabulary == 151936


async def test_its_tokens_are_those_of_the_server(engine: VLLMCoreEngine, server: Any, tokenizer: Tokenizer) -> None:
    prompt = tokenizer.encode(
        "<|im_start|>user\nWrite an essay on caches. 日本語 😀<|im_end|>\n<|im_start|>assistant\n"
    )
    text, ids, completion = await generated(engine, asking(prompt, max_tokens=50))
    assert completion.prompt_tokens == len(prompt)
    assert completion.output_tokens - len(ids) == (completion.reason == "stop")
    assert tokenizer.decode(ids) == text
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 50, "temperature": 0, "return_token_ids": True}
    async with aiohttp.ClientSession() as session, session.post(f"{server.url}/v1/completions", json=body) as answer:
        (choice,) = (await answer.json())["choices"]
    assert choice["token_ids"][: len(ids)] == ids
    assert len(choice["token_ids"]) == completion.output_tokens


async def test_split_characters_and_special_tokens_are_exact(engine: VLLMCoreEngine, tokenizer: Tokenizer) -> None:
    for seed in range(3):
        wanted = asking(list(range(50)), max_tokens=200, temperature=1.0, seed=seed)
        text, ids, _completion = await generated(engine, wanted)
        assert text.rstrip("\ufffd") == tokenizer.decode(ids).rstrip("\ufffd")
    for special in ("<think>", "</tool_call>", "<|im_start|>"):
        token = tokenizer.special_tokens[special]
        text, ids, _completion = await generated(
            engine, asking([1, 2, 3], max_tokens=3, logit_bias={str(token): 100.0})
        )
        assert (text, ids) == (special * 3, [token] * 3)


async def test_end_token_stop_string_and_length(engine: VLLMCoreEngine) -> None:
    text, ids, completion = await generated(engine, asking([1, 2, 3], max_tokens=9, logit_bias={str(END): 100.0}))
    assert (text, ids, completion.reason) == ("", [], "stop")
    whole, _ids, completion = await generated(engine, asking(list(range(300, 340)), max_tokens=30))
    assert (completion.reason, completion.output_tokens) == ("length", 30)
    stop = whole[10:14]
    text, _ids, completion = await generated(engine, asking(list(range(300, 340)), max_tokens=4000, stop=(stop,)))
    assert text == whole[: whole.index(stop)]
    assert (completion.reason, completion.stop_sequence) == ("stop_sequence", stop)


async def test_log_probabilities(engine: VLLMCoreEngine, tokenizer: Tokenizer) -> None:
    steps = [step async for step in pull(engine, asking([1, 2, 3], max_tokens=4, logprobs=2))]
    batches = [step for step in steps if isinstance(step, TokenBatch)]
    told = [entry for batch in batches for entry in batch.logprobs]
    assert [entry.token for entry in told] == [tokenizer.decode([token]) for batch in batches for token in batch.ids]
    # Of two tokens that are equally likely, the one drawn need not be the one named first.
    assert all(len(entry.top) == 2 and entry.top[0][1] == entry.logprob for entry in told)


async def test_cached_tokens_are_as_predicted(engine: VLLMCoreEngine) -> None:
    cache = PrefixCache(block_size=BLOCK)
    history = list(range(7000, 7500))
    for _turn in range(4):
        sequence = cache.sequence(history)
        predicted = cache.match(sequence)
        _text, ids, completion = await generated(engine, asking(history, max_tokens=40))
        assert completion.cached_tokens == predicted
        sequence.extend(ids[:-1])
        cache.store(sequence)
        history = [*history, *ids, 151645, 198, *range(100)]
    assert completion.cached_tokens > 500
    for salt, cached in (("a", 0), ("a", 192), ("b", 0)):
        _text, _ids, completion = await generated(engine, asking(list(range(9000, 9200)), max_tokens=2, salt=salt))
        assert completion.cached_tokens == cached


async def test_what_is_believed_to_be_cached_is_what_it_reports(engine: VLLMCoreEngine, core: Any) -> None:
    """Turn after turn, through eviction: by its events, and after a lost connection by its replay."""
    (source,) = engine._kv_events()
    index = KVIndex()
    listener = KVSubscriber(source, index, "core")
    assert listener.open()
    async with asyncio.timeout(30):
        while not listener.complete:
            await asyncio.sleep(0.05)
    chance = random.Random(7)
    roots = [[chance.randrange(1000, 90_000) for _ in range(700)] for _ in range(4)]
    evicted = reused = 0
    for turn in range(40):
        if turn == 20:
            listener.gone()
            listener._ask()
            async with asyncio.timeout(30):
                while not listener.complete:
                    await asyncio.sleep(0.05)
        prompt = [*chance.choice(roots)[: chance.randrange(100, 700)], *(chance.randrange(90_000) for _ in range(200))]
        believed = index.overlap(PromptBlocks(prompt, None)).get("core")
        blocks = index.blocks("core")
        _text, _ids, completion = await generated(engine, asking(prompt, max_tokens=3))
        assert completion.cached_tokens == (believed.tokens if believed else 0), f"turn {turn}"
        reused += completion.cached_tokens
        async with asyncio.timeout(10):
            while index.overlap(PromptBlocks(prompt, None))["core"].tokens < (len(prompt) - 1) // BLOCK * BLOCK:
                await asyncio.sleep(0.02)
        evicted += index.blocks("core") < blocks + (len(prompt) - completion.cached_tokens) // BLOCK
    assert reused > 3000
    assert evicted, "the cache was too large for this test"
    await listener.close()


async def test_guided_decoding_is_obeyed(engine: VLLMCoreEngine) -> None:
    for constraint, shape in (
        (Constraint(regex="(yes|no)-[0-9]{3}"), r"(yes|no)-\d{3}"),
        (Constraint(json_schema={"type": "boolean"}), "true|false"),
        (Constraint(gbnf='root ::= "<tool_call>" ("a" | "b") "</tool_call>"'), "<tool_call>[ab]</tool_call>"),
        (Constraint(lark='start: "ab" ("c" | "d")'), "ab[cd]"),
    ):
        text, _ids, completion = await generated(engine, asking([1, 2, 3], max_tokens=50, constraint=constraint))
        assert re.fullmatch(shape, text), text
        assert completion.reason == "stop"


async def test_what_would_end_it_does_not_reach_it(engine: VLLMCoreEngine) -> None:
    assert await refused(engine, asking([1] * 9000)) == "context_overflow"
    assert await refused(engine, asking([])) == "invalid_request"
    assert await refused(engine, asking([151936])) == "invalid_request"
    assert await refused(engine, asking([1], temperature=3.0)) == "invalid_request"
    for constraint in (
        Constraint(regex="([a-z"),
        Constraint(gbnf="root ::= ("),
        Constraint(json_schema={"type": "nonsense"}),
    ):
        assert await refused(engine, asking([1, 2, 3], max_tokens=5, constraint=constraint)) == "invalid_request"
    same = [asking(list(range(start, start + 50)), max_tokens=20) for start in range(1000, 1016)]
    results = await asyncio.gather(*(generated(engine, one) for one in same))
    assert all(completion.output_tokens == 20 for _text, _ids, completion in results)
    # The longest prompt that is let through is one that it can take.
    _text, _ids, completion = await generated(engine, asking([5] * (WINDOW - 1)))
    assert (completion.reason, completion.output_tokens) == ("length", 1)


async def test_a_restarted_frontend_aborts_what_it_finds_running(
    engine: VLLMCoreEngine, core: Any, tokenizer: Tokenizer
) -> None:
    stream = pull(engine, asking([1, 2, 3], max_tokens=8000, logit_bias=FOREVER))
    await anext(stream)
    # As if this process were killed: nobody aborts.
    engine._running.clear()
    await engine.close()
    second = VLLMCoreEngine(core.address, tokenizer)
    await second.start()
    async with asyncio.timeout(30):
        while not second._strays:
            await asyncio.sleep(0.05)
    _text, ids, _completion = await generated(second, asking([1, 2, 3], max_tokens=5))
    assert len(ids) == 5
    await second.close()


async def test_the_gateway_on_it_holds_the_prefix(core: Any, tmp_path: Path) -> None:
    """Turn N is a token prefix of turn N+1, and the core's own count says the same."""
    log = tmp_path / "gateway.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "turnwire.cli.main", "serve", "--port", "0", "--engine", f"vllm-core:{core.address}",
            "--model", str(core.installation.model), "--seal-key", "a key that only tests use", stdout=output,
            stderr=asyncio.subprocess.STDOUT, env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
    try:
        async with asyncio.timeout(60):
            while not (found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text())):
                assert process.returncode is None, log.read_text()
                await asyncio.sleep(0.1)
        messages: list[dict[str, Any]] = [{"role": "user", "content": "Explain prefix caches. " * 60}]
        expected = 0
        async with aiohttp.ClientSession() as session:
            for turn in range(3):
                body = {"model": "tiny-qwen3", "max_tokens": 60, "messages": messages, "temperature": 0}
                headers = {"x-claude-code-session-id": "a-session"}
                async with session.post(f"{found.group()}/v1/messages", json=body, headers=headers) as answer:
                    assert answer.status == 200, await answer.text()
                    verdict = answer.headers["x-turnwire-prefix"]
                    message = msgspec.json.decode(await answer.read())
                if turn:
                    told = re.search(r"held.*shared=(\d+); of=(\d+)", verdict)
                    assert told is not None, verdict
                    # The last sampled token was never fed back, so the engine has not read it.
                    expected = min(int(told[1]), int(told[2]) - 1) // BLOCK * BLOCK
                assert (message["usage"].get("cache_read_input_tokens") or 0) == expected, verdict
                messages += [
                    {"role": "assistant", "content": message["content"]},
                    {"role": "user", "content": f"And then? {turn}"},
                ]
        assert expected > 300
    finally:
        process.terminate()
        await process.wait()


async def test_a_core_whose_connections_break_goes_on(engine: VLLMCoreEngine) -> None:
    """libzmq connects again by itself, and the core is not started again."""
    for which in ("requests", "outputs"):
        stream = pull(engine, asking([1, 2, 3], max_tokens=8000, logit_bias=FOREVER))
        await anext(stream)
        core = engine._cores.get(0)
        assert core is not None
        assert core.outputs is not None
        (engine._wire._engines[0] if which == "requests" else core.outputs).drop()
        with pytest.raises(EngineError) as caught:
            async for _step in stream:
                pass
        assert caught.value.kind == "disconnected"
        async with asyncio.timeout(20):
            while not await engine.health():
                await asyncio.sleep(0.05)
        _text, ids, _completion = await generated(engine, asking([1, 2, 3], max_tokens=5))
        assert len(ids) == 5


async def test_a_killed_core_is_noticed_and_a_new_one_serves(engine: VLLMCoreEngine, core: Any) -> None:
    """Last, since the core dies."""
    stream = pull(engine, asking([1, 2, 3], max_tokens=8000, logit_bias=FOREVER))
    await anext(stream)
    core.kill()

    async def rest() -> None:
        async for _step in stream:
            pass

    with pytest.raises(EngineError) as caught:
        async with asyncio.timeout(20):
            await rest()
    assert caught.value.kind == "disconnected"
    assert not await engine.health()
    assert await refused(engine, asking([1])) == "unreachable"
    core.start()
    async with asyncio.timeout(600):
        while not await engine.health():
            await asyncio.sleep(0.2)
    _text, ids, _completion = await generated(engine, asking([1, 2, 3], max_tokens=2))
    assert len(ids) == 2
    assert state_file(core.address).exists()
