"""Answers of engines that their servers give seldom, read without any server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnwire.engines.http.completions import CompletionsReading
from turnwire.engines.http.engine import Reading
from turnwire.engines.http.spelled_completions import SpelledCompletions
from turnwire.engines.http.spelling import Speller
from turnwire.engines.interface import Completion
from turnwire.engines.llamacpp import LlamaCppReading
from turnwire.engines.sglang import SGLangReading
from turnwire.engines.upstream.chat import ChatReading
from turnwire.engines.upstream.responses import ResponsesReading

from .conformance import request
from .toytokenizer import ToyTokenizer

TOKENIZER = ToyTokenizer()
EOS = TOKENIZER.special_tokens["<|im_end|>"]


def speller(*stops: str) -> Speller:
    return Speller(TOKENIZER, stops)


def told(reading: Reading, *events: Any) -> Reading:
    reading.feed(json.dumps(events).encode())
    return reading


@pytest.mark.parametrize(
    ("reading", "event", "kind"),
    [
        (CompletionsReading("E", 1), {"choices": [{"finish_reason": "error"}]}, "internal"),
        (CompletionsReading("E", 1), {"choices": [{"text": "half", "finish_reason": "abort"}]}, "disconnected"),
        (SGLangReading("E", 1, speller()), {"meta_info": {"finish_reason": {"type": "abort"}}}, "disconnected"),
        (SGLangReading("E", 1, speller()), {"meta_info": {"finish_reason": {"type": "tired"}}}, "internal"),
        (LlamaCppReading(request(), TOKENIZER, frozenset()), {"stop": True, "stop_type": "none"}, "internal"),
        (CompletionsReading("E", 1), {"error": "boom"}, "internal"),
        (CompletionsReading("E", 1), {"error": {"message": "queue", "code": 503}}, "overloaded"),
        (CompletionsReading("E", 1), {"object": "error", "message": "bad", "code": 400}, "invalid_request"),
        (SGLangReading("E", 1, speller()), {"error": "boom"}, "internal"),
        (SGLangReading("E", 1, speller()), {"error": {"message": "x", "code": 400}}, "invalid_request"),
        (SpelledCompletions("E", 1, speller()), {"choices": [{"finish_reason": "timeout"}]}, "timeout"),
        (SpelledCompletions("E", 1, speller()), {"choices": [{"finish_reason": "cancelled"}]}, "disconnected"),
        (ChatReading("E", 1, "events"), {"choices": [{"finish_reason": "insane"}]}, "internal"),
        (ChatReading("E", 1, "events"), {"error": {"message": "x", "code": 429}}, "overloaded"),
        (ResponsesReading("E", 1), {"type": "error", "message": "slow", "code": "rate limit"}, "overloaded"),
        (ResponsesReading("E", 1), {"type": "response.failed", "response": {}}, "internal"),
    ],
)
def test_failures_in_mid_stream(reading: Reading, event: Any, kind: str) -> None:
    told(reading, event)
    assert reading.error is not None
    assert reading.error.kind == kind
    assert reading.close() is None or reading.error is not None


def test_a_completion_without_usage_is_counted_here() -> None:
    reading = CompletionsReading("E", 7)
    told(reading, {"choices": [{"text": "ab", "token_ids": [1, 2]}]})
    told(reading, {"choices": [{"text": "", "token_ids": [EOS], "finish_reason": "stop"}]})
    assert reading.end is None, "usage may still come"
    assert reading.close() == Completion("stop", 7, 3)


def test_a_stop_without_ids_leaves_the_text_whole() -> None:
    reading = CompletionsReading("E", 7)
    batch = reading.feed(b'[{"choices": [{"text": "ab", "finish_reason": "stop"}]}]')
    assert batch is not None
    assert batch.text == "ab"
    assert reading.close() == Completion("stop", 7, 0)


def test_sglang_told_everything_anew_gives_each_token_once() -> None:
    reading = SGLangReading("E", 3, speller())
    ids = TOKENIZER.encode("one two three")
    texts = []
    for count in (1, 2, 2, 3):
        meta = {"completion_tokens": count, "prompt_tokens": 3, "finish_reason": None}
        batch = reading.feed(json.dumps([{"text": "ignored", "output_ids": ids[:count], "meta_info": meta}]).encode())
        texts.append(batch.text if batch else "")
    assert texts == ["one ", "two ", "", "three"]


def test_sglang_refuses_with_an_invented_token_which_is_not_the_models() -> None:
    reading = SGLangReading("E", 3, speller())
    ids = TOKENIZER.encode("one two")
    good = {"output_ids": ids[:1], "meta_info": {"completion_tokens": 1, "prompt_tokens": 3, "finish_reason": None}}
    said = "Input length (4090 tokens) exceeds the maximum allowed length (4089 tokens)."
    refused = {"type": "abort", "message": said, "status_code": 400}
    bad = {"output_ids": ids[1:], "meta_info": {"completion_tokens": 1, "prompt_tokens": 3, "finish_reason": refused}}
    batch = reading.feed(json.dumps([good, bad]).encode())
    assert batch is not None
    assert batch.text == "one "
    assert reading.error is not None
    assert reading.error.kind == "context_overflow"
    alone = SGLangReading("E", 3, speller())
    assert alone.feed(json.dumps([bad]).encode()) is None


def test_sglang_held_text_is_given_at_the_end() -> None:
    reading = SGLangReading("E", 3, speller("three!"))
    ids = TOKENIZER.encode("one three")
    meta = {"completion_tokens": 2, "prompt_tokens": 3, "finish_reason": {"type": "length", "length": 2}}
    batch = reading.feed(json.dumps([{"output_ids": ids, "meta_info": meta}]).encode())
    assert batch is not None
    assert batch.text == "one three"
    assert reading.end == Completion("length", 3, 2)


def test_trtllm_stop_token_that_was_asked_for_is_the_end_token() -> None:
    reading = SpelledCompletions("E", 3, speller())
    ids = [*TOKENIZER.encode("one "), EOS]
    choice = {"token_ids": ids, "finish_reason": "stop", "stop_reason": EOS}
    told(reading, {"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})
    assert reading.close() == Completion("stop", 3, 2)


def test_llamacpp_control_token_in_mid_text_is_text() -> None:
    reading = LlamaCppReading(request(), TOKENIZER, frozenset(TOKENIZER.special_tokens.values()))
    think = TOKENIZER.special_tokens["<think>"]
    assert reading.feed(_llama("", think, 1)) is None, "it may be the end"
    batch = reading.feed(_llama("hi ", TOKENIZER.encode("hi ")[0], 2))
    assert batch is not None
    assert batch.text == "<think>hi "
    assert batch.ids == (think, TOKENIZER.encode("hi ")[0])


def test_llamacpp_control_token_before_the_limit_is_text() -> None:
    reading = LlamaCppReading(request(), TOKENIZER, frozenset(TOKENIZER.special_tokens.values()))
    reading.feed(_llama("", TOKENIZER.special_tokens["<think>"], 1))
    end = {"stop": True, "stop_type": "limit", "tokens_predicted": 1, "timings": {"cache_n": 5}}
    batch = reading.feed(json.dumps([end]).encode())
    assert batch is not None
    assert batch.text == "<think>"
    assert reading.end == Completion("length", 80, 1, 5)


def _llama(content: str, token: int, predicted: int) -> bytes:
    event = {"content": content, "tokens": [token], "stop": False, "tokens_predicted": predicted}
    return json.dumps([event]).encode()


def test_counts_that_can_be_none_are_the_nearest_ones() -> None:
    assert Completion("stop", -7, -3, -5, None, -1) == Completion("stop", 0, 0)
    most = Completion("stop", 10**400, 1 << 31, 1 << 63)
    assert (most.prompt_tokens, most.output_tokens, most.cached_tokens) == ((1 << 31) - 1,) * 3
    assert Completion("stop", 7, 3, 5, None, 2).reasoning_tokens == 2
