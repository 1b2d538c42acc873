"""Two real vLLM servers with KV events as one pool: what is believed of each, turn by turn, is what it reports."""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from turnwire.engines.interface import Completion, EngineError, EventBatch, GenerateRequest, Hints, Route, TokenBatch
from turnwire.engines.pool.pool import PoolLimits, Worker, WorkerPool
from turnwire.engines.pool.router import Router
from turnwire.engines.pool.routing import TokenCost
from turnwire.engines.vllm import VLLMEngine
from turnwire.prompts.tokenizers.load import load_tokenizer
from turnwire.turns import Conversation, Sampling

from .vllm_server import BLOCK, VLLMServer

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1200)]

BLOCKS = 300


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Any]]:
    folder = tmp_path_factory.mktemp("routing")
    os.environ["VLLM_SERVER_DEV_MODE"] = "1"
    found = []
    for number in range(2):
        told = {"enable_kv_cache_events": True, "publisher": "zmq", "topic": "kv"}
        told |= {"endpoint": f"tcp://*:{_free_port()}", "replay_endpoint": f"tcp://*:{_free_port()}"}
        flags = ("--enable-prompt-tokens-details", "--num-gpu-blocks-override", str(BLOCKS))
        found.append(VLLMServer(folder / f"log-{number}", *flags, "--kv-events-config", json.dumps(told)))
    try:
        for server in found:
            server.launch()
        for server in found:
            _wait_for(server)
        yield found
    finally:
        del os.environ["VLLM_SERVER_DEV_MODE"]
        for server in found:
            server.kill()


def _wait_for(server: Any) -> None:
    for _ in range(1200):
        if server._healthy():
            return
        assert server._process.poll() is None, server._log.read_text()[-3000:]
        asyncio.run(asyncio.sleep(0.5))
    raise AssertionError("vLLM did not start")


class Told:
    """Where a turn went, and what its engine reported."""

    def __init__(self) -> None:
        self.over: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self.route: Route | None = None

    def routed(self, route: Route) -> None:
        self.route = route

    def tokens(self, batch: TokenBatch) -> None: ...

    def events(self, batch: EventBatch) -> None: ...

    def done(self, completion: Completion) -> None:
        self.over.set_result(completion)

    def failed(self, error: EngineError) -> None:
        self.over.set_exception(error)


@pytest.fixture
async def pool(servers: list[Any]) -> AsyncIterator[WorkerPool]:
    tokenizer = load_tokenizer(Path(servers[0].installation.tokenizer))
    workers = [Worker(VLLMEngine(server.url), f"vllm:{server.url}") for server in servers]
    # Small prompts on idle workers: conversations are spread as large ones on busy workers would be.
    subject = WorkerPool(workers, tokenizer, PoolLimits(), Router(TokenCost(crowding=2.0)))
    await subject.start()
    yield subject
    await subject.close()


async def _told(pool: WorkerPool) -> None:
    async with asyncio.timeout(60):
        while not all(worker.publishes for worker in pool.workers):
            await asyncio.sleep(0.05)


async def _turn(pool: WorkerPool, session: str, prompt: list[int]) -> tuple[Route, Completion]:
    told = Told()
    hints = Hints(request_id=f"r{random.random()}", session=session)
    sampling, conversation = Sampling(max_tokens=2, temperature=0.0), Conversation(model="tiny", messages=())
    pool.submit(GenerateRequest(prompt_ids=prompt, sampling=sampling, hints=hints, conversation=conversation), told)
    completion = await asyncio.wait_for(told.over, 120)
    assert told.route is not None
    await asyncio.sleep(0.3)  # The events of the turn are on their way.
    return told.route, completion


async def test_what_is_believed_is_what_is_reported_through_eviction_and_restart(
    pool: WorkerPool, servers: list[Any]
) -> None:
    await _told(pool)
    chance = random.Random(5)
    scaffold = [chance.randrange(1000, 90_000) for _ in range(10 * BLOCK)]
    sessions = {f"s{number}": [*scaffold, *_some(chance, 5 * BLOCK)] for number in range(6)}
    used, reused = set(), 0
    for turn in range(16):
        name = f"s{turn % 6}"
        route, completion = await _turn(pool, name, sessions[name])
        assert completion.cached_tokens == route.cached, f"turn {turn}: {route}"
        used.add(route.worker)
        reused += route.cached
        sessions[name] += _some(chance, 4 * BLOCK)
    assert len(used) == 2, "both took turns"
    assert reused > 16 * BLOCK
    for number in range(2):
        # More than the rest of a cache has room for: what was read first goes.
        route, completion = await _turn(pool, f"large-{number}", _some(chance, 240 * BLOCK))
        assert completion.cached_tokens == route.cached
    for name, prompt in sessions.items():
        route, completion = await _turn(pool, name, prompt)
        assert completion.cached_tokens == route.cached, f"after eviction: {route}"
    server = servers[0]
    server.kill()
    server.launch()
    await asyncio.to_thread(_wait_for, server)
    async with asyncio.timeout(60):
        while any(worker.state != "healthy" for worker in pool.workers) or pool.router.index.blocks(
            f"vllm:{server.url}#0"
        ):
            await _turn(pool, "probe", _some(chance, 3 * BLOCK))
    for name, prompt in sessions.items():
        route, completion = await _turn(pool, name, prompt)
        assert completion.cached_tokens == route.cached, f"after a restart: {route}"


def _some(chance: random.Random, count: int) -> list[int]:
    return [chance.randrange(1000, 90_000) for _ in range(count)]
