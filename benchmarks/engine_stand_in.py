"""A process that speaks vLLM's completions wire, for benchmarks: it says a text that the prompt determines, from
wherever the prompt leaves off, so that any gap or repeat in a client's stream can be seen.

    python benchmarks/engine_stand_in.py PORT [--delay-ms 2] [--tokens 120] [--script FILE] [--host 127.0.0.1]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re

import uvloop
from aiohttp import web

from turnwire.prompts.tokenizers.load import load_tokenizer

NONCE = re.compile(r"nonce-([0-9a-z]+)")
TOKENIZER = load_tokenizer(None)
END = TOKENIZER.special_tokens["<|im_end|>"]


def story(nonce: str, tokens: int) -> str:
    """The text that belongs to a nonce."""
    words = " ".join(f"{nonce}:{number}" for number in range(tokens // 4))
    return f"thinking about {nonce}\n</think>\n\n{words} the end of {nonce}"


class Engine:
    """Counts what it is asked, so that aborts and leaks show."""

    def __init__(self, delay_ms: float, tokens: int, script: str | None) -> None:
        self.delay = delay_ms / 1000
        self.tokens = tokens
        self.script = script
        self.running = self.started = self.aborted = self.finished = 0

    async def complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        prompt: list[int] = body["prompt"]
        if not body.get("stream"):
            usage = {"prompt_tokens": len(prompt), "completion_tokens": 1, "total_tokens": len(prompt) + 1}
            choice = {"index": 0, "text": "", "token_ids": [0], "finish_reason": "length"}
            return web.json_response({"id": "x", "choices": [choice], "usage": usage})
        text = self.script
        if text is None:
            found = NONCE.findall(TOKENIZER.decode(prompt))
            text = story(found[-1], self.tokens)
        output = TOKENIZER.encode(text)
        done = next((n for n in range(min(len(output), len(prompt)), 0, -1) if prompt[-n:] == output[:n]), 0)
        answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
        self.running += 1
        self.started += 1
        try:
            await answer.prepare(request)
            detokenizer = TOKENIZER.detokenizer()
            detokenizer.feed(output[:done])
            for token in output[done:]:
                if self.delay:
                    await asyncio.sleep(self.delay)
                choice = {"index": 0, "text": detokenizer.feed([token]), "token_ids": [token], "finish_reason": None}
                chunk = {"id": "x", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]}
                await answer.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
            count = len(output) - done + 1
            usage = {"prompt_tokens": len(prompt), "completion_tokens": count, "total_tokens": len(prompt) + count}
            last = {"index": 0, "text": "", "token_ids": [END], "finish_reason": "stop"}
            end = {"id": "x", "choices": [last]}
            await answer.write(b"data: " + json.dumps(end).encode() + b"\n\n")
            await answer.write(b"data: " + json.dumps({"id": "x", "choices": [], "usage": usage}).encode() + b"\n\n")
            await answer.write(b"data: [DONE]\n\n")
            self.finished += 1
        except (ConnectionError, asyncio.CancelledError):
            self.aborted += 1
            raise
        finally:
            self.running -= 1
        return answer

    async def statistics(self, request: web.Request) -> web.Response:
        names = ("running", "started", "aborted", "finished")
        return web.json_response({name: getattr(self, name) for name in names})


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("port", type=int)
    arguments.add_argument("--delay-ms", type=float, default=2)
    arguments.add_argument("--tokens", type=int, default=120)
    arguments.add_argument("--script", help="a file whose text is said to every prompt")
    arguments.add_argument("--host", default="127.0.0.1")
    options = arguments.parse_args()
    script = None
    if options.script:
        with open(options.script, encoding="utf-8") as file:
            script = file.read()
    engine = Engine(options.delay_ms, options.tokens, script)
    models = {"object": "list", "data": [{"id": "stand-in", "max_model_len": 131072}]}

    async def ok(request: web.Request) -> web.Response:
        return web.Response()

    async def version(request: web.Request) -> web.Response:
        return web.json_response({"version": "0.32.0"})

    async def listed(request: web.Request) -> web.Response:
        return web.json_response(models)

    app = web.Application(client_max_size=1 << 28, handler_args={"handler_cancellation": True})
    app.add_routes(
        [
            web.post("/v1/completions", engine.complete),
            web.get("/v1/models", listed),
            web.get("/version", version),
            web.get("/health", ok),
            web.get("/statistics", engine.statistics),
        ]
    )
    uvloop.install()
    web.run_app(app, host=options.host, port=options.port, print=None, handler_cancellation=True)


if __name__ == "__main__":
    main()
