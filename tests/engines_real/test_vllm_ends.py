"""Every way a real vLLM ends a generation that is not its own completion: what it says, and that the turn goes on."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from turnwire.engines.bridge import pull, push
from turnwire.engines.interface import (
    Capabilities,
    Completion,
    EngineError,
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

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1200), pytest.mark.asyncio(loop_scope="module")]

# Long enough that the end which the test brings about comes before the engine's own, on any machine.
TOKENS = 1500
SAID = 20
"""Tokens that have come when the engine is ended."""


class Successor:
    """A worker that says whatever is left to say."""

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
        yield TokenBatch("x" * left, (87,) * left)
        yield Completion("length", len(request.prompt_ids), left)


class Mortal:
    """A vLLM server, and the ways to end what runs on it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.server = VLLMServer(folder / "log", "--enable-prompt-tokens-details")

    async def told(self, path: str) -> None:
        """Post to one of its own routes."""
        async with aiohttp.ClientSession() as session, session.post(self.server.url + path, json={}) as answer:
            assert answer.status == 200, await answer.text()

    def core(self) -> int:
        """The process that generates, among those of the server's session."""
        session = self.server._process.pid
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError):
                    facts = (entry / "stat").read_text().rpartition(")")[2].split()
                    if int(facts[3]) == session and b"EngineCore" in (entry / "cmdline").read_bytes():
                        return int(entry.name)
        raise AssertionError("no engine core")

    async def abort(self) -> None:
        await self.told("/abort_requests")

    async def pause(self) -> None:
        await self.told("/pause?mode=abort")

    async def kill_core(self) -> None:
        os.kill(self.core(), signal.SIGKILL)

    def terminate(self) -> None:
        """What a rolling restart does to it."""
        self.server._process.terminate()

    async def again(self, *options: str) -> None:
        """Start it anew on its port."""
        self.server.kill()
        self.server._options = options
        await asyncio.to_thread(self.server.start)


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mortal]:
    with pytest.MonkeyPatch.context() as patch:
        # Its routes for pausing and aborting.
        patch.setenv("VLLM_SERVER_DEV_MODE", "1")
        subject = Mortal(tmp_path_factory.mktemp("mortal"))
        with subject.server:
            yield subject


@asynccontextmanager
async def pool_with(mortal: Mortal, stall: float) -> AsyncIterator[WorkerPool]:
    workers = [Worker(VLLMEngine(mortal.server.url), "mortal"), Worker(Successor(), "successor")]
    tokenizer = load_tokenizer(mortal.server.installation.tokenizer)
    subject = WorkerPool(workers, tokenizer, PoolLimits(first_token=120, stall=stall))
    await subject.start()
    # Turns begin on vLLM; they find the other when they need it.
    workers[1].draining = True
    yield subject
    await subject.close()


@pytest_asyncio.fixture(loop_scope="module")
async def pool(mortal: Mortal) -> AsyncIterator[WorkerPool]:
    async with pool_with(mortal, stall=120) as subject:
        yield subject


def asking(name: str, tokens: int) -> GenerateRequest:
    # Never an end token, so that it runs to its length.
    return GenerateRequest(
        prompt_ids=list(range(1000, 1050)),
        sampling=Sampling(temperature=0.0, max_tokens=tokens, logit_bias={"151645": -100.0, "151643": -100.0}),
        hints=Hints(request_id=name),
        conversation=Conversation(model="tiny", messages=()),
    )


class Reading:
    """A generation that is read to its end, whichever it is."""

    def __init__(self, engine: Any, name: str, tokens: int = TOKENS) -> None:
        self.tokens = 0
        self.begun = asyncio.Event()
        self.end: Completion | EngineError | None = None
        self._task = asyncio.create_task(self._read(engine, asking(name, tokens)))

    async def _read(self, engine: Any, request: GenerateRequest) -> None:
        try:
            async for step in pull(engine, request):
                if isinstance(step, TokenBatch):
                    self.tokens += len(step.ids)
                    if self.tokens > SAID:
                        self.begun.set()
                elif isinstance(step, Completion):
                    self.end = step
        except EngineError as error:
            self.end = error
        self.begun.set()

    async def over(self) -> Reading:
        async with asyncio.timeout(300):
            await self._task
        return self

    async def left(self) -> Reading:
        """Stop reading."""
        self._task.cancel()
        await asyncio.wait([self._task])
        return self


