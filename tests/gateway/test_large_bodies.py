"""Bodies that are decoded in a process of their own: nobody can tell, but for the event loop."""

from __future__ import annotations

import asyncio
import gzip
import json
from types import SimpleNamespace
from typing import Any

import pytest

from turnwire.gateway.door.limits import request_limits
from turnwire.gateway.large_bodies import pool
from turnwire.gateway.large_bodies.exchange import failed, failure_in, read_items, read_messages, slices
from turnwire.gateway.large_bodies.pool import LargeBodies
from turnwire.gateway.settings import Settings
from turnwire.protocols.anthropic import HostedToolUnavailable
from turnwire.protocols.wire import TurnFailure
from turnwire.turns import ImageBlock, Message, ReasoningBlock, TextBlock, ToolCallBlock, ToolResultBlock

from .conftest import Client, Serve

WORDS = "A line that somebody has pasted. " * 40
ASKED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": WORDS}]},
    "/v1/messages": {"max_tokens": 50, "messages": [{"role": "user", "content": WORDS}]},
    "/v1/responses": {
        "input": [{"role": "user", "content": [{"type": "input_text", "text": WORDS}]}],
        "tools": [{"type": "function", "name": "ls", "parameters": {"type": "object"}}, {"type": "web_search"}],
        "metadata": {"of": "test"},
    },
}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts as large."""
    monkeypatch.setattr(pool, "_LARGE", 1000)
    monkeypatch.setattr(pool, "_LARGE_ENCODED", 10)


def total(usage: dict[str, Any]) -> int:
    """The tokens of the prompt."""
    apart = usage.get("cache_read_input_tokens", 0) + usage.get("cache_creation_input_tokens", 0)
    return int(usage.get("prompt_tokens") or usage["input_tokens"] + apart)


def bodies_of(client: Client) -> LargeBodies:
    assert client.gateway.large_bodies is not None
    return client.gateway.large_bodies


async def test_a_body_decoded_elsewhere_is_answered_like_any_other(serve: Serve, small: None) -> None:
    client = await serve(*[{"text": "Done.\n</think>\n\nYes."}] * 8, window=1500)
    bodies = bodies_of(client)
    for path, asked in ASKED.items():
        body = json.dumps({"model": "test-model", **asked}).encode()
        bodies.takes = lambda size, encoding: False  # type: ignore[method-assign]
        here = await client.post(path, body)
        del bodies.takes  # type: ignore[method-assign]
        there = await client.post(path, body)
        assert (here[0], there[0]) == (200, 200)
        assert {"usage", "model"} <= here[1].keys() == there[1].keys()
        assert there[1].get("tools") == here[1].get("tools")
        assert total(there[1]["usage"]) == total(here[1]["usage"])
    assert len(bodies._idle) == 1
    answer = there[1]
    stored = await client.session.get(f"{client.base}/v1/responses/{answer['id']}/input_items")
    assert (await stored.json())["data"][0]["content"][0]["text"] == WORDS
    # Expanded there, too; and what refers to stored things is understood with them.
    packed = gzip.compress(json.dumps({"model": "test-model", **ASKED["/v1/chat/completions"]}).encode())
    assert (await client.post("/v1/chat/completions", packed, **{"content-encoding": "gzip"}))[0] == 200
    more = {"model": "test-model", "previous_response_id": answer["id"], **ASKED["/v1/responses"]}
    status, continued = await client.post("/v1/responses", more)
    assert (status, continued["usage"]["input_tokens"] > answer["usage"]["input_tokens"]) == (200, True)


async def test_refusals_are_those_of_each_api(serve: Serve, small: None) -> None:
    client = await serve({"text": "Yes."}, window=1500, max_images=10)
    bodies = bodies_of(client)
    long = [{"role": "user", "content": WORDS * 20}]
    status, error = await client.post("/v1/chat/completions", {"messages": long})
    assert (status, error["error"]["code"]) == (400, "context_length_exceeded")
    status, error = await client.post("/v1/messages", {"max_tokens": 50, "messages": long})
    assert (status, "prompt is too long" in error["error"]["message"]) == (400, True)
    status, error = await client.post("/v1/chat/completions", b'{"messages": [' + b"1," * 2000)
    assert (status, "not valid JSON" in error["error"]["message"]) == (400, True)
    wrong = [{"role": "user", "content": WORDS}, {"role": "nobody"}]
    status, error = await client.post("/v1/chat/completions", {"messages": wrong})
    assert (status, error["error"]["param"]) == (400, "messages.1.role")
    images = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}] * 20
    status, error = await client.post("/v1/chat/completions", {"messages": [{"role": "user", "content": images}]})
    assert (status, "max_images" in error["error"]["message"]) == (400, True)
    bodies.WAITING_BYTES = 100
    status, error = await client.post("/v1/chat/completions", {"messages": long})
    assert (status, "large requests" in error["error"]["message"]) == (503, True)
    assert bodies._waiting == 0


async def test_a_process_that_is_left_or_fails_is_replaced() -> None:
    bodies = LargeBodies(request_limits(Settings()))
    body = json.dumps({"messages": [{"role": "user", "content": WORDS}]}).encode()
    left = bodies.request({}, [body], len(body))
    assert await left.read("chat") is not None
    assert left._process is not None
    first = left._process._process
    left.close()
    assert await asyncio.to_thread(first.wait, 10) != 0
    failing = bodies.request({}, [body], len(body))
    taking = bodies.take

    async def dead() -> Any:
        process = await taking()
        process._process.kill()
        return process

    bodies.take = dead  # type: ignore[method-assign]
    with pytest.raises(TurnFailure, match="could not be decoded"):
        await failing.read("chat")
    failing.close()
    bodies.take = taking  # type: ignore[method-assign]
    sound = bodies.request({}, [body[:100], body[100:]], len(body))
    inbound = await sound.read("chat")
    assert inbound is not None
    await sound.complete(inbound)
    assert inbound.conversation.messages[0].text == WORDS
    sound.close()
    (resting,) = bodies._idle
    bodies.stop()
    assert await asyncio.to_thread(resting._process.wait, 10) != 0
    assert bodies._waiting == 0


def test_what_crosses_is_what_was_there() -> None:
    messages = [
        Message(role="system", blocks=(TextBlock(text="s" * 200_000),)),
        Message(
            role="assistant",
            blocks=(ReasoningBlock(text="t", seal="x"), ToolCallBlock(id="1", name="n", arguments="{}")),
        ),
        Message(
            role="user", blocks=(ToolResultBlock(call_id="1", content=(TextBlock(text="é"), ImageBlock(url="u"))),)
        ),
        *[Message(role="user", blocks=(TextBlock(text="w" * 1000),))] * 300,
    ]
    crossing = list(slices(messages))
    assert len(crossing) > 3
    assert [message for data in crossing for message in read_messages(data)] == messages
    items = [{"type": "message", "content": [{"text": "x", "n": 1.5}]}, {"other": None}]
    assert [item for data in slices(items) for item in read_items(data)] == items
    gone = failure_in(failed(HostedToolUnavailable("search", "q", model="m", stream=True)))
    assert isinstance(gone, HostedToolUnavailable)
    assert (gone.query, gone.stream, str(gone)) == ("q", True, gone.message)


async def test_a_body_is_freed_a_few_pieces_at_a_time() -> None:
    chunks = [bytes(10)] * (3 * pool._FREED)
    pool._let_go(chunks)
    assert len(chunks) == 2 * pool._FREED
    for _ in range(3):
        await asyncio.sleep(0)
    assert chunks == []


async def test_others_have_their_turn_while_a_body_is_sent_to_a_process_that_never_makes_it_wait() -> None:
    sent: list[bytes] = []

    async def drained() -> None:
        return

    writer: Any = SimpleNamespace(write=sent.append, drain=drained)
    process = pool._Process(None, None, writer)  # type: ignore[arg-type]
    seen: list[int] = []
    loop = asyncio.get_running_loop()

    def look() -> None:
        seen.append(len(sent))
        if len(seen) < 100:
            loop.call_soon(look)

    loop.call_soon(look)
    await process.send(bytes(8 * pool._PIECE), *[bytes(pool._PIECE // 4)] * 32)
    assert sum(map(len, sent)) == 16 * pool._PIECE
    assert len(set(seen)) >= 15, "the loop went on after each piece"
