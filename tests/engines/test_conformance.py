"""Every adapter through the one conformance suite."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from turnwire.engines.llamacpp import LlamaCppEngine
from turnwire.engines.sglang import SGLangEngine
from turnwire.engines.trtllm import TRTLLMEngine
from turnwire.engines.upstream.chat import OpenAIEngine
from turnwire.engines.upstream.responses import ResponsesEngine
from turnwire.engines.vllm import VLLMEngine

from .conformance import CHECKS, ScriptedSubject, ServerSubject, Subject, stop_strings
from .servers import FakeChat, FakeLlamaCpp, FakeResponses, FakeSGLang, FakeTRTLLM, FakeVLLM
from .toytokenizer import ToyTokenizer

SUBJECTS: tuple[Subject, ...] = (
    ScriptedSubject(),
    ServerSubject("vllm", lambda line: FakeVLLM(line, ToyTokenizer()), VLLMEngine),
    ServerSubject("vllm-native", lambda line: FakeVLLM(line, ToyTokenizer()), VLLMEngine, native=True),
    ServerSubject("sglang", lambda line: FakeSGLang(line, ToyTokenizer()), lambda url: SGLangEngine(url, TOKENIZER)),
    ServerSubject(
        "sglang-cumulative",
        lambda line: FakeSGLang(line, ToyTokenizer()),
        lambda url: SGLangEngine(url, TOKENIZER),
        incremental=False,
    ),
    ServerSubject("trtllm", lambda line: FakeTRTLLM(line, ToyTokenizer()), lambda url: TRTLLMEngine(url, TOKENIZER)),
    ServerSubject(
        "llamacpp", lambda line: FakeLlamaCpp(line, ToyTokenizer()), lambda url: LlamaCppEngine(url, TOKENIZER)
    ),
    ServerSubject("openai", lambda line: FakeChat(line, ToyTokenizer()), OpenAIEngine),
    ServerSubject(
        "openai-raw", lambda line: FakeChat(line, ToyTokenizer()), lambda url: OpenAIEngine(url, mode="text")
    ),
)
RESPONSES = ServerSubject("openai-responses", lambda line: FakeResponses(line, ToyTokenizer()), ResponsesEngine)
TOKENIZER = ToyTokenizer()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
async def test_conformance(subject: Subject, check: Callable[[Subject], Awaitable[None]]) -> None:
    await check(subject)


@pytest.mark.parametrize("check", [c for c in CHECKS if c is not stop_strings], ids=lambda check: check.__name__)
async def test_conformance_of_responses(check: Callable[[Subject], Awaitable[None]]) -> None:
    """The Responses API has no stop strings; everything else holds."""
    await check(RESPONSES)
