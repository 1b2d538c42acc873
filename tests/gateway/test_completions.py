"""Raw completions over a real socket: prompts as they are, choices, echo, log probabilities, failures."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types import Completion

from turnwire.protocols import completions
from turnwire.protocols.wire import TurnFailure

from .conftest import Client, Serve
from .test_messages import records

MARKUP = "<think>not parsed</think><tool_call>neither</tool_call>"


def request(**over: Any) -> dict[str, Any]:
    return {"model": "test-model", "prompt": "Once upon", "max_tokens": 64} | over


async def streamed(client: Client, **over: Any) -> list[Any]:
    body = request(stream=True) | over
    async with client.session.post(client.base + "/v1/completions", json=body) as answer:
        assert answer.status == 200, await answer.text()
        text = (await answer.read()).decode()
    frames = [frame.removeprefix("data: ") for frame in text.split("\n\n") if frame.startswith("data: ")]
    return [frame if frame == "[DONE]" else json.loads(frame) for frame in frames]


def texts(chunks: list[Any]) -> dict[int, str]:
    found: dict[int, str] = {}
    for chunk in chunks:
        for choice in chunk["choices"] if chunk != "[DONE]" else ():
            found[choice["index"]] = found.get(choice["index"], "") + choice["text"]
    return found


async def test_the_prompt_goes_to_the_engine_as_it_is_and_its_text_comes_back_unparsed(
    serve: Serve, tmp_path: Path
) -> None:
    client = await serve({"text": MARKUP}, record=str(tmp_path / "records"))
    status, answer = await client.post("/v1/completions", request())
    assert status == 200
    assert answer["object"] == "text_completion"
    assert answer["choices"] == [{"index": 0, "text": MARKUP, "logprobs": None, "finish_reason": "stop"}]
    Completion.model_validate(answer, strict=True)
    assert records(tmp_path / "records")[0]["prompt_text"] == "Once upon"


async def test_a_stream_says_the_same_and_ends_with_usage_and_done(serve: Serve) -> None:
    client = await serve({"text": MARKUP, "cut": 3})
    chunks = await streamed(client, stream_options={"include_usage": True})
    assert texts(chunks) == {0: MARKUP}
    *parts, usage, done = chunks
    assert done == "[DONE]"
    assert [part["choices"][0]["finish_reason"] for part in parts[-2:]] == [None, "stop"]
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] > 0
    assert len(parts) > 3


async def test_sixteen_tokens_unless_more_are_asked_for(serve: Serve) -> None:
    client = await serve({"text": "one two three four five six seven " * 8})
    body = request()
    del body["max_tokens"]
    _, answer = await client.post("/v1/completions", body)
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 16


@pytest.mark.parametrize("stream", [False, True])
async def test_each_prompt_gets_n_answers_and_counts_once(serve: Serve, stream: bool) -> None:
    client = await serve({"text": "x", "match": "never"}, {"text": "A.", "match": "first"}, {"text": "B."})
    over = {"prompt": ["the first", "the second"], "n": 2, "echo": True}
    if stream:
        chunks = await streamed(client, stream_options={"include_usage": True}, **over)
        found, usage = texts(chunks), chunks[-2]["usage"]
        assert chunks.count("[DONE]") == 1
    else:
        _, answer = await client.post("/v1/completions", request(**over))
        found = {choice["index"]: choice["text"] for choice in answer["choices"]}
        usage = answer["usage"]
    assert found == {0: "the firstA.", 1: "the firstA.", 2: "the secondB.", 3: "the secondB."}
    tokenizer = client.gateway.runtimes[0].tokenizer
    assert usage["prompt_tokens"] == len(tokenizer.encode("the first")) + len(tokenizer.encode("the second"))


async def test_one_answer_that_fails_behind_the_others_fails_the_document(serve: Serve) -> None:
    """Nothing of a document is sent before all of it is there: the failure is still a status."""
    failing = {"text": "B.", "match": "second", "finish": "error", "after": 0, "first_delay_ms": 100}
    client = await serve({"text": "x", "match": "never"}, {"text": "A.", "match": "first"}, failing)
    status, answer = await client.post("/v1/completions", request(prompt=["the first", "the second"]))
    assert status == 502
    assert "an error" in answer["error"]["message"]


async def test_token_ids_are_a_prompt_too(serve: Serve, tmp_path: Path) -> None:
    client = await serve({"text": " a time"}, record=str(tmp_path / "records"))
    ids = client.gateway.runtimes[0].tokenizer.encode("Once upon")
    for prompt in (ids, [ids]):
        _, answer = await client.post("/v1/completions", request(prompt=prompt, echo=True))
        assert answer["choices"][0]["text"] == "Once upon a time"
        assert answer["usage"]["prompt_tokens"] == len(ids)
    status, error = await client.post("/v1/completions", request(prompt=[10**9]))
    assert (status, error["error"]["param"]) == (400, "prompt")


async def test_stop_strings_and_log_probabilities(serve: Serve) -> None:
    client = await serve({"text": "alpha beta gamma"})
    _, answer = await client.post("/v1/completions", request(stop=[" gamma"], logprobs=1, echo=True))
    choice = answer["choices"][0]
    assert choice["text"] == "Once uponalpha beta"
    assert choice["finish_reason"] == "stop"
    scores = choice["logprobs"]
    assert "".join(scores["tokens"]).startswith("alpha beta")
    assert scores["text_offset"][0] == len("Once upon")
    assert len(scores["tokens"]) == len(scores["token_logprobs"]) == len(scores["top_logprobs"])
    chunks = await streamed(client, logprobs=1)
    offsets = [o for c in chunks if c != "[DONE]" if (s := c["choices"][0]["logprobs"]) for o in s["text_offset"]]
    assert offsets == sorted(offsets)


@pytest.mark.parametrize(
    ("over", "param"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", {}]}, "prompt.1"),
        ({"prompt": [True]}, "prompt.0"),
        ({"suffix": "the end"}, "suffix"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"n": 1000}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"echo": "yes"}, "echo"),
    ],
)
def test_a_wrong_field_is_named(over: dict[str, Any], param: str) -> None:
    with pytest.raises(TurnFailure) as refused:
        completions.decode(json.dumps(request(**over)).encode(), {})
    assert (refused.value.kind, refused.value.param) == ("invalid_request", param)


async def test_an_empty_suffix_and_unknown_fields_are_taken(serve: Serve) -> None:
    client = await serve({"text": "Hi."})
    body = request(suffix=None, best_of=2, guided_json={})
    async with client.session.post(client.base + "/v1/completions", json=body) as answer:
        assert answer.status == 200
        assert answer.headers["x-turnwire-notes"] == "request.field_ignored"


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_one_failing_answer_ends_all_of_them(serve: Serve, path: str) -> None:
    client = await serve({"text": "a b c d e f g h i j", "delay_ms": 20, "finish": "error", "message": "broken"})
    body = request(n=3, stream=True, messages=[{"role": "user", "content": "Hi"}])
    async with client.session.post(client.base + path, json=body) as answer:
        assert answer.status == 200
        text = (await answer.read()).decode()
    assert "[DONE]" not in text
    assert text.count("broken") >= 1
    assert len(client.gateway.heartbeat) == 0


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_a_failure_before_the_first_byte_is_a_status(serve: Serve, path: str) -> None:
    client = await serve({"text": "a b c", "finish": "error", "error": "overloaded", "after": 0})
    body = request(n=2, stream=True, messages=[{"role": "user", "content": "Hi"}])
    status, error = await client.post(path, body)
    assert status == 503
    assert error["error"]["code"] == "server_is_overloaded"


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_a_client_that_leaves_stops_every_answer(serve: Serve, path: str) -> None:
    client = await serve({"text": "word " * 2000, "delay_ms": 50})
    body = request(n=4, stream=True, max_tokens=2000, messages=[{"role": "user", "content": "Hi"}])
    async with client.session.post(client.base + path, json=body) as answer:
        await answer.content.readany()
        assert len(client.gateway.heartbeat) == 4
    async with asyncio.timeout(5):
        await client.gateway.heartbeat.quiet.wait()


async def test_as_the_openai_sdk_asks(serve: Serve) -> None:
    client = await serve({"text": " a time"})
    async with openai.AsyncOpenAI(base_url=client.base + "/v1", api_key="none", max_retries=0) as sdk:
        whole = await sdk.completions.create(model="test-model", prompt="Once upon", echo=True)
        assert whole.choices[0].text == "Once upon a time"
        stream = await sdk.completions.create(model="test-model", prompt="Once upon", stream=True)
        assert "".join([chunk.choices[0].text async for chunk in stream]) == " a time"
