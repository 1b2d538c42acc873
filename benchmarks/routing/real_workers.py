"""Real vLLM and SGLang servers as one pool, and turns on them: where each went, what was believed, what was reported.

Promise: beliefs are production's own, from the engines' events; reports are the engines' own counts. Nothing is
modelled but the model, which is tiny and random.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.installers import installer
from turnwire.engines.interface import Completion, EngineError, EventBatch, GenerateRequest, Hints, Route, TokenBatch
from turnwire.engines.pool.pool import PoolLimits, Worker, WorkerPool
from turnwire.engines.pool.router import Router
from turnwire.engines.pool.routing.policy import RoutingPolicy
from turnwire.engines.sglang import SGLangEngine
from turnwire.engines.vllm import VLLMEngine
from turnwire.prompts.prompt import Tokenizer
from turnwire.prompts.tokenizers.load import load_tokenizer
from turnwire.turns import Conversation, Sampling

START_SECONDS = 420


@contextmanager
def servers(folder: Path, vllm: int, blocks: int, *, sglang: bool) -> Iterator[list[Any]]:
    """So many vLLM servers, and SGLang; each publishes KV events."""
    tools = installer("engines")
    os.environ["VLLM_SERVER_DEV_MODE"] = "1"
    found: list[Any] = []
    for number in range(vllm):
        told = {"enable_kv_cache_events": True, "publisher": "zmq", "topic": "kv"}
        told |= {"endpoint": f"tcp://*:{tools._free_port()}", "replay_endpoint": f"tcp://*:{tools._free_port()}"}
        flags = ("--enable-prompt-tokens-details", "--num-gpu-blocks-override", str(blocks))
        found.append(tools.VLLMServer(folder / f"vllm-{number}", *flags, "--kv-events-config", json.dumps(told)))
    if sglang:
        told = {"publisher": "zmq", "endpoint": f"tcp://*:{tools._free_port()}", "topic": "kv"}
        flags = ("--incremental-streaming-output", "--page-size", "16", "--max-total-tokens", "8192")
        found.append(tools.SGLangServer(folder / "sglang", *flags, "--kv-events-config", json.dumps(told)))
    try:
        start(found)
        yield found
    finally:
        del os.environ["VLLM_SERVER_DEV_MODE"]
        for server in found:
            server.kill()


def start(found: Sequence[Any]) -> None:
    """Start servers, all at once, and wait for each."""
    began = time.monotonic()
    for server in found:
        server.launch()
    for server in found:
        while not server._healthy():
            if server._process.poll() is not None or time.monotonic() - began > START_SECONDS:
                raise RuntimeError(f"{server.name} did not start: {server._log.read_text()[-3000:]}")
            time.sleep(0.5)
        print(f"{server.name} at {server.url} after {time.monotonic() - began:.0f} s", flush=True)


def pool_of(running: Sequence[Any], policy: RoutingPolicy) -> WorkerPool:
    """The servers under a policy."""
    tokenizer: Tokenizer = load_tokenizer(running[0].installation.tokenizer)
    workers = [
        Worker(
            SGLangEngine(one.url, tokenizer) if one.name == "sglang" else VLLMEngine(one.url), f"{one.name}:{one.url}"
        )
        for one in running
    ]
    return WorkerPool(workers, tokenizer, PoolLimits(), Router(policy))


class Told(msgspec.Struct):
    """A turn: where it went, what was believed of that worker, what it reported, seconds to its first token."""

    route: Route
    reported: int
    first: float


class _Receiver:
    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.began = loop.time()
        self.first: float | None = None
        self.route: Route | None = None
        self.over: asyncio.Future[Completion] = loop.create_future()

    def routed(self, route: Route) -> None:
        self.route = route

    def tokens(self, batch: TokenBatch) -> None:
        if self.first is None:
            self.first = asyncio.get_running_loop().time() - self.began

    def events(self, batch: EventBatch) -> None: ...

    def done(self, completion: Completion) -> None:
        self.over.set_result(completion)

    def failed(self, error: EngineError) -> None:
        self.over.set_exception(error)


async def take_turn(pool: WorkerPool, session: str, prompt: Sequence[int], output: int = 2) -> Told:
    """One turn, to its end."""
    told = _Receiver()
    request = GenerateRequest(
        prompt_ids=list(prompt),
        sampling=Sampling(max_tokens=output, temperature=0.0),
        hints=Hints(request_id=f"{session}-{time.monotonic_ns()}", session=session),
        conversation=Conversation(model="tiny", messages=()),
    )
    pool.submit(request, told)
    completion = await asyncio.wait_for(told.over, 300)
    assert told.route is not None
    return Told(told.route, completion.cached_tokens, told.first if told.first is not None else 0.0)
