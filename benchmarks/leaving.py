"""How long an engine works on for a client that has left: from the client's close to the end of the generation.

    python benchmarks/leaving.py [--visits 300]

Real sockets, all three APIs, streamed and whole, in prefill and in mid-stream.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import uvicorn
import uvloop

from turnwire.engines.bridge import pull, push
from turnwire.engines.interface import Engine, GenerateRequest, Generation, Receiver, Step
from turnwire.engines.pool.pool import WorkerPool
from turnwire.gateway.gateway import Gateway
from turnwire.gateway.server import server_config
from turnwire.gateway.settings import Settings
from turnwire.gateway.setup.assembly import assemble

MESSAGES = [{"role": "user", "content": "Hi."}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/messages": {"model": "m", "max_tokens": 1000, "messages": MESSAGES},
    "/v1/chat/completions": {"model": "m", "messages": MESSAGES},
    "/v1/responses": {"model": "m", "input": "Hi.", "store": False},
}
LINES = {
    "prefill": {"text": "never said", "first_delay_ms": 600_000},
    "stream": {"text": "word " * 20_000, "delay_ms": 20},
}


class Watched:
    """An engine that says when a generation begins to speak or wait, and when it is over."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.begun = asyncio.Event()
        self.over = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def submit(self, request: GenerateRequest, receiver: Receiver) -> Generation:
        return push(self._steps(request), receiver)

    async def _steps(self, request: GenerateRequest) -> AsyncGenerator[Step, None]:
        steps = pull(self._engine, request)
        self.begun.set()
        try:
            async for step in steps:
                yield step
        finally:
            await steps.aclose()
            self.over.set()


async def measure(stage: str, visits: int) -> list[float]:
    """Seconds from leaving to the engine's end, one for each visit."""
    with tempfile.TemporaryDirectory() as name:
        script = Path(name) / "script.jsonl"
        script.write_text(json.dumps(LINES[stage]) + "\n")
        settings = Settings(engine=f"scripted:{script}", model="m", dialect="qwen3_coder")
        runtime = await assemble(settings)
    pool = runtime.engine
    assert isinstance(pool, WorkerPool)
    watched = Watched(pool.workers[0].engine)
    pool.workers[0].engine = watched  # type: ignore[assignment]
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(server_config(Gateway(settings, [runtime])))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    taken = []
    for number in range(visits):
        path = list(BODIES)[number % 3]
        body = json.dumps(BODIES[path] | {"stream": number % 2 == 0}).encode()
        watched.begun.clear()
        watched.over.clear()
        _, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        await watched.begun.wait()
        await asyncio.sleep(0.03)
        left = time.perf_counter()
        writer.close()
        await watched.over.wait()
        taken.append(time.perf_counter() - left)
    assert pool.statistics.aborts == visits
    server.should_exit = True
    await task
    return taken


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--visits", type=int, default=300)
    options = arguments.parse_args()
    for stage in LINES:
        taken = sorted(uvloop.run(measure(stage, options.visits)))
        print(
            f"{stage:8} {len(taken)} visits: median {statistics.median(taken) * 1000:.2f} ms, "
            f"99 % {taken[int(len(taken) * 0.99)] * 1000:.2f} ms, most {taken[-1] * 1000:.2f} ms"
        )


if __name__ == "__main__":
    main()
