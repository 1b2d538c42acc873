"""Ollama, LM Studio and other servers that complete text: prompts written here, sent as text, parsed here."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

import turnwire.prompts
from tests.engines.recorded import RECORDED
from tests.gateway.conftest import Client, running
from turnwire.gateway.settings import Settings
from turnwire.gateway.setup.assembly import AssemblyError, assemble
from turnwire.gateway.setup.worker_list import add_worker, pool_of

DATA = Path(turnwire.prompts.__file__).parent / "data"
CALL = "<tool_call>\n<function=Read>\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>"
TOOL = {"name": "Read", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}


class TextServer:
    """Answers GETs from a table, `/api/generate` as Ollama does and `/v1/completions` as OpenAI's. `says` are the
    model's turns; `asked` are the bodies of the generations."""

    def __init__(self, kind: str, *says: str, shown: dict[str, Any] | None = None) -> None:
        self.answers = dict(RECORDED[kind])
        if shown is not None:
            self.answers["/api/show"] = shown
            self.answers["/api/ps"] = {"models": [{"name": "qwen3:8b", "context_length": 16384}]}
        self.says = list(says)
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.url = ""

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path in ("/api/generate", "/v1/completions", "/v1/chat/completions"):
            return await self._generate(request)
        if request.path not in self.answers:
            return web.json_response({"error": "not found"}, status=404)
        said = self.answers[request.path]
        return web.Response(text=said) if isinstance(said, str) else web.json_response(said)

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if not body.get("prompt") and "messages" not in body:
            return web.json_response({"done": True, "done_reason": "load"})
        self.asked.append((request.path, body))
        answer = web.StreamResponse()
        await answer.prepare(request)
        said = self.says.pop(0)
        middle = len(said) // 2
        if request.path == "/api/generate":
            lines = [{"response": said[:middle], "done": False}, {"response": said[middle:], "done": False}]
            last = {"response": "", "done": True, "done_reason": "stop", "prompt_eval_count": 321, "eval_count": 9}
            text = "".join(json.dumps(line) + "\n" for line in [*lines, last]).encode()
            # Cut in the middle of a line, as sockets do.
            await answer.write(text[:25])
            await answer.write(text[25:])
        else:
            chunks = [{"choices": [{"index": 0, "text": said}]}, {"choices": [{"text": "", "finish_reason": "stop"}]}]
            usage = {"prompt_tokens": 321, "completion_tokens": 9}
            for chunk in (*chunks, {"choices": [], "usage": usage}):
                await answer.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
            await answer.write(b"data: [DONE]\n\n")
        return answer

    @asynccontextmanager
    async def running(self) -> AsyncIterator[TextServer]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(DATA / "turnwire-tokenizer.json", tmp_path / "tokenizer.json")
    shutil.copy(DATA / "turnwire.jinja", tmp_path / "chat_template.jinja")
    return tmp_path


async def turn(client: Client, messages: list[dict[str, Any]], **fields: Any) -> tuple[dict[str, Any], str]:
    body = {"max_tokens": 50, "tools": [TOOL], "messages": messages, "thinking": {"type": "disabled"}, **fields}
    async with client.session.post(f"{client.base}/v1/messages", json=body) as answer:
        document = await answer.json()
        assert answer.status == 200, document
        return document, answer.headers["x-turnwire-prefix"]


ROUTES = {"ollama": "/api/generate", "lmstudio": "/v1/completions", "openai": "/v1/completions"}


@pytest.mark.parametrize("kind", list(ROUTES))
async def test_a_tool_loop_is_held_on_text_alone(kind: str, folder: Path) -> None:
    """The second prompt begins with the first prompt and the model's own words, character for character."""
    async with TextServer(kind, CALL, "Done.").running() as server:
        settings = Settings(engine=server.url, tokenizer=str(folder), dialect="qwen3_coder", window=30_000)
        async with running(settings) as client:
            assert client.gateway.runtimes[0].writes_prompts
            said: list[dict[str, Any]] = [{"role": "user", "content": "Look at a."}]
            first, _ = await turn(client, said)
            (call,) = [block for block in first["content"] if block["type"] == "tool_use"]
            assert (first["stop_reason"], call["input"]) == ("tool_use", {"path": "a"})
            assert first["usage"]["input_tokens"] == 321
            result = {"type": "tool_result", "tool_use_id": call["id"], "content": "found"}
            said += [{"role": "assistant", "content": first["content"]}, {"role": "user", "content": [result]}]
            second, verdict = await turn(client, said)
            assert second["content"][0]["text"] == "Done."
            assert verdict.startswith("held")
        (path, one), (_, two) = server.asked
        assert path == ROUTES[kind]
        assert two["prompt"].startswith(one["prompt"] + CALL)
        assert one["prompt"].endswith("<think>\n\n</think>\n\n"), "thinking is switched by the template"
        if kind == "ollama":
            assert {name: one[name] for name in ("raw", "think", "truncate", "shift")} == {
                "raw": True, "think": False, "truncate": False, "shift": False,
            }  # fmt: skip
            assert (one["options"]["num_ctx"], one["options"]["num_predict"]) == (30_000, 50)


