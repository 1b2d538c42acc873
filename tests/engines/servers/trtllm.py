"""A server with the wire of trtllm-serve."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from turnwire.engines.scripted.script import Performance
from turnwire.turns import Sampling

from .server import FakeServer, always


class FakeTRTLLM(FakeServer):
    kind = "trtllm"

    def routes(self, router: web.UrlDispatcher) -> None:
        router.add_post("/v1/completions", self.generate)
        router.add_get("/health", always(dict))
        router.add_get("/version", always(lambda: {"version": "1.2.0"}))
        router.add_get("/v1/models", always(lambda: {"data": [{"id": "toy"}]}))

    def asked(self, body: dict[str, Any]) -> tuple[list[int], Sampling]:
        known = {
            "model", "prompt", "max_tokens", "temperature", "top_p", "top_k", "min_p", "presence_penalty", "seed",
            "frequency_penalty", "repetition_penalty", "stop", "stop_token_ids", "include_stop_str_in_output", "stream",
            "stream_options", "detokenize", "add_special_tokens", "logprobs", "logit_bias", "priority",
            "response_format",
        }  # fmt: skip
        unknown = set(body) - known
        if unknown:
            raise web.HTTPBadRequest(text=f"Extra inputs are not permitted: {unknown}")
        return body["prompt"], Sampling(max_tokens=body.get("max_tokens"), stop=tuple(body.get("stop") or ()))

    def refusal(self, status: int, message: str, kind: str) -> web.Response:
        return web.json_response({"object": "error", "message": message, "type": kind, "code": status}, status=status)

    def stream_error(self, status: int, message: str) -> dict[str, Any]:
        return {"object": "error", "message": message, "type": "InternalServerError", "code": status}

    async def events(
        self, body: dict[str, Any], performance: Performance, prompt: list[int], cached: int
    ) -> AsyncIterator[dict[str, Any] | str]:
        assert body["detokenize"] is False
        generated = 0
        for batch, final in self.batches(performance):
            generated += len(batch.ids)
            usage = {
                "prompt_tokens": len(prompt),
                "completion_tokens": generated,
                "total_tokens": 0,
                "prompt_tokens_details": {"cached_tokens": cached},
            }
            choice: dict[str, Any] = {
                "index": 0,
                "text": "",
                "token_ids": list(batch.ids),
                "logprobs": None,
                "finish_reason": None,
                "stop_reason": None,
            }
            if body.get("logprobs"):
                texts = [self.tokenizer.decode([token]) for token in batch.ids]
                choice["logprobs"] = {
                    "text_offset": [],
                    "tokens": texts,
                    "token_logprobs": [-0.5] * len(texts),
                    "top_logprobs": [{text: -0.5} for text in texts],
                }
            if final:
                choice["finish_reason"] = "length" if performance.reason == "length" else "stop"
                choice["stop_reason"] = performance.stop_sequence
            yield {"id": "cmpl-1", "object": "text_completion", "model": "toy", "choices": [choice], "usage": usage}
            if final:
                yield {"id": "cmpl-1", "object": "text_completion", "model": "toy", "choices": [], "usage": usage}
