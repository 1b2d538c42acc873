"""Turns on all three APIs while two of three servers fail in every way they can: none is lost while one is sound.

`python -m benchmarks storm` is the same at any size, with processes of their own.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import msgspec
import pytest
import uvicorn
from benchmarks.storm.clients import PATHS, ask
from benchmarks.storm.rude_server import RudeServer

import turnwire.prompts
from turnwire.engines.pool.pool import WorkerPool
from turnwire.gateway.app import Gateway
from turnwire.gateway.server import server_config
from turnwire.gateway.settings import Settings
from turnwire.gateway.setup.assembly import assemble_models
from turnwire.prompts.tokenizers.load import load_tokenizer

DATA = Path(turnwire.prompts.__file__).parent / "data"
CLIENTS = 64
TURNS = 3


@pytest.mark.slow
@pytest.mark.timeout(0)
async def test_no_turn_is_lost_while_one_server_is_sound() -> None:
    tokenizer = load_tokenizer(None)
    servers = [RudeServer(tokenizer, 101, 0.6), RudeServer(tokenizer, 202, 0.6), RudeServer(tokenizer, 3, 0.0)]
    tally: Counter[str] = Counter()
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(server.listening()) for server in servers]
        settings = Settings(
            engine=",".join(f"vllm:{url}" for url in urls),
            tokenizer=str(DATA / "turnwire-tokenizer.json"),
            template=str(DATA / "turnwire.jinja"),
            dialect="qwen3_coder",
            keepalive=0.5,
        )
        gateway = Gateway(settings, await assemble_models(settings))
        pool = gateway.runtimes[0].engine
        assert isinstance(pool, WorkerPool)
        pool.limits = msgspec.structs.replace(pool.limits, first_token=1.0, stall=1.0)
        server = uvicorn.Server(server_config(gateway))
        sockets = [_listener()]
        task = asyncio.create_task(server.serve(sockets=sockets))
        while not server.started:
            await asyncio.sleep(0.005)
        base = f"http://127.0.0.1:{sockets[0].getsockname()[1]}"
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=60)) as session:

            async def client(number: int) -> None:
                dice = random.Random(number)
                for turn in range(TURNS):
                    api = dice.choice(list(PATHS))
                    tally[await ask(session, base, api, f"{number}x{turn}", dice)] += 1

            await asyncio.gather(*(client(number) for number in range(CLIENTS)))
        async with asyncio.timeout(10):
            while pool.active or pool.waiting:
                await asyncio.sleep(0.01)
        statistics = pool.statistics
        server.should_exit = True
        await task
    print(f"\n{CLIENTS * TURNS} turns: {dict(tally)}\n{statistics}\n{dict(servers[0].faults + servers[1].faults)}")
    assert tally["complete"] + tally["left"] == CLIENTS * TURNS, (tally, statistics)
    faults = servers[0].faults + servers[1].faults
    assert len(faults) >= 8, faults
    assert statistics.retries + statistics.migrations >= 10, statistics


def _listener() -> socket.socket:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    return listener
