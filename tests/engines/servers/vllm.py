"""A server with vLLM's wire."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from turnwire.engines.scripted.script import Performance
from turnwire.turns import Sampling

from .server import FakeServer, always


class FakeVLLM(FakeServer):
    kind = "vllm"
    version = "0.32.0"
    tells_cached = True
    priorities = True
    caching = True
    native = False
    kv_event_sources: dict[str, Any] | None = None

    def routes(self, router: web.UrlDispatcher) -> None:
        router.add_post("/v1/completions", self.generate)
        router.add_post("/inference/v1/generate", self.generate_native)
        router.add_get("/health", always(dict))
        router.add_get("/version", always(lambda: {"version": self.version}))
        router.add_get("/metrics", self.metrics)
        if self.kv_event_sources is not None:
            router.add_get("/kv_event_sources", always(lambda: self.kv_event_sources))
        router.add_get(
            "/v1/models",
            always(lambda: {"object": "list", "data": [{"id": "toy", "max_model_len": self.window}]}),
        )

    async def generate_native(self, request: web.Request) -> web.StreamResponse:
        if not self.native:
            return self.refusal(403, "This endpoint needs --enable-scale-out.", "Forbidden")
        return await self.generate(request)

    async def metrics(self, _: web.Request) -> web.Response:
        return web.Response(
            text=f'vllm:cache_config_info{{block_size="16",enable_prefix_caching="{self.caching}"}} 1.0\n'
        )

    def asked(self, body: dict[str, Any]) -> tuple[list[int], Sampling]:
        options = body.get("sampling_params", body)
        limits = Sampling(max_tokens=options.get("max_tokens"), stop=tuple(options.get("stop") or ()))
        return body["token_ids"] if "token_ids" in body else body["prompt"], limits

    def whole(self, body: dict[str, Any], prompt: list[int]) -> web.Response:
        if "token_ids" in body:
            choice = {"index": 0, "text": "x", "token_ids": [120], "finish_reason": "length"}
            return web.json_response({"choices": [choice], "output_mode": "text"})
        if body.get("priority") and not self.priorities:
            return self.refusal(400, "Got priority 1 but Priority scheduling is not enabled.", "BadRequestError")
        usage: dict[str, Any] = {"prompt_tokens": len(prompt), "completion_tokens": 1}
        if self.tells_cached:
            usage["prompt_tokens_details"] = {"cached_tokens": 0}
        return web.json_response({"choices": [{"index": 0, "text": "x", "finish_reason": "length"}], "usage": usage})

    async def events(
        self, body: dict[str, Any], performance: Performance, prompt: list[int], cached: int
    ) -> AsyncIterator[dict[str, Any] | str]:
        assert body.get("return_token_ids") is True or body["output_mode"] == "text"
        assert body.get("sampling_params", body)["skip_special_tokens"] is False
        first = "prompt" in body
        for batch, final in self.batches(performance):
            choice: dict[str, Any] = {
                "index": 0,
                "text": batch.text,
                "logprobs": None,
                "finish_reason": None,
                "stop_reason": None,
                "token_ids": list(batch.ids),
            }
            if first:
                choice["prompt_token_ids"], first = prompt, False
            if body.get("logprobs") is not None:
                texts = [self.tokenizer.decode([token]) for token in batch.ids]
                choice["logprobs"] = {
                    "text_offset": [0] * len(texts),
                    "tokens": texts,
                    "token_logprobs": [-0.5] * len(texts),
                    "top_logprobs": [{text: -0.5, "rival": -1.5} for text in texts],
                }
            if final:
                stop = performance.reason == "stop_sequence"
                choice["finish_reason"] = "stop" if stop else performance.reason
                choice["stop_reason"] = performance.stop_sequence
            yield {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "toy", "choices": [choice]}
        if performance.reason is not None:
            usage: dict[str, Any] = {
                "prompt_tokens": len(prompt),
                "completion_tokens": self.sampled(performance),
                "total_tokens": 0,
            }
            if self.tells_cached:
                usage["prompt_tokens_details"] = {"cached_tokens": cached}
            yield {
                "id": "cmpl-1",
                "object": "text_completion",
                "created": 1,
                "model": "toy",
                "choices": [],
                "usage": usage,
            }
