"""A stand-in for a hosted Chat Completions server: it wants a key, lists its models and keeps what it was asked."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web


class HostedChat:
    """Listens on loopback; `asked` holds the bodies of the turns, `answers` what is said on further paths. `deltas` are
    what the next turns say; after them each says Hello. `usage` are its counts."""

    def __init__(
        self, *models: str, key: str | None = None, status: int = 200, answers: Mapping[str, Any] | None = None
    ) -> None:
        self.answers = answers or {}
        self.models = models
        self.key = key
        self.status = status
        self.asked: list[dict[str, Any]] = []
        self.deltas: list[dict[str, Any]] = []
        self.usage: dict[str, Any] = {
            "prompt_tokens": 777,
            "completion_tokens": 2,
            "prompt_tokens_details": {"cached_tokens": 700},
        }
        self.url = ""

    def _refused(self, request: web.Request) -> web.Response | None:
        if self.key is None or request.headers.get("Authorization") == f"Bearer {self.key}":
            return None
        return web.json_response({"error": {"message": "Missing or wrong API key", "type": "auth"}}, status=401)

    async def _list(self, request: web.Request) -> web.Response:
        if (refused := self._refused(request)) is not None:
            return refused
        if request.path in self.answers:
            said = self.answers[request.path]
            return web.Response(text=said) if isinstance(said, str) else web.json_response(said)
        if request.path != "/v1/models":
            return web.json_response({"detail": "Not Found"}, status=404)
        if self.status != 200:
            return web.json_response({"error": {"message": "no database"}}, status=self.status)
        return web.json_response({"data": [{"id": model, "object": "model"} for model in self.models]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        if (refused := self._refused(request)) is not None:
            return refused
        self.asked.append(await request.json())
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        said = self.deltas.pop(0) if self.deltas else {"content": "Hello."}
        finish = "tool_calls" if "tool_calls" in said else "stop"
        for chunk in (
            {"choices": [{"index": 0, "delta": {"role": "assistant", **said}}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
            {"choices": [], "usage": self.usage},
        ):
            await answer.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        await answer.write(b"data: [DONE]\n\n")
        return answer

    @asynccontextmanager
    async def running(self) -> AsyncIterator[HostedChat]:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_route("*", "/{path:.*}", self._list)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        try:
            yield self
        finally:
            await runner.cleanup()
