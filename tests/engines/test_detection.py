"""Finding out which server answers, on the answers that the real ones were recorded or documented to give."""

from __future__ import annotations

from typing import get_args

import pytest

from turnwire.engines.detection.probe import ServerFacts, find_server
from turnwire.engines.detection.signs import PATHS, Answer, ServerKind, identify
from turnwire.engines.failures import KeyRefused
from turnwire.engines.interface import EngineError

from .recorded import RECORDED, recorded_server


async def found(kind: str, suffix: str = "") -> ServerFacts:
    async with recorded_server(RECORDED[kind]) as url:
        return await find_server(url + suffix)


def test_every_kind_is_recorded() -> None:
    assert set(RECORDED) == set(get_args(ServerKind))


@pytest.mark.parametrize("kind", sorted(RECORDED))
async def test_a_server_is_known_by_its_answers(kind: str) -> None:
    for suffix in ("", "/", "/v1", "/v1/"):
        facts = await found(kind, suffix)
        assert (facts.kind, facts.base.count("/")) == (kind, 2)


@pytest.mark.parametrize(
    ("kind", "model", "window"),
    [
        ("vllm", "tiny", 4096),
        ("sglang", "tiny", 4096),
        ("trtllm", "tiny", None),
        ("llamacpp", "tiny", 2048),
        ("ollama", "qwen3:8b", 16384),
        ("lmstudio", "qwen3-8b", 8192),
        ("nim", "nvidia/nemotron", 131072),
        ("litellm", "smart", 200000),
        ("openrouter", "maker/large", 262144),
        ("turnwire", "tiny", 9000),
    ],
)
async def test_model_and_window_are_taken_from_the_server(kind: str, model: str, window: int | None) -> None:
    rows = [row for row in (await found(kind)).models if row.chats]
    assert [(row.id, row.window) for row in rows] == [(model, window)]


async def test_where_a_tokenizer_may_be_read_from() -> None:
    assert (await found("sglang")).models[0].sources == ("/srv/tiny-tokenizer", "/srv/tiny", "tiny")
    assert (await found("vllm")).models[0].sources == ("maker/tiny", "tiny")
    llama = await found("llamacpp")
    assert (llama.models[0].sources, llama.template) == (("/srv/tiny.gguf", "tiny"), "{{ messages }}")


async def test_a_loaded_ollama_model_tells_its_real_window() -> None:
    running = {"/api/ps": {"models": [{"name": "qwen3:8b", "context_length": 4096}]}}
    async with recorded_server(RECORDED["ollama"] | running) as url:
        assert (await find_server(url)).models[0].window == 4096


async def test_a_key_is_used_and_its_lack_is_said() -> None:
    async with recorded_server(RECORDED["vllm"], key="k") as url:
        assert (await find_server(url, "k")).kind == "vllm"
        for wrong in (None, "other"):
            with pytest.raises(KeyRefused, match="--engine-key-env"):
                await find_server(url, wrong)


async def test_nothing_there_and_something_else_there_are_said() -> None:
    with pytest.raises(EngineError, match=r"nothing answers at http://127\.0\.0\.1:9"):
        await find_server("http://127.0.0.1:9")
    async with recorded_server({"/": "hello"}) as url:
        with pytest.raises(EngineError, match=r"HTTP 404.*openai:URL"):
            await find_server(url)


async def test_what_the_operator_says_a_server_is_holds() -> None:
    async with recorded_server(RECORDED["openai"]) as url:
        assert (await find_server(url, kind="vllm")).kind == "vllm"


def test_no_question_costs_anything() -> None:
    assert "/health" not in PATHS, "a LiteLLM proxy would ask every model it has"


def test_strange_answers_are_nobodys() -> None:
    for body in (None, [], "x", {"data": None}, {"data": ["x"]}, {"data": [{"id": 3}]}):
        assert identify({"/v1/models": Answer(500, body)}) is None
        assert identify({"/v1/models": Answer(200, body)}) == "openai"
