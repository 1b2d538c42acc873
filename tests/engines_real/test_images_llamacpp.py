"""Real llama.cpp with a vision encoder: pictures reach it through the gateway, at their places in our prompts.

The language model is real; the encoder's weights are random, so what it says of a picture means nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import xllamacpp
from tests.gateway.conftest import Client, running

from turnwire.engines.embedded.downloads import resolve_model
from turnwire.engines.images import sample_image
from turnwire.gateway.settings import Settings

from .projector import PATCHES, write_projector

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]

KEY = "sk-llama-0123456789"
STATES = 576
PNG = sample_image().partition(",")[2]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    encoder = tmp_path_factory.mktemp("vision") / "mmproj.gguf"
    write_projector(encoder, STATES)
    params = xllamacpp.CommonParams()
    params.model.path = str(resolve_model(None))
    params.mmproj.path = str(encoder)
    params.mmproj_use_gpu = False
    params.port, params.api_keys, params.verbosity = 0, [KEY], -1
    params.n_ctx, params.n_parallel = 8192, 2
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    holder = [xllamacpp.Server(params)]
    yield holder[0].listening_address
    holder.clear()


def picture() -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}


async def asked(client: Client, *messages: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    body = {"max_tokens": 12, "temperature": 0, "messages": list(messages)}
    status, answer = await client.post("/v1/messages", body)
    assert status == 200, answer
    return answer, next(client.gateway.journal.last(1)).notes


async def test_pictures_are_seen(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_KEY", KEY)
    async with running(Settings(engine=address, engine_key_env="THE_KEY")) as client:
        (row,) = client.gateway.rows()
        assert row.input_modalities == ("text", "image")
        question = {"type": "text", "text": "What is this?"}
        plain, _ = await asked(client, {"role": "user", "content": [question]})
        user = {"role": "user", "content": [picture(), question]}
        seen, notes = await asked(client, user)
        spent = [
            answer["usage"]["input_tokens"] + answer["usage"]["cache_read_input_tokens"] for answer in (plain, seen)
        ]
        assert spent[1] - spent[0] == PATCHES, "the engine's own count of the picture's tokens"
        assert not {"content.image_omitted", "engine.images_as_text"} & set(notes)
        said = {"role": "assistant", "content": seen["content"]}
        call = {"type": "tool_use", "id": "t", "name": "Read", "input": {"path": "a.png"}}
        result = {"type": "tool_result", "tool_use_id": "t", "content": [picture()]}
        loop = {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}
        again, notes = await asked(client, user, said, {"role": "user", "content": "Read a.png."}, *loop)
        assert again["usage"]["input_tokens"] + again["usage"]["cache_read_input_tokens"] > spent[1] + PATCHES
        assert "content.image_omitted" not in notes
