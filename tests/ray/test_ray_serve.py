"""The gateway on a Ray of three nodes: replicas that listen themselves and replicas behind Ray's proxy, killed and
scaled in; engines that Ray places."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from benchmarks.replicas.engine import Engine
from benchmarks.replicas.storm import Redis, Storm

ray = pytest.importorskip("ray", reason="Ray is not installed; run: make test-ray")
pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.*"),
]

BODY = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "loop-of-0 session"}]}
NODES = 3


@pytest.fixture(scope="module")
def proxy() -> Iterator[int]:
    """The port of Ray's proxy."""
    from benchmarks.ray.cluster import nodes

    with nodes(NODES, cores=2) as (_, port):
        yield port


@asynccontextmanager
async def world(folder: Path, delay_s: float) -> AsyncIterator[tuple[Engine, Redis, dict[str, Any]]]:
    """An engine, a Redis, and the settings of replicas that use them."""
    from benchmarks.ray.storm import settings

    engine, redis = Engine(delay_s), Redis(folder)
    await redis.start()
    flags = settings(f"vllm:{await engine.start()}", redis.url)
    try:
        yield engine, redis, flags
    finally:
        await engine.close()
        redis.stop()


async def stream(base: str) -> str:
    """A turn of the engine's slow words; its raw bytes to the end."""
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as session,
        session.post(base + "/v1/chat/completions", json=BODY) as answer,
    ):
        assert answer.status == 200
        return (await answer.read()).decode()


async def test_replicas_that_listen_themselves(proxy: int, tmp_path: Path) -> None:
    """Turns survive the death of replicas and of Redis, and a scale-in breaks no request."""
    from benchmarks.ray.cluster import Application, Replicas, deploy

    async with world(tmp_path, 0.0) as (engine, redis, flags):
        await deploy(Application("ray:direct", flags, NODES))
        replicas = Replicas(f"http://127.0.0.1:{flags['port']}")
        assert len(replicas.processes()) == NODES
        found = await Storm(replicas, redis, engine, turns=200, at_once=8, loop=4).run(kills=2, redis_kills=1)
        assert found.troubles == []
        assert not found.wrong
        assert (found.kills, found.redis_kills) == (2, 1)

        await replicas.number(NODES)
        await deploy(Application("ray:direct", flags, NODES))
        engine.delay_s = 0.4
        streams = [asyncio.create_task(stream(replicas.address)) for _ in range(12)]
        await asyncio.sleep(1)
        await deploy(Application("ray:direct", flags, 1))
        for raw in await asyncio.gather(*streams):
            assert raw.endswith("data: [DONE]\n\n")
            chunks = [json.loads(line[6:]) for line in raw.splitlines() if line.startswith("data: {")]
            deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
            assert " end-" in "".join(delta.get("content") or "" for delta in deltas)
        await replicas.number(1)


async def test_ray_scales_by_live_turns(proxy: int, tmp_path: Path) -> None:
    """Ray counts no request itself here: replicas tell it how many turns are live."""
    from benchmarks.ray.cluster import Application, Replicas, deploy

    scaling = {
        "min_replicas": 1,
        "max_replicas": 2,
        "target_ongoing_requests": 4,
        "upscale_delay_s": 1,
        "downscale_delay_s": 1,
        "look_back_period_s": 2,
        "metrics_interval_s": 1,
        "policy": {"policy_function": "turnwire.deploy.ray:by_live_turns"},
    }
    async with world(tmp_path, 60.0) as (_, _, flags):
        del flags["replicas"]
        await deploy(Application("ray:direct", flags, 1, scaling=scaling))
        replicas = Replicas(f"http://127.0.0.1:{flags['port']}")
        streams = [asyncio.create_task(stream(replicas.address)) for _ in range(8)]
        await replicas.number(2)
        for task in streams:
            task.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
        await replicas.number(1)


async def test_replicas_behind_the_proxy_of_ray(proxy: int, tmp_path: Path) -> None:
    """The same turns through Ray's proxy, and a client that leaves is booked as gone."""
    from benchmarks.ray.cluster import Application, Replicas, deploy

    async with world(tmp_path, 0.0) as (engine, redis, flags):
        await deploy(Application("ray:app", flags | {"allow_anonymous": True}, 2, route="/"))
        gateway = Replicas(f"http://127.0.0.1:{proxy}")
        found = await Storm(gateway, redis, engine, turns=60, at_once=4, loop=4).run()
        assert found.troubles == []
        assert not found.wrong

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


async def workers(base: str) -> list[str]:
    async with aiohttp.ClientSession() as session, session.get(base + "/admin/workers") as answer:
        return sorted(worker["worker"] for worker in await answer.json() if worker["state"] != "draining")


async def changed(base: str, count: int, without: list[str]) -> list[str]:
    """The workers, once there are so many, and none of those that have gone."""
    async with asyncio.timeout(120):
        while True:
            found = await workers(base)
            if len(found) == count and not set(found) & set(without):
                return found
            await asyncio.sleep(0.3)


async def test_engines_that_ray_places_are_found_as_they_come_and_go(proxy: int, tmp_path: Path) -> None:
    from benchmarks.ray.cluster import Application, deploy

    program = Path(__file__).parents[2] / "benchmarks" / "engine_stand_in.py"
    command = f"{sys.executable} {program} {{port}} --host {{host}} --delay-ms 5"
    placed = {"command": command, "cpus": 0.1}
    async with world(tmp_path, 0.0) as (_, _, flags):
        del flags["engine"]
        gateway = Application("ray:direct", flags | {"engines": "engines", "model": "stand-in"}, 1)

        def engines(count: int) -> Application:
            return Application("ray_engines:engines", placed, count, name="engines", deployment="engine")

        await deploy(engines(1), gateway)
        base = f"http://127.0.0.1:{flags['port']}"
        first = await changed(base, 1, [])
        await deploy(engines(2), gateway)
        both = await changed(base, 2, [])
        assert first[0] in both
        turns = [asyncio.create_task(told(base, f"{number}a")) for number in range(6)]
        await asyncio.sleep(0.1)
        kill(f"{program}\0{first[0].rpartition(':')[2]}\0")
        assert await asyncio.gather(*turns) == [True] * 6
        # Ray starts another in its place, elsewhere.
        replaced = await changed(base, 2, first)
        await deploy(engines(1), gateway)
        left = await changed(base, 1, [])
        assert left[0] in replaced
        assert await told(base, "z")


def kill(said: str) -> None:
    """End the process that has this in its command line."""
    (found,) = [path.parent.name for path in Path("/proc").glob("[0-9]*/cmdline") if said in path.read_text()]
    os.kill(int(found), signal.SIGKILL)


async def told(base: str, nonce: str) -> bool:
    """Whether a turn of an engine's story comes to its end."""
    body = {"model": "stand-in", "messages": [{"role": "user", "content": f"nonce-{nonce} tell"}]}
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session,
        session.post(base + "/v1/chat/completions", json=body) as answer,
    ):
        return bool((await answer.json())["choices"][0]["message"]["content"].endswith(f"the end of {nonce}"))
