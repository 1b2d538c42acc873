"""Servers with the wires of OpenAI's APIs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from turnwire.engines.scripted.script import Performance
from turnwire.turns import Sampling

from .server import FakeServer, always


class FakeChat(FakeServer):
    """A Chat Completions server that says the script's text as `content`, or `deltas` where they are given."""

    kind = "vllm"
    deltas: list[dict[str, Any]] | None = None
    finish = "stop"

    def routes(self, router: web.UrlDispatcher) -> None:
        router.add_post("/v1/chat/completions", self.generate)
        router.add_post("/v1/embeddings", self.embeddings)
        router.add_get("/v1/models", always(lambda: {"data": [{"id": "toy", "max_model_len": self.window}]}))

    async def embeddings(self, request: web.Request) -> web.Response:
        body = await request.json()
        data = [{"index": at, "embedding": [float(len(text)), 1.0]} for at, text in enumerate(body["input"])]
        return web.json_response({"data": data[::-1], "usage": {"prompt_tokens": 7 * len(data), "total_tokens": 0}})

    def asked(self, body: dict[str, Any]) -> tuple[list[int], Sampling]:
        words = "".join(str(message["content"]) for message in body["messages"])
        limit = body.get("max_tokens")
        return list(words.encode()) * 40, Sampling(max_tokens=limit, stop=tuple(body.get("stop") or ()))

    async def events(
        self, body: dict[str, Any], performance: Performance, prompt: list[int], cached: int
    ) -> AsyncIterator[dict[str, Any] | str]:
        yield {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
        deltas = self.deltas
        if deltas is None:
            deltas = [{"content": batch.text} for batch in performance.batches]
        for delta in deltas:
            choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": None}
            if body.get("logprobs") and "content" in delta:
                rival = {"token": delta["content"], "logprob": -0.5, "bytes": None}
                choice["logprobs"] = {"content": [{**rival, "top_logprobs": [rival]}]}
            yield {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice]}
        if performance.reason is not None:
            reason = "length" if performance.reason == "length" else self.finish
            choice = {"index": 0, "delta": {}, "finish_reason": reason, "stop_reason": performance.stop_sequence}
            yield {"id": "chatcmpl-1", "choices": [choice]}
            usage = {
                "prompt_tokens": 80,
                "completion_tokens": len(performance.ids),
                "prompt_tokens_details": {"cached_tokens": 64 if cached else 0},
                "completion_tokens_details": {"reasoning_tokens": 7},
            }
            yield {"id": "chatcmpl-1", "choices": [], "usage": usage}


class FakeResponses(FakeChat):
    """A Responses server that says the script's text as one message item, or `items` where they are given."""

    items: list[dict[str, Any]] | None = None

    def routes(self, router: web.UrlDispatcher) -> None:
        router.add_post("/v1/responses", self.generate)
        router.add_get("/v1/models", always(lambda: {"data": [{"id": "toy", "max_model_len": self.window}]}))

    def asked(self, body: dict[str, Any]) -> tuple[list[int], Sampling]:
        return list(json.dumps(body["input"]).encode()) * 4, Sampling(max_tokens=body.get("max_output_tokens"))

    def stream_error(self, status: int, message: str) -> dict[str, Any]:
        error = {"code": "server_error", "message": message}
        return {"type": "response.failed", "response": {"status": "failed", "error": error}}

    async def events(
        self, body: dict[str, Any], performance: Performance, prompt: list[int], cached: int
    ) -> AsyncIterator[dict[str, Any] | str]:
        yield {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}}
        for event in self.items or ():
            yield event
        if self.items is None:
            yield {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "id": "m"}}
            for batch in performance.batches:
                yield {"type": "response.output_text.delta", "output_index": 0, "delta": batch.text}
            if performance.reason is not None:
                yield {"type": "response.output_item.done", "output_index": 0, "item": {"type": "message", "id": "m"}}
        if performance.reason is not None:
            usage = {
                "input_tokens": 80,
                "output_tokens": len(performance.ids),
                "input_tokens_details": {"cached_tokens": 64 if cached else 0},
                "output_tokens_details": {"reasoning_tokens": 7},
            }
            response: dict[str, Any] = {"id": "resp_1", "status": "completed", "usage": usage}
            if performance.reason == "length":
                response |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
            yield {"type": f"response.{response['status']}", "response": response}