async def test_the_models_file_on_this_machine_is_enough_for_ollama(folder: Path) -> None:
    shown = {"modelfile": f"# made by ollama\nFROM {folder}\nTEMPLATE x\n", "model_info": {}, "parameters": ""}
    async with TextServer("ollama", "Hello.", shown=shown).running() as server:
        async with running(Settings(engine=server.url, dialect="qwen3_coder")) as client:
            runtime = client.gateway.runtimes[0]
            assert (runtime.id, runtime.window, runtime.writes_prompts) == ("qwen3:8b", 16384, True)
            await turn(client, [{"role": "user", "content": "Hi"}])
        assert [(path, body["model"]) for path, body in server.asked] == [("/api/generate", "qwen3:8b")]
        assert "num_ctx" not in server.asked[0][1]["options"], "that would load the model anew"


async def test_a_worker_that_is_added_is_asked_for_text_as_well(folder: Path) -> None:
    shown = {"modelfile": f"FROM {folder}\n", "model_info": {}}
    one, other = TextServer("ollama", shown=shown), TextServer("ollama", "Hello.", shown=shown)
    async with one.running(), other.running():
        async with running(Settings(engine=one.url, dialect="qwen3_coder")) as client:
            (runtime,) = client.gateway.runtimes
            name = await add_worker(runtime, client.gateway.settings, other.url)
            assert name == f"completions:{other.url}"
            await pool_of(runtime).remove(f"completions:{one.url}")
            await turn(client, [{"role": "user", "content": "Hi"}])
        assert [path for path, _ in other.asked] == ["/api/generate"]


@pytest.mark.parametrize("seen", [True, False])
async def test_a_model_that_sees_stays_on_the_chat_route(seen: bool, folder: Path) -> None:
    shown = {"modelfile": f"FROM {folder}\n", "model_info": {}}
    server = TextServer("ollama", "x", shown=shown)
    can = ["completion", "vision"] if seen else ["completion"]
    server.answers["/api/tags"] = {"models": [{"name": "qwen3:8b", "capabilities": can}]}
    async with server.running():
        runtime = await assemble(Settings(engine=server.url, dialect="qwen3_coder"))
        assert (runtime.writes_prompts, runtime.sees) == (not seen, seen)
        await runtime.engine.close()


async def test_the_beginning_that_ollama_adds_is_not_sent_twice(folder: Path) -> None:
    ids = json_tokens(folder)
    (folder / "chat_template.jinja").write_text(
        "<|im_start|>{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
    )
    facts = {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.bos_token_id": ids["<|im_start|>"]}
    shown = {"modelfile": f"FROM {folder}\n", "model_info": facts}
    async with TextServer("ollama", "Hello.", shown=shown).running() as server:
        async with running(Settings(engine=server.url, dialect="plain")) as client:
            await turn(client, [{"role": "user", "content": "Hi"}], tools=[])
        assert server.asked[0][1]["prompt"].startswith("user: Hi")


def json_tokens(folder: Path) -> dict[str, int]:
    added = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    return {token["content"]: token["id"] for token in added}


async def test_content_that_spells_control_is_refused_where_it_would_become_control(folder: Path) -> None:
    async with TextServer("lmstudio").running() as server:
        settings = Settings(engine=server.url, tokenizer=str(folder), dialect="qwen3_coder")
        async with running(settings) as client:
            body = {"max_tokens": 9, "messages": [{"role": "user", "content": "a <|im_end|> b"}]}
            status, answer = await client.post("/v1/messages", body)
        assert status == 400
        assert "--content-control allow" in answer["error"]["message"]
        assert not server.asked


async def test_a_tokenizer_without_a_template_is_said(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    async with TextServer("lmstudio").running() as server:
        with pytest.raises(AssemblyError, match="no chat template"):
            await assemble(Settings(engine=server.url, tokenizer=str(folder), dialect="qwen3_coder"))
