"""Servers reached otherwise than their makers had in mind: under a path, without some routes, by another tokenizer."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from turnwire.engines.http.engine import HTTPEngine
from turnwire.engines.llamacpp import LlamaCppEngine
from turnwire.engines.scripted.script import Line
from turnwire.engines.sglang import SGLangEngine
from turnwire.engines.vllm import VLLMEngine

from .conformance import collect, request, text_of
from .servers import FakeLlamaCpp, FakeServer, FakeSGLang, FakeVLLM
from .toytokenizer import ToyTokenizer

LINE = Line(text="one two three", burst=1)
TOKENIZER = ToyTokenizer()


class Ingress:
    """Passes requests on from under a path, all but those to `hidden` routes."""

    def __init__(self, server: FakeServer, hidden: tuple[str, ...] = ()) -> None:
        inner = web.Application()
        server.routes(inner.router)

        @web.middleware
        async def hide(asked: web.Request, handler: Any) -> web.StreamResponse:
            if asked.path.removeprefix("/models/one") in hidden:
                raise web.HTTPForbidden(text="not here")
            answer: web.StreamResponse = await handler(asked)
            return answer

        self._app = web.Application(middlewares=[hide])
        self._app.add_subapp("/models/one", inner)
        self._runner = web.AppRunner(self._app)

    async def __aenter__(self) -> str:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}/models/one"

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()


@pytest.mark.parametrize("kind", ["vllm", "sglang", "llamacpp"])
async def test_a_server_under_a_path(kind: str) -> None:
    servers = {"vllm": FakeVLLM, "sglang": FakeSGLang, "llamacpp": FakeLlamaCpp}
    async with Ingress(servers[kind](LINE, ToyTokenizer())) as url:
        engines: dict[str, HTTPEngine] = {
            "vllm": VLLMEngine(url, tokenizer=TOKENIZER),
            "sglang": SGLangEngine(url, TOKENIZER),
            "llamacpp": LlamaCppEngine(url, TOKENIZER),
        }
        engine = engines[kind]
        info = await engine.start()
        assert (info.model, info.warnings) == ("toy", ())
        assert text_of((await collect(engine, request()))[0]) == "one two three"
        assert await engine.health()
        await engine.close()


async def test_an_ingress_that_hides_routes_costs_a_warning_and_nothing_else() -> None:
    async with Ingress(FakeVLLM(LINE, ToyTokenizer()), ("/metrics", "/version", "/detokenize")) as url:
        engine = VLLMEngine(url, tokenizer=TOKENIZER)
        (warning,) = (await engine.start()).warnings
        assert "/metrics" in warning
        assert text_of((await collect(engine, request()))[0]) == "one two three"
        await engine.close()


@pytest.mark.parametrize("kind", ["vllm", "llamacpp"])
@pytest.mark.parametrize("same", [True, False])
async def test_another_models_tokenizer_is_warned_of(kind: str, same: bool) -> None:
    class Spells(FakeVLLM if kind == "vllm" else FakeLlamaCpp):  # type: ignore[misc]
        def routes(self, router: web.UrlDispatcher) -> None:
            super().routes(router)
            router.add_post("/detokenize", self.spell)

        async def spell(self, asked: web.Request) -> web.Response:
            (token,) = (await asked.json())["tokens"]
            text = TOKENIZER.decode([token if same else (token + 1) % 128])
            return web.json_response({"prompt" if kind == "vllm" else "content": text})

    async with Ingress(Spells(LINE, ToyTokenizer())) as url:
        engine: HTTPEngine = VLLMEngine(url, tokenizer=TOKENIZER) if kind == "vllm" else LlamaCppEngine(url, TOKENIZER)
        warnings = (await engine.start()).warnings
        assert [("--tokenizer" in each) for each in warnings] == ([] if same else [True])
        await engine.close()
