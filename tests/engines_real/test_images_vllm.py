"""Real vLLM with a tiny model that sees (random weights): pictures reach it through the gateway."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.gateway.conftest import Client, running

from turnwire.engines.images import sample_image
from turnwire.gateway.settings import Settings

from .vllm_server import IMAGE_TOKENS, VLLMServer, prepare

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1200)]

PNG = sample_image().partition(",")[2]
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    log = tmp_path_factory.mktemp("seeing") / "log"
    with VLLMServer(log, installation=prepare().seeing()) as running:
        yield running


async def asked(client: Client, *messages: dict[str, Any]) -> tuple[int, tuple[str, ...]]:
    """The engine's own count of the prompt, and the notes of the turn."""
    body = {"max_tokens": 8, "temperature": 0, "messages": list(messages)}
    status, answer = await client.post("/v1/messages", body)
    assert status == 200, answer
    assert answer["usage"]["output_tokens"] > 0
    usage = answer["usage"]
    return usage["input_tokens"] + usage["cache_read_input_tokens"], next(client.gateway.journal.last(1)).notes


async def test_pictures_of_a_user_and_of_a_tool_are_seen(server: Any) -> None:
    async with running(Settings(engine=server.url, dialect="hermes")) as client:
        (row,) = client.gateway.rows()
        assert row.input_modalities == ("text", "image")
        question = {"type": "text", "text": "What is this?"}
        plain, _ = await asked(client, {"role": "user", "content": [question]})
        seen, notes = await asked(client, {"role": "user", "content": [PICTURE, question]})
        assert seen - plain == IMAGE_TOKENS, "the picture's own tokens stand where its mark was"
        assert "engine.images_by_chat" in notes
        call = {"type": "tool_use", "id": "t", "name": "Read", "input": {"path": "a.png"}}
        result = {"type": "tool_result", "tool_use_id": "t", "content": [PICTURE]}
        loop = {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}
        both, notes = await asked(client, {"role": "user", "content": [PICTURE, question]}, *loop)
        assert both > seen + IMAGE_TOKENS
        assert "content.image_omitted" not in notes
