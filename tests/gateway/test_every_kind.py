"""Every kind of server behind the gateway: thinking switched on, off and bounded as the wire shows it, and long Chinese
text that nobody refuses on a server's behalf."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import turnwire.prompts
from tests.engines.recorded import RECORDED
from tests.engines.seeing import Spelling
from tests.engines.servers import FakeLlamaCpp, FakeResponses, FakeServer, FakeSGLang, FakeTRTLLM, FakeVLLM
from tests.gateway.conftest import Client, running
from tests.gateway.setup.test_anthropic import hosted
from tests.gateway.setup.test_text_servers import TextServer
from tests.gateway.setup.upstreams import HostedChat
from turnwire.engines.scripted.script import Line
from turnwire.engines.spec import CONVERSATION_KINDS
from turnwire.gateway.settings import Settings
from turnwire.prompts.tokenizers.load import load_tokenizer

DATA = Path(turnwire.prompts.__file__).parent / "data"
CHINESE = "人工智能正在改变世界。" * 582
WISHES: dict[str, dict[str, Any]] = {
    "on": {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
    "off": {"thinking": {"type": "disabled"}},
    "budget": {"thinking": {"type": "enabled", "budget_tokens": 4000}},
}
TEMPLATES = {
    "on": {"reasoning_effort": "high"},
    "off": {"chat_template_kwargs": {"enable_thinking": False, "thinking": False}},
    "budget": {"chat_template_kwargs": {"enable_thinking": True, "thinking": True}},
}
EFFORTS = {
    "on": {"reasoning_effort": "high"},
    "off": {"reasoning_effort": "none"},
    "budget": {"reasoning_effort": "medium"},
}
CHAT = {
    "vllm": TEMPLATES,
    "sglang": TEMPLATES,
    "trtllm": TEMPLATES,
    "llamacpp": TEMPLATES,
    "nim": TEMPLATES,
    "ollama": EFFORTS,
    "lmstudio": EFFORTS,
    "litellm": EFFORTS,
    "openai": EFFORTS,
    "openrouter": {
        "on": {"reasoning": {"effort": "high"}},
        "off": {"reasoning": {"enabled": False}},
        "budget": {"reasoning": {"max_tokens": 4000}},
    },
}
BUDGETED = {"openrouter"}
"""Chat servers that have a word for a budget."""
TOKENS: dict[str, type[FakeServer]] = {
    "vllm": FakeVLLM,
    "sglang": FakeSGLang,
    "trtllm": FakeTRTLLM,
    "llamacpp": FakeLlamaCpp,
}
TEXT = ("ollama", "lmstudio", "openai")


async def asked(client: Client, text: str = "Hi", **wish: Any) -> tuple[str, ...]:
    """Ask once; the notes of the turn."""
    body = {"max_tokens": 5000, "messages": [{"role": "user", "content": text}], **wish}
    status, answer = await client.post("/v1/messages", body)
    assert status == 200, answer
    return next(client.gateway.journal.last(1)).notes


def test_no_kind_is_left_out() -> None:
    assert set(CHAT) | {"turnwire", "anthropic"} >= CONVERSATION_KINDS


@pytest.mark.parametrize("kind", list(CHAT))
async def test_chat_servers_hear_it_in_their_own_words(kind: str) -> None:
    answers = dict(RECORDED[kind])
    if kind == "nim":
        answers["/v1/models"] = {"data": [{"id": "tiny", "owned_by": "vllm", "max_model_len": 4096}]}
    async with HostedChat(answers=answers).running() as server:
        spec = f"openai:{server.url}" if kind == "openai" else server.url.removesuffix("/v1")
        async with running(Settings(engine=spec, window=4096)) as client:
            for wish, fields in WISHES.items():
                notes = await asked(client, **fields)
                said = server.asked[-1]
                words = CHAT[kind][wish]
                assert {name: said.get(name) for name in words} == words
                assert ("upstream.thinking_budget" in notes) == (wish == "budget" and kind not in BUDGETED)
            await asked(client, CHINESE)
            assert server.asked[-1]["messages"][-1]["content"] == CHINESE


@pytest.mark.parametrize("kind", list(CHAT))
async def test_a_tool_loop_goes_on_behind_chat_servers(kind: str) -> None:
    """The call comes back under the id and with the very arguments that the server gave it, its result beside it."""
    arguments = '{"path":   "a.txt"}'
    async with HostedChat(answers=RECORDED[kind]).running() as server:
        call = {"index": 0, "id": "call_up", "type": "function", "function": {"name": "Read", "arguments": arguments}}
        server.deltas.append({"reasoning_content": "Look.", "tool_calls": [call]})
        async with running(Settings(engine=server.url.removesuffix("/v1"))) as client:
            tool = {"name": "Read", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}
            said: list[dict[str, Any]] = [{"role": "user", "content": "Read a.txt."}]
            body = {"max_tokens": 50, "tools": [tool], "messages": said}
            _, first = await client.post("/v1/messages", body)
            assert (first["stop_reason"], first["content"][-1]["id"]) == ("tool_use", "call_up")
            result = {"type": "tool_result", "tool_use_id": "call_up", "content": "found"}
            said += [{"role": "assistant", "content": first["content"]}, {"role": "user", "content": [result]}]
            status, second = await client.post("/v1/messages", body)
            assert (status, second["content"][-1]["text"]) == (200, "Hello.")
        *_, made, told = server.asked[1]["messages"]
        assert made["tool_calls"][0]["id"] == told["tool_call_id"] == "call_up"
        assert json.loads(made["tool_calls"][0]["function"]["arguments"]) == {"path": "a.txt"}
        assert made["reasoning_content"] == "Look."
        assert told["content"] == "found"


@pytest.mark.parametrize("kind", ["openai", "turnwire"])
async def test_responses_servers_hear_an_effort(kind: str) -> None:
    server = FakeResponses(Line(text="Hello."), Spelling(), window=4096)  # type: ignore[arg-type]
    url = await server.start()
    spec = f"openai:{url}/v1/responses" if kind == "openai" else f"turnwire:{url}"
    try:
        async with running(Settings(engine=spec, model="toy")) as client:
            for wish, effort in (("on", "high"), ("off", "none"), ("budget", "medium")):
                notes = await asked(client, **WISHES[wish])
                assert server.requests[-1]["reasoning"]["effort"] == effort
                assert ("upstream.thinking_budget" in notes) == (wish == "budget")
            await asked(client, CHINESE)
    finally:
        await server.stop()


async def test_a_messages_server_hears_what_the_client_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_KEY", "sk-ant-0123456789")
    async with hosted() as (server, url):
        settings = Settings(engine=f"anthropic:{url}", model="claude-x", engine_key_env="CLAUDE_KEY")
        async with running(settings) as client:
            for fields in WISHES.values():
                await asked(client, **fields)
                assert {name: server.asked[-1].get(name) for name in fields} == fields
            await asked(client, CHINESE)


@asynccontextmanager
async def token_server(kind: str, folder: Path, text: str) -> AsyncIterator[tuple[Client, FakeServer]]:
    shutil.copy(DATA / "turnwire-tokenizer.json", folder / "tokenizer.json")
    shutil.copy(DATA / "turnwire.jinja", folder / "chat_template.jinja")
    server = TOKENS[kind](Line(text=text, delay_ms=1), Spelling(), window=60_000)  # type: ignore[arg-type]
    url = await server.start()
    try:
        settings = Settings(engine=f"{kind}:{url}", tokenizer=str(folder), dialect="qwen3_coder", window=60_000)
        async with running(settings) as client:
            server.requests.clear()
            yield client, server
    finally:
        await server.stop()


def prompt_of(kind: str, body: dict[str, Any]) -> str:
    return load_tokenizer(None).decode(body["input_ids" if kind == "sglang" else "prompt"])


@pytest.mark.parametrize("kind", list(TOKENS))
async def test_token_engines_read_it_in_the_prompt(kind: str, tmp_path: Path) -> None:
    thought = "word " * 60
    async with token_server(kind, tmp_path, f"<think>\n{thought}</think>\n\nDone.") as (client, server):
        await asked(client, **WISHES["on"])
        assert prompt_of(kind, server.requests[-1]).endswith("<|im_start|>assistant\n<think>\n")
        await asked(client, **WISHES["off"])
        assert prompt_of(kind, server.requests[-1]).endswith("<think>\n\n</think>\n\n")
        before = len(server.requests)
        notes = await asked(client, nvext={"max_thinking_tokens": 16})
        assert "thinking.budget_reached" in notes
        _, resumed = server.requests[before:]
        assert prompt_of(kind, resumed).rstrip().endswith("</think>"), "the thought was closed and the model went on"
        await asked(client, CHINESE)
        assert CHINESE in prompt_of(kind, server.requests[-1])


@pytest.mark.parametrize("kind", TEXT)
async def test_text_servers_read_it_in_the_prompt(kind: str, tmp_path: Path) -> None:
    shutil.copy(DATA / "turnwire-tokenizer.json", tmp_path / "tokenizer.json")
    shutil.copy(DATA / "turnwire.jinja", tmp_path / "chat_template.jinja")
    async with TextServer(kind, "A.", "B.", "C.", "D.").running() as server:
        settings = Settings(engine=server.url, tokenizer=str(tmp_path), dialect="qwen3_coder", window=60_000)
        async with running(settings) as client:
            await asked(client, **WISHES["on"])
            assert server.asked[-1][1]["prompt"].endswith("<|im_start|>assistant\n<think>\n")
            await asked(client, **WISHES["off"])
            assert server.asked[-1][1]["prompt"].endswith("<think>\n\n</think>\n\n")
            notes = await asked(client, **WISHES["budget"])
            assert "thinking.budget_unbounded" in notes
            await asked(client, CHINESE)
            assert CHINESE in server.asked[-1][1]["prompt"]
