"""A gateway in front of a server that takes conversations: its key, its model, its counts, its window."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.conftest import running
from tests.gateway.setup.upstreams import HostedChat
from turnwire.gateway.settings import Settings
from turnwire.gateway.setup.assembly import AssemblyError, assemble
from turnwire.gateway.setup.diagnosis import diagnose
from turnwire.gateway.setup.engine_keys import EngineKeyError, engine_key

SECRET = "sk-upstream-0123456789"


def asking(server: HostedChat, **over: object) -> Settings:
    return Settings(engine=f"openai:{server.url}", **over)  # type: ignore[arg-type]


async def test_the_named_model_is_the_one_that_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPSTREAM_KEY", SECRET)
    async with HostedChat("llama3.2:1b", "qwen3-coder:30b", key=SECRET).running() as server:
        settings = asking(server, model="qwen3-coder:30b", engine_key_env="UPSTREAM_KEY")
        async with running(settings) as client:
            body = {"model": "qwen3-coder:30b", "messages": [{"role": "user", "content": "Hi"}]}
            status, answer = await client.post("/v1/chat/completions", body)
        assert (status, answer["model"]) == (200, "qwen3-coder:30b")
        assert [asked["model"] for asked in server.asked] == ["qwen3-coder:30b"]


async def test_a_served_name_may_differ_from_the_upstream_one(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{SECRET}\n")
    async with HostedChat("llama3.2:1b", "qwen3-coder:30b", key=SECRET).running() as server:
        settings = asking(
            server, model="coder", upstream_model="qwen3-coder:30b", engine_key_file=str(tmp_path / "key")
        )
        async with running(settings) as client:
            body = {"model": "coder", "max_tokens": 50, "messages": [{"role": "user", "content": "Hi"}]}
            status, answer = await client.post("/v1/messages", body)
        assert (status, answer["model"]) == (200, "coder")
        assert server.asked[0]["model"] == "qwen3-coder:30b"


async def test_several_models_and_none_named_is_an_error_that_lists_them() -> None:
    async with HostedChat("llama3.2:1b", "qwen3-coder:30b").running() as server:
        with pytest.raises(AssemblyError, match=r"--model: llama3\.2:1b, qwen3-coder:30b"):
            await assemble(asking(server))


async def test_the_only_model_needs_no_name() -> None:
    async with HostedChat("llama3.2:1b").running() as server:
        runtime = await assemble(asking(server))
        assert runtime.id == "llama3.2:1b"
        await runtime.engine.close()


@pytest.mark.parametrize("key", [None, "wrong-key"])
async def test_a_refused_key_is_said_with_the_flag_that_gives_it(
    monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    if key:
        monkeypatch.setenv("UPSTREAM_KEY", key)
    async with HostedChat("llama3.2:1b", key=SECRET).running() as server:
        settings = asking(server, engine_key_env="UPSTREAM_KEY" if key else None)
        with pytest.raises(AssemblyError, match="--engine-key-env") as raised:
            await assemble(settings)
        assert "401" in str(raised.value)
        findings = await diagnose(settings)
    assert any(finding.state == "error" and "--engine-key-env" in finding.text for finding in findings)


async def test_a_list_that_fails_is_said_and_a_named_model_works_all_the_same() -> None:
    async with HostedChat("m", status=500).running() as server:
        with pytest.raises(AssemblyError, match=r"no database.*--model"):
            await assemble(asking(server))
        runtime = await assemble(asking(server, model="m"))
        assert any("no database" in warning for warning in runtime.info.warnings)
        await runtime.engine.close()


async def test_no_foreign_tokenizer_refuses_bounds_or_counts() -> None:
    text = "人工智能正在改变世界。" * 582
    assert len(text) > 6_400
    async with HostedChat("m").running() as server, running(asking(server)) as client:
        messages = [{"role": "user", "content": text}]
        status, answer = await client.post("/v1/chat/completions", {"model": "m", "messages": messages})
        assert status == 200
        assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (777, 2)
        assert "max_tokens" not in server.asked[0]
        body = {"model": "m", "max_tokens": 300_000, "messages": messages}
        for _ in range(2):
            events = await client.stream("/v1/messages", body | {"stream": True})
            started = next(data for _, name, data in events if name == "message_start")
            usage = started["message"]["usage"]
            assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (0, 0)
            ended = next(data for _, name, data in events if name == "message_delta")
            assert (ended["usage"]["input_tokens"], ended["usage"]["cache_read_input_tokens"]) == (77, 700)
        assert server.asked[1]["max_tokens"] == 300_000
        async with client.session.post(client.base + "/v1/messages", json=body) as reply:
            assert reply.headers["x-turnwire-prefix"] == "unseen"
        status, answer = await client.post("/v1/messages/count_tokens", {"model": "m", "messages": messages})
        assert (status, answer["error"]["type"]) == (404, "not_found_error")


def test_a_key_is_read_from_one_place_and_never_repeated(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("two words")
    for variable, path, words in (
        ("ABSENT", None, "ABSENT"),
        (None, str(tmp_path / "missing"), "missing"),
        (None, str(file), "more than one word"),
        ("A", str(file), "one of the two"),
    ):
        with pytest.raises(EngineKeyError, match=words) as raised:
            engine_key(variable, path, {"A": SECRET})
        assert SECRET not in str(raised.value)
        assert "two words" not in str(raised.value)
    assert engine_key("A", None, {"A": f" {SECRET}\n"}) == SECRET
    assert engine_key(None, None, {}) is None


async def test_counts_that_can_be_none_spoil_neither_the_metrics_nor_the_turns_after() -> None:
    async with HostedChat("m").running() as server, running(asking(server)) as client:
        for path, body in (
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
            ("/v1/messages", {"max_tokens": 50, "messages": [{"role": "user", "content": "Hi"}]}),
            ("/v1/responses", {"input": "Hi"}),
        ):
            for count in (-7, 10**400):
                details = {"cached_tokens": count, "reasoning_tokens": count}
                server.usage = {"prompt_tokens": count, "completion_tokens": count, "prompt_tokens_details": details}
                status, answer = await client.post(path, {"model": "m", **body})
                assert status == 200
                assert all(0 <= told < 1 << 33 for told in answer["usage"].values() if isinstance(told, int))
        async with client.session.get(client.base + "/metrics") as page:
            assert page.status == 200
            assert "turnwire_turns_total{" in await page.text()
