"""Real vLLM (CPU build, random weights, Qwen3's real tokenizer) through the adapter.

`make test-engines` runs these; the first run installs vLLM into the user's cache folder.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import aiohttp
import msgspec
import pytest
from tokenizers import Tokenizer

from turnwire.engines.bridge import pull
from turnwire.engines.interface import (
    Completion,
    Constraint,
    EngineError,
    GenerateRequest,
    Hints,
    TokenBatch,
)
from turnwire.engines.scripted.prefix_cache_model import PrefixCache
from turnwire.engines.vllm import VLLMEngine
from turnwire.turns import Conversation, Sampling

from .vllm_server import BLOCK, WINDOW, VLLMServer

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def tokenizer(server: VLLMServer) -> Tokenizer:
    return Tokenizer.from_file(str(server.installation.tokenizer))


@pytest.fixture(params=["completions", "native"])
async def engine(server: VLLMServer, request: pytest.FixtureRequest) -> AsyncIterator[VLLMEngine]:
    subject = VLLMEngine(server.url)
    await subject.start()
    assert subject._native
    subject._native = request.param == "native"
    yield subject
    await subject.close()


def asking(ids: list[int], *, constraint: Constraint | None = None, **sampling: object) -> GenerateRequest:
    return GenerateRequest(
        prompt_ids=ids,
        sampling=Sampling(**{"temperature": 0.0, **sampling}),  # type: ignore[arg-type]
        hints=Hints(request_id="test"),
        conversation=Conversation(model="tiny", messages=()),
        constraint=constraint,
    )


async def generated(engine: VLLMEngine, wanted: GenerateRequest) -> tuple[str, list[int], Completion]:
    text, ids = "", list[int]()
    async for step in pull(engine, wanted):
        if isinstance(step, Completion):
            return text, ids, step
        assert isinstance(step, TokenBatch)
        text += step.text
        ids += step.ids
    pytest.fail("no completion")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.1)


PROMPT = "<|im_start|>user\nWrite an essay on prefix caches. 日本語 😀<|im_end|>\n<|im_start|>assistant\n<think>\n"


async def test_it_is_discovered_with_nothing_missing(server: VLLMServer) -> None:
    subject = VLLMEngine(server.url)
    info = await subject.start()
    assert (info.version, info.model, info.window, info.warnings) == ("0.32.0", "tiny", WINDOW, ())
    assert subject.capabilities.cached_tokens
    assert subject.capabilities.priority
    assert await subject.health()
    await subject.close()


async def test_token_ids_in_and_out_are_equal(engine: VLLMEngine, server: VLLMServer, tokenizer: Tokenizer) -> None:
    prompt = tokenizer.encode(PROMPT, add_special_tokens=False).ids
    text, ids, completion = await generated(engine, asking(prompt, max_tokens=64))
    assert completion.prompt_tokens == len(prompt)
    assert completion.output_tokens - len(ids) == (completion.reason == "stop")
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 64, "temperature": 0, "return_token_ids": True}
    async with aiohttp.ClientSession() as session, session.post(f"{server.url}/v1/completions", json=body) as answer:
        (choice,) = (await answer.json())["choices"]
    assert choice["prompt_token_ids"] == prompt, "what we sent is what was prefilled"
    told = choice["token_ids"]
    assert told[: len(ids)] == ids
    assert len(told) == completion.output_tokens


async def test_sampled_special_tokens_and_split_characters_are_exact(engine: VLLMEngine, tokenizer: Tokenizer) -> None:
    """Random weights sample any token, lone bytes of characters included."""
    for seed in range(5):
        text, ids, _completion = await generated(
            engine, asking(list(range(50)), max_tokens=200, temperature=1.0, seed=seed)
        )
        spelled = tokenizer.decode(ids, skip_special_tokens=False)
        assert text.rstrip("\ufffd") == spelled.rstrip("\ufffd")


async def test_special_tokens_are_spelled_out(engine: VLLMEngine, tokenizer: Tokenizer) -> None:
    for special in ("<think>", "</think>", "<tool_call>", "</tool_call>", "<|im_start|>"):
        token = tokenizer.token_to_id(special)
        wanted = asking([1, 2, 3], max_tokens=3, logit_bias={str(token): 100.0})
        text, ids, _completion = await generated(engine, wanted)
        assert (text, ids) == (special * 3, [token] * 3)


async def test_the_end_token_is_told_apart(engine: VLLMEngine, tokenizer: Tokenizer) -> None:
    end = tokenizer.token_to_id("<|im_end|>")
    text, ids, completion = await generated(engine, asking([1, 2, 3], max_tokens=9, logit_bias={str(end): 100.0}))
    assert (text, ids, completion.reason) == ("", [], "stop")
    assert completion.output_tokens == 1


async def test_stop_strings_and_length(engine: VLLMEngine) -> None:
    whole, _ids, completion = await generated(engine, asking(list(range(300, 340)), max_tokens=30))
    assert completion.reason == "length"
    stop = whole[10:14]
    text, _ids, completion = await generated(engine, asking(list(range(300, 340)), max_tokens=30, stop=(stop,)))
    assert text == whole[: whole.index(stop)]
    assert (completion.reason, completion.stop_sequence) == ("stop_sequence", stop)


async def test_cached_tokens_are_as_predicted(engine: VLLMEngine) -> None:
    """Turn after turn: what vLLM says it reused is what a model of its cache says it holds."""
    cache = PrefixCache(block_size=BLOCK)
    history = list(range(7000, 7500)) if engine._native else list(range(17000, 17500))
    for _turn in range(6):
        sequence = cache.sequence(history)
        predicted = cache.match(sequence)
        _text, ids, completion = await generated(engine, asking(history, max_tokens=40))
        assert completion.cached_tokens == predicted
        # The last sampled token was never fed back, so it is in no block yet.
        sequence.extend(ids[:-1])
        cache.store(sequence)
        history = [*history, *ids, 151645, 198, *range(100)]
    assert completion.cached_tokens > 500
    changed = [*history[:100], 5, *history[101:]]
    _text, _ids, completion = await generated(engine, asking(changed, max_tokens=4))
    assert completion.cached_tokens == 96, "a change at token 100 leaves three blocks"


async def test_salts_do_not_share_a_cache(engine: VLLMEngine) -> None:
    prompt = list(range(9000, 9200))
    for salt, cached in ((f"a{engine._native}", 0), (f"a{engine._native}", 192), (f"b{engine._native}", 0)):
        wanted = msgspec.structs.replace(asking(prompt, max_tokens=2), hints=Hints(request_id="t", cache_salt=salt))
        _text, _ids, completion = await generated(engine, wanted)
        assert completion.cached_tokens == cached


async def test_leaving_aborts(engine: VLLMEngine, server: VLLMServer) -> None:
    def written() -> float:
        return server.metric("vllm:generation_tokens_total")

    def running() -> float:
        return server.metric("vllm:num_requests_running")

    endless = asking([1, 2, 3], max_tokens=8000, logit_bias={"151645": -100.0, "151643": -100.0})
    for _try in range(5):
        before = written()
        async with aclosing(pull(engine, endless)) as stream:
            async for _step in stream:
                break
            # On a busy machine the server may be heard only when it has written all of it.
            if running() == 1:
                break
    else:
        pytest.fail("each answer was complete before its first token was heard")
    await until(lambda: running() == 0)
    stopped = written()
    assert stopped - before < 8000, "it was left long before its end"
    await asyncio.sleep(0.5)
    assert written() == stopped


async def test_guided_decoding_is_obeyed(engine: VLLMEngine) -> None:
    prompt = list(range(2000, 2040))
    text, _ids, _completion = await generated(
        engine, asking(prompt, max_tokens=50, constraint=Constraint(regex="(yes|no)-[0-9]{3}"))
    )
    assert re.fullmatch("(yes|no)-[0-9]{3}", text)
    schema: dict[str, object] = {
        "type": "object",
        "properties": {"mode": {"enum": ["read", "write"]}, "flag": {"type": "boolean"}},
        "required": ["mode", "flag"],
        "additionalProperties": False,
    }
    text, _ids, _completion = await generated(
        engine, asking(prompt, max_tokens=300, constraint=Constraint(json_schema=schema), temperature=1.0, seed=1)
    )
    # Random weights love white space, which JSON allows without end; what there is must still be on the way to it.
    assert re.match(r'\s*\{\s*("mode"|$)', text), text
    grammar = 'root ::= "<tool_call>" ("a" | "b") "</tool_call>"'
    text, _ids, _completion = await generated(
        engine, asking(prompt, max_tokens=50, constraint=Constraint(gbnf=grammar))
    )
    assert text in ("<tool_call>a</tool_call>", "<tool_call>b</tool_call>")


async def test_its_refusals_are_understood(engine: VLLMEngine) -> None:
    async def kind(wanted: GenerateRequest) -> str:
        with pytest.raises(EngineError) as caught:
            await generated(engine, wanted)
        return caught.value.kind

    assert await kind(asking([1] * 9000)) == "context_overflow"
    assert await kind(asking([1, 2], temperature=-1.0)) == "invalid_request"
    assert await kind(asking([1, 2], constraint=Constraint(regex="([a-z"))) == "invalid_request"
    assert await kind(asking([99_999_999])) == "invalid_request"
    engine._window = None
    assert await kind(asking([1] * 9000)) == "context_overflow"


async def test_many_at_once(engine: VLLMEngine) -> None:
    wanted = [asking(list(range(start, start + 50)), max_tokens=20) for start in range(1000, 1016)]
    results = await asyncio.gather(*(generated(engine, one) for one in wanted))
    assert all(completion.output_tokens == 20 for _text, _ids, completion in results)


async def test_a_server_without_the_flags_is_warned_of(tmp_path: Path) -> None:
    """Whether it schedules by priority is what vLLM 0.32 tells nobody: it takes priorities either way."""
    with VLLMServer(tmp_path / "log", "--no-enable-prefix-caching") as bare:
        subject = VLLMEngine(bare.url)
        info = await subject.start()
        for flag in ("--enable-prefix-caching", "--enable-prompt-tokens-details"):
            assert any(flag in warning for warning in info.warnings), flag
        await subject.close()


async def test_a_restart_in_mid_stream_is_survived(server: VLLMServer) -> None:
    subject = VLLMEngine(server.url)
    await subject.start()
    endless = asking([1, 2, 3], max_tokens=8000, logit_bias={"151645": -100.0, "151643": -100.0})
    stream = pull(subject, endless)
    await anext(stream)
    server.kill()

    async def rest() -> None:
        async for _step in stream:
            pass

    with pytest.raises(EngineError) as caught:
        await rest()
    assert caught.value.kind == "disconnected"
    with pytest.raises(EngineError) as caught:
        await generated(subject, asking([1, 2, 3], max_tokens=2))
    assert caught.value.kind == "unreachable"
    assert not await subject.health()
    await asyncio.to_thread(server.start)
    assert await subject.health()
    _text, ids, _completion = await generated(subject, asking([1, 2, 3], max_tokens=2))
    assert len(ids) == 2
    await subject.close()
