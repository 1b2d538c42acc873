"""Every way a real vLLM ends a generation that is not its own completion: the turn goes on elsewhere."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from turnwire.engines.bridge import pull, push
from turnwire.engines.interface import (
    Capabilities,
    Completion,
    EngineInfo,
    GenerateRequest,
    Generation,
    Hints,
    Receiver,
    Step,
    TokenBatch,
)
from turnwire.engines.pool.pool import PoolLimits, Worker, WorkerPool
from turnwire.engines.vllm import VLLMEngine
from turnwire.prompts.tokenizers.load import load_tokenizer
from turnwire.turns import Conversation, Sampling

from .vllm_server import VLLMServer

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1200)]

TOKENS = 200


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        # Its routes for pausing and aborting.
        patch.setenv("VLLM_SERVER_DEV_MODE", "1")
        with VLLMServer(tmp_path_factory.mktemp("mortal") / "log") as running:
            yield running


class Successor:
    """A worker that says whatever is left to say, and always stands by."""

    capabilities = Capabilities(yields="tokens")

    async def start(self) -> EngineInfo:
        return EngineInfo(name="successor")

    async def health(self) -> bool:
        return True

    async def embed(self, inputs: Sequence[str]) -> list[list[float]]:
        return []

    async def close(self) -> None:
        pass

    def submit(self, request: GenerateRequest, receiver: Receiver) -> Generation:
        return push(self._steps(request), receiver)

    async def _steps(self, request: GenerateRequest) -> AsyncGenerator[Step, None]:
        left = request.sampling.max_tokens or 0
        for _ in range(left):
            yield TokenBatch("x", (87,))
        yield Completion("length", len(request.prompt_ids), left)


def asking(name: str = "r") -> GenerateRequest:
    # Never the end token, so that it runs to its length.
    return GenerateRequest(
        prompt_ids=list(range(1000, 1050)),
        sampling=Sampling(temperature=0.0, max_tokens=TOKENS, logit_bias={"151645": -100.0, "151643": -100.0}),
        hints=Hints(request_id=name),
        conversation=Conversation(model="tiny", messages=()),
    )


@pytest.fixture
async def pool(mortal: Any) -> AsyncIterator[WorkerPool]:
    workers = [Worker(VLLMEngine(mortal.url), "mortal"), Worker(Successor(), "successor")]
    subject = WorkerPool(workers, load_tokenizer(mortal.installation.tokenizer), PoolLimits(first_token=60, stall=60))
    await subject.start()
    yield subject
    await subject.close()


async def told(server: Any, path: str) -> None:
    async with aiohttp.ClientSession() as session, session.post(server.url + path) as answer:
        assert answer.status == 200, await answer.text()


def core_of(server: Any) -> int:
    """The process that generates, among those of a server's session."""
    session = server._process.pid
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                facts = (entry / "stat").read_text().rpartition(")")[2].split()
                name = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if int(facts[3]) == session and b"EngineCore" in name:
                return int(entry.name)
    raise AssertionError("no engine core")


async def ended(pool: WorkerPool, how: str, server: Any) -> tuple[int, Completion]:
    """How many tokens come out of a turn whose worker is ended in mid-stream, and how it finishes."""
    count = 0
    async for step in pull(pool, asking(how)):
        if isinstance(step, TokenBatch):
            count += len(step.ids)
            if how and count > 20:
                if how == "pause":
                    await told(server, "/pause?mode=abort")
                elif how == "core":
                    os.kill(core_of(server), signal.SIGKILL)
                else:
                    os.kill(server._process.pid, signal.SIGTERM)
                how = ""
        elif isinstance(step, Completion):
            return count, step
    raise AssertionError("no completion")


async def test_a_pause_that_aborts_moves_the_turn(pool: WorkerPool, mortal: Any) -> None:
    try:
        count, completion = await ended(pool, "pause", mortal)
    finally:
        await told(mortal, "/resume")
    assert (count, completion.output_tokens, completion.reason) == (TOKENS, TOKENS, "length")
    assert (pool.statistics.migrations, pool.statistics.migrations_failed) == (1, 0)


@pytest.mark.parametrize("how", ["core", "term"])
async def test_a_death_in_mid_stream_moves_the_turn(pool: WorkerPool, mortal: Any, how: str) -> None:
    try:
        count, completion = await ended(pool, how, mortal)
        assert (count, completion.output_tokens, completion.reason) == (TOKENS, TOKENS, "length")
        assert (pool.statistics.migrations, pool.statistics.migrations_failed) == (1, 0)
        async with asyncio.timeout(120):
            while pool.workers[0].state != "down":
                await asyncio.sleep(0.1)
    finally:
        mortal.kill()
        await asyncio.to_thread(mortal.start)
    async with asyncio.timeout(120):
        while pool.workers[0].state != "healthy":
            await asyncio.sleep(0.1)
