"""`--engine URL` on a real vLLM with `--api-key`: by token ids, with the model folder that it names itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.gateway.conftest import running

from turnwire.gateway.settings import Settings
from turnwire.gateway.setup.assembly import AssemblyError, assemble

from .vllm_server import VLLMServer

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]

KEY = "sk-vllm-0123456789"


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with VLLMServer(tmp_path_factory.mktemp("vllm") / "server.log", "--api-key", KEY) as server:
        yield server


async def test_an_address_and_a_key_are_enough(locked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_KEY", KEY)
    async with running(Settings(engine=locked.url, engine_key_env="VLLM_KEY", dialect="hermes")) as client:
        runtime = client.gateway.runtimes[0]
        assert (runtime.info.name, runtime.writes_prompts) == ("vllm", True)
        body = {"max_tokens": 8, "messages": [{"role": "user", "content": "Hi"}]}
        status, answer = await client.post("/v1/messages", body)
    assert (status, answer["usage"]["output_tokens"]) == (200, 8), answer


async def test_without_the_key_the_flag_is_named(locked: Any) -> None:
    with pytest.raises(AssemblyError, match="--engine-key-env"):
        await assemble(Settings(engine=locked.url))
