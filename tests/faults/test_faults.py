"""Hundreds of turns on all three APIs while their engines die: nothing lost in silence, nothing said twice.

The large version of this, with engines in processes of their own, is benchmarks/faults.py.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import socket
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import aiohttp
import pytest
import uvicorn
from benchmarks.storm.clients import PATHS, ask

from tests.published_types import HELD
from turnwire.engines.pool.pool import Worker, WorkerPool
from turnwire.gateway.gateway import Gateway
from turnwire.gateway.server import server_config
from turnwire.gateway.settings import Settings
from turnwire.gateway.setup.assembly import assemble
from turnwire.gateway.telemetry.journal import Journal
from turnwire.gateway.turns.turn import Turn
from turnwire.protocols.fields.decoded import DecodedParts

from .mortal import MortalEngine


@asynccontextmanager
async def gateway_on(folder: Path, seeds: range) -> AsyncIterator[tuple[str, Gateway, list[MortalEngine]]]:
    script = folder / "script.jsonl"
    script.write_text('{"text": "unused"}\n')
    settings = Settings(
        engine=f"scripted:{script}", model="m", dialect="qwen3_coder", concurrency=12, queue=1000, keepalive=0.05
    )
    runtime = await assemble(settings)
    pool = runtime.engine
    assert isinstance(pool, WorkerPool)
    engines = [MortalEngine(runtime.tokenizer, seed) for seed in seeds]
    pool.workers = [Worker(engine, f"w{number}") for number, engine in enumerate(engines)]
    gateway = Gateway(settings, [runtime])
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(server_config(gateway))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        await asyncio.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", gateway, engines
    finally:
        server.should_exit = True
        await task


ROOMS = ("gateway", "engines", "parsers", "protocols")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
async def test_no_turn_is_lost_doubled_or_cut_short_as_a_success(tmp_path: Path, seed: int) -> None:
    tally: Counter[str] = Counter()
    async with gateway_on(tmp_path, range(10 * seed, 10 * seed + 3)) as (base, gateway, engines):
        connector = aiohttp.TCPConnector(limit=0)
        # Guards against a hang, on any machine.
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=240)) as session:

            async def client(number: int) -> None:
                dice = random.Random(1000 * seed + number)
                for turn in range(5):
                    api = dice.choice(list(PATHS))
                    tally[await ask(session, base, api, f"{number}x{turn}", dice)] += 1

            await asyncio.gather(*(client(number) for number in range(40)))
        pool = gateway.runtimes[0].engine
        assert isinstance(pool, WorkerPool)
        async with asyncio.timeout(60):
            while len(gateway.heartbeat) or pool.active or any(engine.open for engine in engines):
                await asyncio.sleep(0.01)
        broken = {what: count for what, count in tally.items() if what.isupper()}
        assert not broken, tally
        assert tally.total() == 200
        # It was not fair weather: engines died under running turns, most of which went on elsewhere.
        assert sum(engine.deaths for engine in engines) >= 5
        assert pool.statistics.migrations >= 10
        assert tally["complete"] >= 100
        # Every generation that was begun ended once: by itself, by its engine's death, by its client's leaving, or
        # because its worker was silent for too long.
        statistics = pool.statistics
        assert statistics.aborts + statistics.moved_late == sum(engine.left for engine in engines)
        assert statistics.aborts <= tally["left"]
        assert pool.waiting == 0
        for _ in range(20):
            gc.collect()
            left = [thing for thing in gc.get_objects() if isinstance(thing, Turn)]
            if not left:
                break
            left.clear()
            await asyncio.sleep(0.05)
        else:
            pytest.fail("a turn is still held")


@pytest.mark.slow
async def test_memory_is_back_where_it_was_once_the_storm_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DecodedParts, "put", lambda *_: None)
    # What was sent is kept for the vendors' types until a test is over.
    monkeypatch.setattr(HELD, "sent", lambda *_: None)
    async with gateway_on(tmp_path, range(70, 73)) as (base, gateway, engines):
        runtime = gateway.runtimes[0]
        # What turns are remembered by has bounds of its own; here it would hide what should not be there.
        # So have decoded messages and the cache of tokenized texts, which is why only the rooms that a turn runs
        # through are weighed.
        runtime.remember = lambda passage: None  # type: ignore[method-assign]
        gateway.journal = Journal(1)
        pool = runtime.engine
        assert isinstance(pool, WorkerPool)

        async def storm(seed: int) -> int:
            connector = aiohttp.TCPConnector(limit=0, force_close=True)
            async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=60)) as session:
                dice = random.Random(seed)
                asked = (ask(session, base, dice.choice(list(PATHS)), f"{seed}x{number}", dice) for number in range(60))
                await asyncio.gather(*asked)
            async with asyncio.timeout(20):
                while len(gateway.heartbeat) or pool.active or any(engine.open for engine in engines):
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            gc.collect()
            rooms = [tracemalloc.Filter(True, f"*/turnwire/{room}/*") for room in ROOMS]
            return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(rooms).traces)

        logging.disable(logging.CRITICAL)
        tracemalloc.start()
        try:
            weights = [await storm(seed) for seed in range(1, 5)]
        finally:
            tracemalloc.stop()
            logging.disable(logging.NOTSET)
        assert sum(engine.deaths for engine in engines) >= 3
        # A turn that was kept would be some kilobytes, and there are sixty in each storm. What routing learns of a
        # conversation stays, up to a bound of its own: some hundred bytes each. A storm during which a table or a
        # buffer happens to grow says little; what is kept is kept in every one.
        growth = [after - before for before, after in pairwise(weights)]
        assert min(growth) < 40_000, weights
