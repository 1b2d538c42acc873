"""Real llama.cpp over HTTP through the adapter, with a small real model (fetched into the user's cache folder)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import pytest

from turnwire.engines.bridge import pull
from turnwire.engines.embedded.downloads import resolve_model
from turnwire.engines.embedded.server import EmbeddedSettings, load_server, unload_server
from turnwire.engines.interface import Completion, Constraint, EngineError, GenerateRequest, Hints, TokenBatch
from turnwire.engines.llamacpp import LlamaCppEngine
from turnwire.prompts.prompt import Tokenizer
from turnwire.prompts.tokenizers.load import load_tokenizer
from turnwire.turns import Conversation, Sampling

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]

KEY = "a key for tests"
PROMPT = "<|im_start|>user\nCount from one to twenty.<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def model() -> Any:
    return resolve_model(None)


@pytest.fixture(scope="module")
def tokenizer(model: Any) -> Tokenizer:
    return load_tokenizer(model)


@pytest.fixture(scope="module")
def address(model: Any) -> Iterator[str]:
    holder = [load_server(model, EmbeddedSettings(slots=2, threads=1), 8192, KEY)]
    yield holder[0].listening_address
    unload_server(holder)


@pytest.fixture
async def engine(address: str, tokenizer: Tokenizer) -> AsyncIterator[LlamaCppEngine]:
    subject = LlamaCppEngine(address, tokenizer, api_key=KEY)
    await subject.start()
    yield subject
    await subject.close()


def request(ids: list[int], *, constraint: Constraint | None = None, **sampling: object) -> GenerateRequest:
    return GenerateRequest(
        prompt_ids=ids,
        sampling=Sampling(**{"temperature": 0.0, "max_tokens": 40, **sampling}),  # type: ignore[arg-type]
        hints=Hints(request_id="test"),
        conversation=Conversation(model="m", messages=()),
        constraint=constraint,
    )


async def generated(engine: LlamaCppEngine, wanted: GenerateRequest) -> tuple[str, list[int], Completion]:
    text, ids = "", list[int]()
    async for step in pull(engine, wanted):
        if isinstance(step, Completion):
            return text, ids, step
        assert isinstance(step, TokenBatch)
        text += step.text
        ids += step.ids
    pytest.fail("no completion")


async def test_it_is_discovered(address: str, tokenizer: Tokenizer) -> None:
    subject = LlamaCppEngine(address, tokenizer, api_key=KEY)
    info = await subject.start()
    assert info.window == 8192
    assert await subject.health()
    await subject.close()
    stranger = LlamaCppEngine(address, tokenizer, api_key="wrong")
    with pytest.raises(EngineError, match="API key"):
        await stranger.start()
    await stranger.close()


async def test_ids_spell_the_text_and_the_cache_is_told(engine: LlamaCppEngine, tokenizer: Tokenizer) -> None:
    prompt = tokenizer.encode(PROMPT)
    text, ids, completion = await generated(engine, request(prompt))
    assert text
    assert tokenizer.decode(ids) == text
    assert completion.output_tokens - len(ids) == (completion.reason == "stop")
    assert completion.prompt_tokens == len(prompt)
    again, _ids, completion = await generated(engine, request(prompt))
    assert again == text
    assert completion.cached_tokens >= len(prompt) - 2


async def test_characters_of_several_tokens_keep_all_their_ids(engine: LlamaCppEngine, tokenizer: Tokenizer) -> None:
    """A grammar makes the model spell them in ways no tokenizer would; the ids still spell the text."""
    grammar = 'root ::= "日本 😀 é " [a-c]'
    prompt = tokenizer.encode(PROMPT)
    text, ids, _completion = await generated(engine, request(prompt, constraint=Constraint(gbnf=grammar)))
    assert text.startswith("日本 😀 é ")
    assert tokenizer.decode(ids) == text


async def test_the_end_token_is_told_apart(engine: LlamaCppEngine, tokenizer: Tokenizer) -> None:
    prompt = tokenizer.encode("<|im_start|>user\nSay only: yes<|im_end|>\n<|im_start|>assistant\nYes.")
    end = tokenizer.special_tokens["<|im_end|>"]
    text, ids, completion = await generated(engine, request(prompt, logit_bias={str(end): 100.0}))
    assert (text, ids, completion.reason) == ("", [], "stop")


async def test_stop_strings_and_length(engine: LlamaCppEngine, tokenizer: Tokenizer) -> None:
    prompt = tokenizer.encode(PROMPT)
    whole, _ids, completion = await generated(engine, request(prompt, max_tokens=20))
    assert completion.reason == "length"
    stop = whole[8:12]
    text, _ids, completion = await generated(engine, request(prompt, max_tokens=20, stop=(stop,)))
    assert text == whole[: whole.index(stop)]
    assert completion.stop_sequence == stop


async def test_a_schema_is_obeyed(engine: LlamaCppEngine, tokenizer: Tokenizer) -> None:
    schema: dict[str, object] = {
        "type": "object",
        "properties": {"mode": {"enum": ["read", "write"]}},
        "required": ["mode"],
        "additionalProperties": False,
    }
    prompt = tokenizer.encode(PROMPT)
    text, _ids, _completion = await generated(
        engine, request(prompt, max_tokens=100, constraint=Constraint(json_schema=schema))
    )
    assert json.loads(text)["mode"] in ("read", "write")


async def test_leaving_frees_the_slot(engine: LlamaCppEngine, tokenizer: Tokenizer) -> None:
    end = str(tokenizer.special_tokens["<|im_end|>"])
    endless = request(tokenizer.encode(PROMPT), max_tokens=7000, logit_bias={end: -100.0})
    for _ in range(4):
        async with aclosing(pull(engine, endless)) as stream:
            await anext(stream)
    async with asyncio.timeout(60):
        _text, ids, _completion = await generated(engine, request(tokenizer.encode(PROMPT), max_tokens=3))
    assert len(ids) == 3


async def test_a_prompt_that_does_not_fit(engine: LlamaCppEngine) -> None:
    engine._window = None
    with pytest.raises(EngineError) as caught:
        await generated(engine, request([1] * 9000))
    assert caught.value.kind == "context_overflow"
