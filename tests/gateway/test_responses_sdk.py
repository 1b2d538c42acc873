"""Every Responses route as OpenAI's own SDK calls it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import openai
import pytest
from openai import AsyncOpenAI

from .conftest import Serve

LINE = {"text": "Hm.\n</think>\n\nHello there.", "delay_ms": 3}


@pytest.fixture
async def sdk(serve: Serve) -> AsyncIterator[AsyncOpenAI]:
    client = await serve(LINE, model="m1")
    async with AsyncOpenAI(base_url=client.base + "/v1", api_key="any", max_retries=0) as sdk:
        yield sdk


async def test_create_retrieve_list_and_delete(sdk: AsyncOpenAI) -> None:
    response = await sdk.responses.create(model="m1", input="hi", reasoning={"effort": "low"})
    assert response.output_text == "Hello there."
    assert (await sdk.responses.retrieve(response.id)).output_text == "Hello there."
    items = [item async for item in await sdk.responses.input_items.list(response.id)]
    assert [item.type for item in items] == ["message"]
    counted = await sdk.responses.input_tokens.count(model="m1", input="hi", reasoning={"effort": "low"})
    assert response.usage is not None
    assert counted.input_tokens == response.usage.input_tokens
    await sdk.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        await sdk.responses.retrieve(response.id)


async def test_stream_and_continue(sdk: AsyncOpenAI) -> None:
    async with sdk.responses.stream(model="m1", input="hi") as stream:
        kinds = [event.type async for event in stream]
        first = await stream.get_final_response()
    assert kinds[0] == "response.created"
    assert "response.reasoning_summary_text.delta" in kinds
    second = await sdk.responses.create(model="m1", input="more", previous_response_id=first.id)
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.input_tokens > first.usage.input_tokens


async def test_background_is_polled_and_followed(sdk: AsyncOpenAI) -> None:
    response = await sdk.responses.create(model="m1", input="hi", background=True)
    followed = [event.type async for event in await sdk.responses.retrieve(response.id, stream=True, starting_after=2)]
    assert followed[-1] == "response.completed"
    for _ in range(100):
        response = await sdk.responses.retrieve(response.id)
        if response.status not in ("queued", "in_progress"):
            break
        await asyncio.sleep(0.02)
    assert (response.status, response.output_text) == ("completed", "Hello there.")


async def test_compact(sdk: AsyncOpenAI) -> None:
    compacted = await sdk.responses.compact(model="m1", input=[{"role": "user", "content": "hi"}])
    assert [item.type for item in compacted.output] == ["message", "compaction"]


async def test_over_a_websocket(sdk: AsyncOpenAI) -> None:
    async with sdk.responses.connect() as connection:
        await connection.response.create(model="m1", input="hi")
        async for event in connection:
            if event.type == "response.completed":
                assert event.response.output_text == "Hello there."
                return
    raise AssertionError("the connection ended before the response")


async def test_an_unknown_model_is_a_bad_request(sdk: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await sdk.responses.create(model="other", input="hi")
    assert caught.value.code == "model_not_found"


async def test_models(sdk: AsyncOpenAI) -> None:
    assert "m1" in [model.id async for model in await sdk.models.list()]
    assert (await sdk.models.retrieve("m1")).owned_by