async def through(pool: WorkerPool, end: Callable[[], Awaitable[None]]) -> tuple[Reading, Reading]:
    """Two generations, one straight on vLLM and one through the pool, which are both ended in mid-stream."""
    alone, pooled = Reading(pool.workers[0].engine, "alone"), Reading(pool, "pooled")
    await alone.begun.wait()
    await pooled.begun.wait()
    pool.workers[1].draining = False
    await end()
    return await alone.over(), await pooled.over()


ENDS: tuple[tuple[str, str], ...] = (("abort", "disconnected"), ("pause", "disconnected"))
DRAINING = ("--shutdown-timeout", "120")
"""With which vLLM finishes what runs when it is asked to end."""


def assert_whole(pool: WorkerPool, turn: Reading) -> None:
    """The turn went on from where vLLM left off, to its own completion."""
    assert isinstance(turn.end, Completion), turn.end
    assert (turn.tokens, turn.end.output_tokens, turn.end.reason) == (TOKENS, TOKENS, "length")
    moves = pool.statistics.migrations + pool.statistics.moved_late
    assert (moves, pool.statistics.migrations_failed) == (1, 0)


async def is_now(pool: WorkerPool, state: str) -> None:
    """Wait until vLLM is in a state."""
    async with asyncio.timeout(120):
        while pool.workers[0].state != state:
            await asyncio.sleep(0.1)


@pytest.mark.parametrize(("how", "kind"), ENDS)
async def test_what_it_is_told_to_stop_goes_on_elsewhere(pool: WorkerPool, mortal: Mortal, how: str, kind: str) -> None:
    try:
        alone, pooled = await through(pool, getattr(mortal, how))
    finally:
        await mortal.told("/resume")
    assert isinstance(alone.end, EngineError)
    assert (alone.end.kind, SAID < alone.tokens < TOKENS) == (kind, True)
    assert_whole(pool, pooled)


async def test_a_pause_that_keeps_is_only_waited_for(pool: WorkerPool, mortal: Mortal) -> None:
    alone = Reading(pool.workers[0].engine, "kept")
    await alone.begun.wait()
    await mortal.told("/pause?mode=keep")
    said = alone.tokens
    await asyncio.sleep(0.5)
    assert alone.end is None
    assert alone.tokens - said < TOKENS // 2
    await mortal.told("/resume")
    await alone.over()
    assert isinstance(alone.end, Completion)
    assert alone.end.output_tokens == TOKENS


async def test_its_death_is_survived_and_it_serves_again_once_it_is_back(pool: WorkerPool, mortal: Mortal) -> None:
    try:
        alone, pooled = await through(pool, mortal.kill_core)
        assert isinstance(alone.end, EngineError)
        assert (alone.end.kind, SAID < alone.tokens < TOKENS) == ("internal", True)
        assert_whole(pool, pooled)
        await is_now(pool, "down")
    finally:
        await mortal.again(*DRAINING)
    await is_now(pool, "healthy")


async def test_while_it_drains_it_finishes_what_runs_and_new_turns_go_elsewhere(
    pool: WorkerPool, mortal: Mortal
) -> None:
    try:
        running = Reading(pool, "running")
        await running.begun.wait()
        pool.workers[1].draining = False
        mortal.terminate()
        async with asyncio.timeout(60):
            while isinstance((new := await Reading(pool.workers[0].engine, "new", 2).over()).end, Completion):
                pass
        assert isinstance(new.end, EngineError)
        assert (new.end.kind, new.tokens) == ("disconnected", 0)
        assert running.end is None
        pooled = await Reading(pool, "pooled").over()
        assert isinstance(pooled.end, Completion)
        assert pooled.tokens == TOKENS
        await running.over()
        assert isinstance(running.end, Completion)
        assert (running.tokens, pool.statistics.migrations) == (TOKENS, 0)
    finally:
        await mortal.again()


async def test_a_sigterm_is_survived_although_it_says_nothing_more(mortal: Mortal) -> None:
    """It refuses connections at once, kills its core, and then waits for its clients to leave."""
    async with pool_with(mortal, stall=2) as pool:
        alone, pooled = Reading(pool.workers[0].engine, "alone"), Reading(pool, "pooled")
        await alone.begun.wait()
        await pooled.begun.wait()
        pool.workers[1].draining = False
        mortal.terminate()
        await pooled.over()
        assert_whole(pool, pooled)
        await is_now(pool, "down")
        await alone.left()
        assert alone.tokens < TOKENS
        assert not isinstance(alone.end, Completion)
