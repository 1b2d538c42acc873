"""Real SGLang (its own server, scheduler and radix cache on a CPU, random weights, Qwen3's real tokenizer).

`make test-engines` runs these; the first run installs SGLang into the user's cache folder.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import socket
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
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
from turnwire.engines.sglang import SGLangEngine
from turnwire.prompts.prompt import Tokenizer
from turnwire.prompts.tokenizers.load import load_tokenizer
from turnwire.turns import Conversation, Sampling

from .vllm_server import SGLANG_WINDOW, SGLangServer

pytestmark = [pytest.mark.engines, pytest.mark.sglang, pytest.mark.timeout(1200)]

END = 151645
PAGE = 16
FOREVER = {"151645": -100.0, "151643": -100.0}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        events = probe.getsockname()[1]
    told = {"publisher": "zmq", "endpoint": f"tcp://*:{events}", "topic": "kv"}
    flags = ("--incremental-streaming-output", "--enable-priority-scheduling", "--page-size", str(PAGE))
    log = tmp_path_factory.mktemp("sglang") / "log"
    with SGLangServer(log, *flags, "--kv-events-config", json.dumps(told)) as running:
        yield running


@pytest.fixture(scope="module")
def tokenizer(server: Any) -> Tokenizer:
    return load_tokenizer(server.installation.tokenizer)


@pytest.fixture
async def engine(server: Any, tokenizer: Tokenizer) -> AsyncIterator[SGLangEngine]:
    subject = SGLangEngine(server.url, tokenizer)
    info = await subject.start()
    assert (info.version, info.model, info.window, info.warnings) == ("0.5.23", "tiny", SGLANG_WINDOW, ())
    yield subject
    await subject.close()


def asking(
    ids: list[int], *, constraint: Constraint | None = None, salt: str | None = None, **wishes: Any
) -> GenerateRequest:
    return GenerateRequest(
        prompt_ids=ids,
        sampling=Sampling(**{"temperature": 0.0, **wishes}),
        hints=Hints(request_id="test", cache_salt=salt),
        conversation=Conversation(model="tiny", messages=()),
        constraint=constraint,
        stop_token_ids=(END,),
    )


async def generated(engine: SGLangEngine, wanted: GenerateRequest) -> tuple[str, list[int], Completion]:
    text, ids = "", list[int]()
    async for step in pull(engine, wanted):
        if isinstance(step, Completion):
            return text, ids, step
        assert isinstance(step, TokenBatch)
        text += step.text
        ids += step.ids
    pytest.fail("no completion")


async def refused(engine: SGLangEngine, wanted: GenerateRequest) -> tuple[str, list[TokenBatch]]:
    batches = []

    async def read() -> None:
        async for step in pull(engine, wanted):
            batches.append(step)  # noqa: PERF401 (what came before the failure is wanted)

    with pytest.raises(EngineError) as caught:
        await read()
    return caught.value.kind, [batch for batch in batches if isinstance(batch, TokenBatch)]


def loads(server: Any) -> int:
    with urllib.request.urlopen(f"{server.url}/v1/loads", timeout=10) as answer:
        (load,) = json.loads(answer.read())["loads"]
    return int(load["num_running_reqs"])


async def test_ids_and_text_are_exact(engine: SGLangEngine, server: Any, tokenizer: Tokenizer) -> None:
    prompt = tokenizer.encode("<|im_start|>user\nWrite on caches. 日本語 😀<|im_end|>\n<|im_start|>assistant\n")
    text, ids, completion = await generated(engine, asking(prompt, max_tokens=40))
    assert completion.prompt_tokens == len(prompt)
    assert tokenizer.decode(ids) == text
    body = {"input_ids": prompt, "sampling_params": {"max_new_tokens": 40, "temperature": 0, "stop_token_ids": [END]}}
    async with aiohttp.ClientSession() as session, session.post(f"{server.url}/generate", json=body) as answer:
        told = (await answer.json())["output_ids"]
    assert told[: len(ids)] == ids
    for seed in range(3):
        text, ids, _completion = await generated(
            engine, asking(list(range(50)), max_tokens=80, temperature=1.0, seed=seed)
        )
        assert text.rstrip("\ufffd") == tokenizer.decode(ids).rstrip("\ufffd")


async def test_end_token_stop_string_and_length(engine: SGLangEngine, tokenizer: Tokenizer) -> None:
    text, ids, completion = await generated(engine, asking([1, 2, 3], max_tokens=9, logit_bias={str(END): 100.0}))
    assert (text, ids, completion.reason, completion.output_tokens) == ("", [], "stop", 1)
    think = tokenizer.special_tokens["<think>"]
    text, ids, _completion = await generated(engine, asking([1, 2, 3], max_tokens=3, logit_bias={str(think): 100.0}))
    assert (text, ids) == ("<think>" * 3, [think] * 3)
    whole, _ids, completion = await generated(engine, asking(list(range(300, 340)), max_tokens=30))
    assert (completion.reason, completion.output_tokens) == ("length", 30)
    stop = whole[10:14]
    text, _ids, completion = await generated(engine, asking(list(range(300, 340)), max_tokens=30, stop=(stop,)))
    assert text == whole[: whole.index(stop)]
    assert (completion.reason, completion.stop_sequence) == ("stop_sequence", stop)


async def test_guided_decoding_is_obeyed(engine: SGLangEngine) -> None:
    for constraint, shape in (
        (Constraint(regex="(yes|no)-[0-9]{3}"), r"(yes|no)-\d{3}"),
        (Constraint(json_schema={"type": "boolean"}), "true|false"),
        (Constraint(gbnf='root ::= "<tool_call>" ("a" | "b") "</tool_call>"'), "<tool_call>[ab]</tool_call>"),
    ):
        text, _ids, _completion = await generated(engine, asking([1, 2, 3], max_tokens=50, constraint=constraint))
        assert re.fullmatch(shape, text), text


async def test_a_refusal_brings_no_invented_token(engine: SGLangEngine) -> None:
    for constraint in (Constraint(regex="("), Constraint(gbnf="root ::= (")):
        assert await refused(engine, asking([1, 2, 3], max_tokens=9, constraint=constraint)) == ("invalid_request", [])
    assert await refused(engine, asking([1, 2], temperature=-1.0)) == ("invalid_request", [])


async def test_the_window_is_used_to_its_end_and_no_further(engine: SGLangEngine) -> None:
    longest = SGLANG_WINDOW - 7
    _text, _ids, completion = await generated(engine, asking([5] * longest, logit_bias=FOREVER))
    assert (completion.reason, completion.output_tokens) == ("length", 5)
    for length in (longest + 1, SGLANG_WINDOW - 1, SGLANG_WINDOW + 10):
        assert await refused(engine, asking([5] * length)) == ("context_overflow", [])
    # What it says itself is understood the same, where its window is not known.
    engine._window = None
    for length in (longest + 1, SGLANG_WINDOW - 1, SGLANG_WINDOW + 10):
        assert await refused(engine, asking([5] * length, max_tokens=5)) == ("context_overflow", [])


async def test_an_id_beyond_its_vocabulary_never_reaches_it(engine: SGLangEngine, tokenizer: Tokenizer) -> None:
    assert await refused(engine, asking([tokenizer.vocab_size])) == ("invalid_request", [])
    assert await refused(engine, asking([9_999_999])) == ("invalid_request", [])
    assert await engine.health()


async def test_another_models_tokenizer_is_warned_of(server: Any) -> None:
    subject = SGLangEngine(server.url, load_tokenizer(None))
    info = await subject.start()
    assert any("not the server's" in warning for warning in info.warnings)
    await subject.close()


async def test_leaving_aborts_this_one_only(engine: SGLangEngine, server: Any) -> None:
    endless = asking([1, 2, 3], max_tokens=3000, logit_bias=FOREVER)
    other = asyncio.ensure_future(generated(engine, asking([4, 5, 6], max_tokens=150, logit_bias=FOREVER)))
    async with aclosing(pull(engine, endless)) as stream:
        await anext(stream)
    _text, ids, completion = await other
    assert (len(ids), completion.reason) == (150, "length"), "the same request id, but another request"
    async with asyncio.timeout(60):
        while await asyncio.to_thread(loads, server):
            await asyncio.sleep(0.1)


async def test_what_is_believed_to_be_cached_is_what_it_reports(engine: SGLangEngine, server: Any) -> None:
    """Turn after turn, through eviction, by its events alone: SGLang offers no replay, so the cache starts empty."""
    info = await engine.start()
    (source,) = info.kv_events
    index = KVIndex()
    listener = KVSubscriber(source, index, "sglang")
    assert listener.open()
    chance = random.Random(7)
    marker = 0
    async with asyncio.timeout(60):
        # Until the subscription holds; then everything known is from events.
        while not index._workers["sglang"].size:
            marker += 1
            await generated(engine, asking([90_000 + marker] * 40, max_tokens=1))
            await asyncio.sleep(0.1)
    async with aiohttp.ClientSession() as session, session.post(f"{server.url}/flush_cache") as answer:
        assert answer.status == 200
    roots = [[chance.randrange(1000, 90_000) for _ in range(700)] for _ in range(4)]
    reused = read = 0
    for turn in range(40):
        prompt = [*chance.choice(roots)[: chance.randrange(100, 700)], *(chance.randrange(90_000) for _ in range(300))]
        believed = index.overlap(PromptBlocks(prompt, None)).get("sglang")
        _text, _ids, completion = await generated(engine, asking(prompt, max_tokens=3))
        assert completion.cached_tokens == (believed.tokens if believed else 0), f"turn {turn}"
        reused += completion.cached_tokens
        async with asyncio.timeout(10):
            while index.overlap(PromptBlocks(prompt, None))["sglang"].tokens < (len(prompt) - 1) // PAGE * PAGE:
                await asyncio.sleep(0.02)
        read += len(prompt) - completion.cached_tokens
    assert reused > 3000
    assert index.blocks("sglang") * PAGE < read, "the cache was too large for this test"
    await listener.close()


async def test_salts_do_not_share_a_cache(engine: SGLangEngine) -> None:
    prompt = list(range(9000, 9200))
    for salt, cached in (("a", 0), ("a", 192), ("b", 0)):
        _text, _ids, completion = await generated(engine, asking(prompt, max_tokens=2, salt=salt))
        assert completion.cached_tokens == cached


async def test_the_gateway_on_it_holds_the_prefix(server: Any, tmp_path: Path) -> None:
    """With nothing but its address: turn N is a token prefix of turn N+1, and SGLang's own count says the same."""
    log = tmp_path / "gateway.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "turnwire.cli.main", "serve", "--port", "0", "--engine", server.url,
            "--seal-key", "a key that only tests use", stdout=output, stderr=asyncio.subprocess.STDOUT,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
    try:
        async with asyncio.timeout(60):
            while not (found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text().replace(server.url, ""))):
                assert process.returncode is None, log.read_text()
                await asyncio.sleep(0.1)
        address = found.group()
        messages: list[dict[str, Any]] = [{"role": "user", "content": "Explain prefix caches. " * 60}]
        expected = 0
        async with aiohttp.ClientSession() as session:
            for turn in range(3):
                body = {"model": "tiny", "max_tokens": 60, "messages": messages, "temperature": 0}
                headers = {"x-claude-code-session-id": "a-session"}
                async with session.post(f"{address}/v1/messages", json=body, headers=headers) as answer:
                    assert answer.status == 200, await answer.text()
                    verdict = answer.headers["x-turnwire-prefix"]
                    message = msgspec.json.decode(await answer.read())
                if turn:
                    told = re.search(r"held.*shared=(\d+); of=(\d+)", verdict)
                    assert told is not None, verdict
                    expected = min(int(told[1]), int(told[2]) - 1) // PAGE * PAGE
                    assert message["usage"].get("cache_read_input_tokens") == expected, verdict
                messages += [
                    {"role": "assistant", "content": message["content"]},
                    {"role": "user", "content": f"And then? {turn}"},
                ]
            assert expected > 300
            # A prompt that does not fit is told in the words by which a harness compacts; nothing is made up.
            long = {"model": "tiny", "max_tokens": 60, "stream": True}
            long["messages"] = [{"role": "user", "content": "word " * 6000}]
            async with session.post(f"{address}/v1/messages", json=long) as answer:
                said = await answer.text()
            assert "prompt is too long" in said
            assert "text_delta" not in said
    finally:
        process.terminate()
        await process.wait()


async def test_a_restart_in_mid_stream_is_survived(engine: SGLangEngine, server: Any) -> None:
    """Last, since the server dies."""
    stream = pull(engine, asking([1, 2, 3], max_tokens=3000, logit_bias=FOREVER))
    await anext(stream)
    server.kill()

    async def rest() -> None:
        async for _step in stream:
            pass

    with pytest.raises(EngineError) as caught:
        await rest()
    assert caught.value.kind == "disconnected"
    assert (await refused(engine, asking([1, 2, 3])))[0] == "unreachable"
    assert not await engine.health()
