"""A server with SGLang's wire."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from turnwire.engines.scripted.script import Performance
from turnwire.turns import Sampling

from .server import FakeServer, always


class FakeSGLang(FakeServer):
    kind = "sglang"
    incremental = True
    low_first = False
    tokenizer_path = "toy"
    known_ids: int | None = None
    answers_detokenize = True
    kv_events_config: str | None = None

    def routes(self, router: web.UrlDispatcher) -> None:
        router.add_post("/generate", self.generate)
        router.add_post("/abort_request", self.abort)
        router.add_post("/detokenize", self.detokenize)
        router.add_get("/health", always(dict))
        router.add_get("/v1/models", always(lambda: {"data": [{"id": "toy", "max_model_len": self.window}]}))
        router.add_get("/get_model_info", always(self.model_info))
        router.add_get(
            "/server_info",
            always(
                lambda: {
                    "version": "0.5.23",
                    "enable_priority_scheduling": True,
                    "schedule_low_priority_values_first": self.low_first,
                    "disable_radix_cache": False,
                    "incremental_streaming_output": self.incremental,
                    "kv_events_config": self.kv_events_config,
                    "model_path": "toy",
                }
            ),
        )

    def model_info(self) -> dict[str, Any]:
        return {"model_path": "toy", "tokenizer_path": self.tokenizer_path, "is_generation": True}

    async def abort(self, request: web.Request) -> web.Response:
        self.notices.append(await request.json())
        return web.Response()

    async def detokenize(self, request: web.Request) -> web.Response:
        if not self.answers_detokenize:
            raise web.HTTPNotFound
        known = self.tokenizer.vocab_size if self.known_ids is None else self.known_ids
        tokens = [token for (token,) in (await request.json())["tokens"]]
        texts = [self.tokenizer.decode([token]) if token < known else "" for token in tokens]
        return web.json_response({"text": texts})

    def asked(self, body: dict[str, Any]) -> tuple[list[int], Sampling]:
        params = body["sampling_params"]
        return body["input_ids"], Sampling(
            max_tokens=params.get("max_new_tokens"), stop=tuple(params.get("stop") or ())
        )

    def refusal(self, status: int, message: str, kind: str) -> web.Response:
        return web.json_response({"error": {"message": message}}, status=status)

    def stream_error(self, status: int, message: str) -> dict[str, Any]:
        reason = {"type": "abort", "message": message, "status_code": status, "err_type": None}
        return {"text": "", "output_ids": [], "meta_info": {"id": "1", "finish_reason": reason, "prompt_tokens": 1}}

    async def events(
        self, body: dict[str, Any], performance: Performance, prompt: list[int], cached: int
    ) -> AsyncIterator[dict[str, Any] | str]:
        text, ids = "", list[int]()
        for batch, final in self.batches(performance):
            text, ids = text + batch.text, ids + list(batch.ids)
            reason: dict[str, Any] | None = None
            if final and performance.reason == "length":
                reason = {"type": "length", "length": len(ids)}
            elif final:
                reason = {"type": "stop", "matched": performance.stop_sequence or ids[-1]}
            told = batch.ids if self.incremental else ids
            meta = {
                "id": body["rid"],
                "finish_reason": reason,
                "prompt_tokens": len(prompt),
                "weight_version": "default",
                "completion_tokens": len(ids),
                "cached_tokens": cached,
            }
            if body.get("return_logprob"):
                meta["output_token_logprobs"] = [(-0.5, token, self.tokenizer.decode([token])) for token in told]
                meta["output_top_logprobs"] = [[(-0.5, token, "top")] for token in told]
            yield {"text": batch.text if self.incremental else text, "output_ids": list(told), "meta_info": meta}
