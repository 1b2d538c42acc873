"""The decoder on vLLM's completions wire, one sequence at a time.

    python -m benchmarks.gpu.engine PORT [--shape 8b] [--tokens 400000]

`POST /script` gives the ids and the text that the next completion says. Other completions say a full stop for each
token, since the ids of random weights mean nothing. `GET /last` says how long the engine took for the first token of
the last completion, and how many prompt tokens its cache held.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time

from aiohttp import web

from benchmarks.gpu.blocks import BLOCK
from benchmarks.gpu.model import SHAPES, Decoder


class Engine:
    """One decoder, one completion at a time."""

    def __init__(self, decoder: Decoder, window: int) -> None:
        self.decoder = decoder
        self.window = window
        self.script: tuple[list[int], str] | None = None
        self.last: dict[str, float] = {}
        self.turn = asyncio.Lock()

    async def complete(self, request: web.Request) -> web.StreamResponse:
        began = time.perf_counter()
        body = await request.json()
        prompt: list[int] = body["prompt"]
        if not prompt or max(prompt) >= self.decoder.shape.vocabulary or len(prompt) >= self.window:
            return web.json_response({"error": {"message": "the prompt does not fit this engine"}}, status=400)
        streamed = bool(body.get("stream"))
        async with self.turn:
            script = None
            if streamed:
                script, self.script = self.script, None
            forced = script[0] if script is not None else None
            count = max(1, int(body.get("max_tokens") or 16))
            output, held = await asyncio.to_thread(self.decoder.complete, prompt, forced, min(count, 64))
        took = (time.perf_counter() - began) * 1000
        usage = {
            "prompt_tokens": len(prompt),
            "completion_tokens": len(output),
            "total_tokens": len(prompt) + len(output),
            "prompt_tokens_details": {"cached_tokens": held},
        }
        reason, text = ("stop", script[1]) if script is not None else ("length", "." * len(output))
        if not streamed:
            choice = {"index": 0, "text": text, "token_ids": output, "finish_reason": reason}
            return web.json_response({"id": "x", "choices": [choice], "usage": usage})
        self.last = {"ms": took, "cached": held, "prompt": len(prompt)}
        answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await answer.prepare(request)
        whole = {"index": 0, "text": text, "token_ids": output, "finish_reason": reason}
        for part in ({"id": "x", "choices": [whole]}, {"id": "x", "choices": [], "usage": usage}):
            await answer.write(b"data: " + json.dumps(part).encode() + b"\n\n")
        await answer.write(b"data: [DONE]\n\n")
        return answer

    async def set_script(self, request: web.Request) -> web.Response:
        given = await request.json()
        self.script = (given["ids"], given["text"])
        return web.Response()

    async def told(self, request: web.Request) -> web.Response:
        return web.json_response(self.last)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("port", type=int)
    arguments.add_argument("--shape", choices=sorted(SHAPES), default="8b")
    arguments.add_argument("--tokens", type=int, default=400_000, help="how many tokens the pages hold")
    options = arguments.parse_args()
    decoder = Decoder(SHAPES[options.shape], options.tokens // BLOCK)
    window = min(131_072, options.tokens)
    engine = Engine(decoder, window)

    async def ok(request: web.Request) -> web.Response:
        return web.Response()

    async def version(request: web.Request) -> web.Response:
        return web.json_response({"version": "0.32.0"})

    async def listed(request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "random-8b", "max_model_len": window}]})

    app = web.Application(client_max_size=1 << 28)
    app.add_routes(
        [
            web.post("/v1/completions", engine.complete),
            web.post("/script", engine.set_script),
            web.get("/last", engine.told),
            web.get("/v1/models", listed),
            web.get("/version", version),
            web.get("/health", ok),
        ]
    )
    web.run_app(app, host="127.0.0.1", port=options.port, print=None)


if __name__ == "__main__":
    main()
