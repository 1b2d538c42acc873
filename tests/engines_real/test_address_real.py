"""`--engine URL` on real llama.cpp with an API key: model, window, template and tokenizer without a flag."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.gateway.conftest import running

from turnwire.engines.embedded.downloads import resolve_model
from turnwire.engines.embedded.server import EmbeddedSettings, load_server, unload_server
from turnwire.gateway.settings import Settings
from turnwire.gateway.setup.assembly import AssemblyError, assemble

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]

KEY = "sk-llama-0123456789"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    holder = [load_server(resolve_model(None), EmbeddedSettings(slots=2, threads=1), 4096, KEY)]
    yield holder[0].listening_address
    unload_server(holder)


async def test_an_address_and_a_key_are_enough(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_KEY", KEY)
    async with running(Settings(engine=address, engine_key_env="LLAMA_KEY")) as client:
        runtime = client.gateway.runtimes[0]
        assert (runtime.info.name, runtime.window, runtime.writes_prompts) == ("llamacpp", 4096, True)
        assert runtime.id == "SmolLM2-135M-Instruct.Q4_1"
        messages = [{"role": "user", "content": "Say hello."}]
        status, counted = await client.post("/v1/messages/count_tokens", {"messages": messages})
        assert status == 200
        status, answer = await client.post("/v1/messages", {"max_tokens": 12, "messages": messages})
        assert (status, answer["usage"]["input_tokens"]) == (200, counted["input_tokens"])
        assert answer["usage"]["output_tokens"] == 12


async def test_without_the_key_the_flag_is_named(address: str) -> None:
    with pytest.raises(AssemblyError, match="--engine-key-env"):
        await assemble(Settings(engine=address))
