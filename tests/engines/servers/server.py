"""What all scripted engine servers have in common: the routes' start and stop, a script line played as a stream."""

from __future__ import annotations

import asyncio
import json
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

from turnwire.engines.interface import TokenBatch
from turnwire.engines.scripted.prefix_cache_model import PrefixCache
from turnwire.engines.scripted.script import Line, Performance, Script
from turnwire.turns import Sampling

from ..toytokenizer import ToyTokenizer

EOS = "<|im_end|>"

OVERFLOW = {
    "vllm": "This model's maximum context length is 64 tokens. However, your request has 99 input tokens.",
    "sglang": "The input (99 tokens) is longer than the model's context length (64 tokens).",
    "trtllm": "The sum of prompt length (99.0), query length (0) should not exceed max_num_tokens (64)",
    "llamacpp": "request (99 tokens) exceeds the available context size (64 tokens), try increasing it",
}
REFUSALS: dict[str, tuple[int, str]] = {
    "overloaded": (503, "The request queue is full."),
    "invalid_request": (400, "temperature must be non-negative"),
    "internal": (500, "EngineCore encountered an issue."),
}


class FakeServer:
    """Plays `line` to every generation. `requests` are the JSON bodies received; `aborts` counts streams whose client
    left; `header_delay` holds the response's head back."""

    kind = ""

    def __init__(self, line: Line, tokenizer: ToyTokenizer, *, window: int | None = 1000) -> None:
        self.line = line
        self.tokenizer = tokenizer
        self.window = window
        self.requests: list[dict[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self.aborts = 0
        self.aborted = asyncio.Event()
        self.entered = asyncio.Event()
        self.notices: list[dict[str, Any]] = []
        self.header_delay = 0.0
        self.glue = False
        self.cache = PrefixCache()
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self, port: int = 0) -> str:
        app = web.Application(client_max_size=1 << 26)
        self.routes(app.router)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self.url

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    # ------------------------------------------------------------------------------------- what differs

    @abstractmethod
    def routes(self, router: web.UrlDispatcher) -> None: ...

    @abstractmethod
    def asked(self, body: dict[str, Any]) -> tuple[list[int], Sampling]:
        """The prompt and the limits in a request body."""

    @abstractmethod
    def events(
        self, body: dict[str, Any], performance: Performance, prompt: list[int], cached: int
    ) -> AsyncIterator[dict[str, Any] | str]:
        """The events of a stream; a string is sent as the payload itself."""

    def refusal(self, status: int, message: str, kind: str) -> web.Response:
        return web.json_response({"error": {"message": message, "type": kind, "code": status}}, status=status)

    def stream_error(self, status: int, message: str) -> dict[str, Any]:
        return {"error": {"message": message, "type": "InternalServerError", "code": status}}

    # ------------------------------------------------------------------------------------ what is common

    async def generate(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        self.headers.append(request.headers)
        prompt, sampling = self.asked(body)
        line = self.line
        if not body.get("stream"):
            return self.whole(body, prompt)
        self.entered.set()
        try:
            if self.header_delay:
                await asyncio.sleep(self.header_delay)
            if line.finish == "error" and line.after == 0:
                if line.error == "context_overflow":
                    return self.refusal(400, OVERFLOW[self.kind], "BadRequestError")
                status, message = REFUSALS[line.error]
                return self.refusal(status, message, line.error)
            if line.finish == "disconnect" and line.after == 0:
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            return await self._stream(request, body, prompt, sampling)
        except (asyncio.CancelledError, ConnectionError):
            self.aborts += 1
            self.aborted.set()
            raise

    async def _stream(
        self, request: web.Request, body: dict[str, Any], prompt: list[int], sampling: Sampling
    ) -> web.StreamResponse:
        line = self.line
        performance = Script([line], self.tokenizer).perform(line, sampling)
        sequence = self.cache.sequence(prompt)
        cached = self.cache.match(sequence)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        if line.first_delay_ms:
            await asyncio.sleep(line.first_delay_ms / 1000)
        self.cache.store(sequence)
        glued = b""
        async for event in self.events(body, performance, prompt, cached):
            data = b"data: " + (event if isinstance(event, str) else json.dumps(event)).encode() + b"\n\n"
            if self.glue:
                glued += data
                continue
            await response.write(data)
            if line.delay_ms:
                await asyncio.sleep(line.delay_ms / 1000)
        if glued:
            await response.write(glued)
        if performance.reason is None:
            if line.finish == "hang":
                await asyncio.sleep(3600)
            if line.finish == "disconnect":
                await asyncio.sleep(0.02)
                assert request.transport is not None
                request.transport.abort()
                return response
            status, message = REFUSALS[line.error]
            await response.write(b"data: " + json.dumps(self.stream_error(status, message)).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    def whole(self, body: dict[str, Any], prompt: list[int]) -> web.Response:
        raise web.HTTPBadRequest(text="only streams here")

    def batches(self, performance: Performance) -> list[tuple[TokenBatch, bool]]:
        """The batches with the end token added to the last of a plain stop, each with whether it is the last."""
        batches = list(performance.batches)
        if performance.reason == "stop":
            eos = self.tokenizer.special_tokens[EOS]
            last = batches.pop() if batches else TokenBatch("")
            batches.append(TokenBatch(last.text, (*last.ids, eos)))
        final = performance.reason is not None
        return [(batch, final and number == len(batches)) for number, batch in enumerate(batches, 1)]

    def sampled(self, performance: Performance) -> int:
        return len(performance.ids) + (performance.reason == "stop")


def always(body: Callable[[], dict[str, Any]]) -> Callable[[web.Request], Awaitable[web.Response]]:
    """A route that answers with what `body` gives then."""

    async def answer(_: web.Request) -> web.Response:
        return web.json_response(body())

    return answer
