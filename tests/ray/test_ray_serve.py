"""The gateway on a local Ray: replicas that listen themselves and replicas behind Ray's proxy, killed and scaled in."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from benchmarks.replicas.engine import Engine
from benchmarks.replicas.storm import DATA, Redis, Storm

ray = pytest.importorskip("ray", reason="Ray is not installed; run: make test-ray")
pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

BODY = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "loop-of-0 session"}]}


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    from ray import serve

    ray.init(num_cpus=6, include_dashboard=False, object_store_memory=100_000_000, configure_logging=False)
    serve.start(http_options={"host": "127.0.0.1", "port": free_port()})
    yield
    serve.shutdown()
    ray.shutdown()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Replicas:
    """What a storm needs of a gateway: its address, and the processes that serve."""

    def __init__(self, address: str) -> None:
        self.address = address

    def processes(self) -> list[int]:
        return [pid for pid in descendants(os.getpid()) if title(pid).startswith("ray::ServeReplica:turnwire")]


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in thread.read_text().split()]
        except OSError:
            continue
        for child in children:
            found += [child, *descendants(child)]
    return found


def title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


@asynccontextmanager
async def world(folder: Path, delay_s: float) -> AsyncIterator[tuple[Engine, Redis, dict[str, Any]]]:
    """An engine, a Redis, and the settings of replicas that use them."""
    engine, redis = Engine(delay_s), Redis(folder)
    await redis.start()
    flags = {
        "engine": f"vllm:{await engine.start()}",
        "model": "m",
        "dialect": "qwen3_coder",
        "store": redis.url,
        "seal_key": "a key for replicas on Ray",
        "tokenizer": str(DATA / "turnwire-tokenizer.json"),
        "template": str(DATA / "turnwire.jinja"),
        "port": free_port(),
    }
    try:
        yield engine, redis, flags
    finally:
        await engine.close()
        redis.stop()


async def deployed(application: Any, route: str | None) -> None:
    from ray import serve

    await asyncio.to_thread(serve.run, application, name="turnwire", route_prefix=route)


async def stream(base: str) -> str:
    """A turn of the engine's slow words; its raw bytes to the end."""
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as session,
        session.post(base + "/v1/chat/completions", json=BODY) as answer,
    ):
        assert answer.status == 200
        return (await answer.read()).decode()


async def test_replicas_that_listen_themselves(cluster: None, tmp_path: Path) -> None:
    """Turns survive the death of replicas, and a scale-in drops no stream."""
    from turnwire.deploy.ray import direct

    async with world(tmp_path, 0.0) as (engine, redis, flags):
        await deployed(direct(flags | {"replicas": 3}), None)
        gateway = Replicas(f"http://127.0.0.1:{flags['port']}")
        assert len(gateway.processes()) == 3
        storm = Storm(gateway, redis, engine, turns=200, at_once=8, loop=4)  # type: ignore[arg-type]
        found = await storm.run(kills=2)
        assert found.troubles == []
        assert (found.lost, found.doubled, found.truncated, found.kills) == (0, 0, 0, 2)
        assert found.held == found.pairs
        assert set(found.verdicts) == {"first", "held"}

        async with asyncio.timeout(120):
            while len(gateway.processes()) < 3:
                await asyncio.sleep(0.2)
        await asyncio.sleep(3)
        engine.delay_s = 0.4
        streams = [asyncio.create_task(stream(gateway.address)) for _ in range(12)]
        await asyncio.sleep(1)
        await deployed(direct(flags | {"replicas": 1}), None)
        for raw in await asyncio.gather(*streams):
            assert raw.endswith("data: [DONE]\n\n")
            chunks = [json.loads(line[6:]) for line in raw.splitlines() if line.startswith("data: {")]
            deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
            assert " end-" in "".join(delta.get("content") or "" for delta in deltas)
        async with asyncio.timeout(120):
            while len(gateway.processes()) > 1:
                await asyncio.sleep(0.2)


async def test_replicas_behind_the_proxy_of_ray(cluster: None, tmp_path: Path) -> None:
    """The same turns through Ray's proxy, and a client that leaves is booked as gone."""
    from ray import serve
    from turnwire.deploy.ray import app

    async with world(tmp_path, 0.0) as (engine, redis, flags):
        await deployed(app(flags | {"replicas": 2, "allow_anonymous": True}), "/")
        options = serve.context._get_global_client().http_config
        gateway = Replicas(f"http://127.0.0.1:{options.port}")
        found = await Storm(gateway, redis, engine, turns=60, at_once=4, loop=4).run()  # type: ignore[arg-type]
        assert found.troubles == []
        assert (found.lost, found.doubled, found.truncated) == (0, 0, 0)
        assert found.held == found.pairs

        engine.delay_s = 30
        for _ in range(6):
            timeout = aiohttp.ClientTimeout(total=0.5)
            with pytest.raises(TimeoutError):
                async with (
                    aiohttp.ClientSession(timeout=timeout) as session,
                    session.post(gateway.address + "/v1/chat/completions", json=BODY) as answer,
                ):
                    await answer.read()
        ended: list[str] = []
        async with asyncio.timeout(60), aiohttp.ClientSession() as session:
            while len(ended) < 6:
                await asyncio.sleep(0.2)
                # Each replica tells of its own turns: ask until all have been heard.
                turns: dict[str, str] = {}
                for _ in range(8):
                    async with session.get(gateway.address + "/admin/turns") as answer:
                        turns |= {turn["turn_id"]: turn["finish"] for turn in (await answer.json())["turns"]}
                ended = [finish for finish in turns.values() if finish not in ("stop", "tool_calls")]
        assert ended == ["gone"] * 6
