"""`--engine URL` and nothing else: each kind of server is found out and asked for the right model."""

from __future__ import annotations

import shutil
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

import turnwire.prompts
from tests.engines.recorded import RECORDED
from tests.engines.servers import FakeSGLang
from tests.gateway.conftest import running
from tests.gateway.setup.upstreams import HostedChat
from turnwire.engines.scripted.script import Line
from turnwire.gateway.settings import Settings
from turnwire.gateway.setup.assembly import AssemblyError, assemble
from turnwire.prompts.tokenizers.load import load_tokenizer

DATA = Path(turnwire.prompts.__file__).parent / "data"


@pytest.fixture(autouse=True)
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that reaches no hub."""

    def fetch(*_: object, **__: object) -> str:
        raise LocalEntryNotFoundError("offline")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)


def base(server: HostedChat) -> str:
    return server.url.removesuffix("/v1")


@pytest.mark.parametrize(
    ("kind", "model", "window"),
    [
        ("ollama", "qwen3:8b", 16384),
        ("lmstudio", "qwen3-8b", 8192),
        ("nim", "nvidia/nemotron", 131072),
        ("litellm", "smart", 200000),
        ("openrouter", "maker/large", 262144),
        ("openai", "gpt-x", None),
    ],
)
async def test_an_address_is_enough(monkeypatch: pytest.MonkeyPatch, kind: str, model: str, window: int | None) -> None:
    monkeypatch.setenv("THE_KEY", "sk-0123456789")
    async with HostedChat(key="sk-0123456789", answers=RECORDED[kind]).running() as server:
        settings = Settings(engine=base(server), engine_key_env="THE_KEY")
        async with running(settings) as client:
            runtime = client.gateway.runtimes[0]
            assert (runtime.id, runtime.info.name) == (model, kind)
            assert window is None or runtime.window == window
            body = {"model": model, "messages": [{"role": "user", "content": "Hi"}]}
            status, answer = await client.post("/v1/chat/completions", body)
        assert (status, answer["usage"]["prompt_tokens"]) == (200, 777)
        assert [asked["model"] for asked in server.asked] == [model]


@pytest.mark.parametrize("kind", ["vllm", "trtllm", "sglang", "llamacpp"])
async def test_without_its_tokenizer_a_token_server_is_asked_by_its_chat_route(kind: str) -> None:
    async with HostedChat(answers=RECORDED[kind]).running() as server:
        async with running(Settings(engine=base(server))) as client:
            runtime = client.gateway.runtimes[0]
            assert (runtime.id, runtime.info.name) == ("tiny", kind)
            (warning,) = [each for each in runtime.info.warnings if "replayed exactly" in each]
            assert "--tokenizer FOLDER" in warning
            assert ("the hub cannot be reached" in warning) == (kind == "vllm")
            status, _ = await client.post(
                "/v1/messages", {"max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
            )
        assert (status, server.asked[0]["model"]) == (200, "tiny")
        with pytest.raises(AssemblyError, match=r"tiny cannot be written here.*--tokenizer FOLDER.*openai:http"):
            await assemble(Settings(engine=f"{kind}:{base(server)}"))


async def test_tokenizer_and_template_come_from_where_the_server_says(tmp_path: Path) -> None:
    shutil.copy(DATA / "turnwire-tokenizer.json", tmp_path / "tokenizer.json")
    shutil.copy(DATA / "turnwire.jinja", tmp_path / "chat_template.jinja")
    server = FakeSGLang(Line(text="Hi."), load_tokenizer(None))  # type: ignore[arg-type]
    server.tokenizer_path = str(tmp_path)
    url = await server.start()
    try:
        for spec in (url, f"sglang:{url}"):
            runtime = await assemble(Settings(engine=spec, dialect="qwen3_coder"))
            assert (runtime.info.name, runtime.writes_prompts, runtime.window) == ("sglang", True, server.window)
            assert not [each for each in runtime.info.warnings if "replayed" in each]
            await runtime.engine.close()
    finally:
        await server.stop()


async def test_several_models_and_none_named() -> None:
    two = {"models": [{"name": "a", "capabilities": ["completion"]}, {"name": "b", "capabilities": ["completion"]}]}
    async with HostedChat("a", "b", answers=RECORDED["ollama"] | {"/api/tags": two}).running() as server:
        with pytest.raises(AssemblyError, match="--model: a, b"):
            await assemble(Settings(engine=base(server)))
        runtime = await assemble(Settings(engine=base(server), model="b"))
        assert runtime.id == "b"
        await runtime.engine.close()


async def test_engines_of_several_kinds_for_one_model_are_refused() -> None:
    async with (
        HostedChat(answers=RECORDED["nim"]).running() as one,
        HostedChat(answers=RECORDED["litellm"]).running() as other,
    ):
        with pytest.raises(AssemblyError, match=r"not nim, litellm.*\[\[model\]\]"):
            await assemble(Settings(engine=f"{base(one)},{base(other)}"))
