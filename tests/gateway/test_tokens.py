"""Counting and tokenizing over the wire: the very numbers that turns and engines see."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from turnwire.gateway.turns.runtime import ModelRuntime
from turnwire.prompts.prompt import Prompt
from turnwire.prompts.replay.draft import Draft
from turnwire.turns import Conversation, Message, TextBlock, ToolResultBlock

from .conftest import Serve

CALL = "Look.\n</think>\n\n<tool_call>\n<function=ls>\n<parameter=path>\nsrc \n</parameter>\n</function>\n</tool_call>"
TOOLS = [{"name": "ls", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}]


def request(*messages: dict[str, Any], **over: Any) -> dict[str, Any]:
    first = {"role": "user", "content": "What is here?"}
    body = {"model": "test-model", "max_tokens": 500, "messages": [first, *messages], "tools": TOOLS}
    return body | {"thinking": {"type": "adaptive"}} | over


def total(usage: dict[str, int]) -> int:
    return usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"]


async def test_a_count_is_what_the_turn_says_it_read(serve: Serve) -> None:
    client = await serve({"text": CALL}, {"text": "Done.\n</think>\n\nTwo files."})
    body = request()
    _, counted = await client.post("/v1/messages/count_tokens", body)
    _, message = await client.post("/v1/messages", body)
    assert counted == {"input_tokens": total(message["usage"])}
    call = next(block for block in message["content"] if block["type"] == "tool_use")
    call["input"] = {"path": "src"}  # rewritten by the client; the turn is counted as the model wrote it
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": "a b"}
    said = {"role": "assistant", "content": message["content"]}
    body = request(said, {"role": "user", "content": [result]})
    counts = await asyncio.gather(*(client.post("/v1/messages/count_tokens", body) for _ in range(25)))
    _, answer = await client.post("/v1/messages", body)
    assert {count["input_tokens"] for _, count in counts} == {total(answer["usage"])}
    assert answer["usage"]["cache_read_input_tokens"] > 0


@pytest.mark.parametrize("size", [1, 2000])
async def test_text_goes_to_tokens_and_back(serve: Serve, size: int) -> None:
    client = await serve({"text": "Hi."})
    text = "Grüße, <think>\n" * size
    status, found = await client.post("/v1/tokenize", {"model": "test-model", "prompt": text})
    tokenizer = client.gateway.runtimes[0].tokenizer
    assert (status, found["tokens"]) == (200, tokenizer.encode(text))
    assert found["count"] == len(found["tokens"])
    status, back = await client.post("/v1/detokenize", {"tokens": found["tokens"]})
    assert (status, back) == (200, {"prompt": text})


async def test_token_strings_and_refusals(serve: Serve) -> None:
    client = await serve({"text": "Hi."})
    _, found = await client.post("/v1/tokenize", {"text": "two words", "return_token_strs": True})
    assert "".join(found["token_strs"]) == "two words"
    for path, body in (
        ("/v1/tokenize", {"text": 7}),
        ("/v1/detokenize", {"tokens": [-1]}),
        ("/v1/detokenize", {"tokens": [10**9]}),
    ):
        status, error = await client.post(path, body)
        assert (status, error["error"]["type"]) == (400, "invalid_request_error")
    status, _ = await client.post("/v1/tokenize", {"text": "x", "model": "unheard-of"})
    assert status == 404


async def test_what_is_large_is_built_beside_the_event_loop(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = (await serve({"text": "Hi."})).gateway.runtimes[0]
    here: list[bool] = []
    finish = Draft.finish

    def watched(draft: Draft) -> Prompt:
        here.append(threading.current_thread() is threading.main_thread())
        return finish(draft)

    monkeypatch.setattr(Draft, "finish", watched)

    async def build(*messages: Message) -> None:
        await runtime.build(Conversation(model="m", messages=messages), "default")

    long = TextBlock(text="x" * ModelRuntime.INLINE_BYTES)
    opening = Message(role="user", blocks=(TextBlock(text="Hello."),))
    answered = (opening, Message(role="assistant", blocks=(TextBlock(text="Yes."),)))
    await build(opening)
    await build(Message(role="user", blocks=(long,)))
    await build(*answered, Message(role="user", blocks=(ToolResultBlock(call_id="c", content=(long,)),)))
    assert here == [True, False, False]
    # What came before costs nothing any more; without the memory of it, it costs what it did.
    more = Message(role="user", blocks=(TextBlock(text="And now?"),))
    history = (Message(role="user", blocks=(long,)), answered[1])
    await build(*history, more)
    await build(*history, more, answered[1], opening)
    assert here[3:] == [False, True]


async def test_a_conversation_is_tokenized_as_its_turn_reads_it(serve: Serve) -> None:
    client = await serve({"text": "Hi."})
    tool = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}
    body = {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}], "tools": [tool]}
    status, found = await client.post("/v1/tokenize", body)
    _, answer = await client.post("/v1/chat/completions", {"model": "test-model", **body})
    assert (status, found["count"]) == (200, answer["usage"]["prompt_tokens"])
    assert found["count"] == len(found["tokens"]) > 2
    status, error = await client.post("/v1/tokenize", {"input": "nothing that is known"})
    assert (status, "messages" in error["error"]["message"]) == (400, True)
