"""Claude Code and Codex at work on replicas of a Ray of three nodes, while those and Redis are killed: both finish."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.replicas.engine import Engine
from benchmarks.replicas.storm import Redis, Storm

from tests.clients.storm_outcome import check_all_finished

ray = pytest.importorskip("ray", reason="Ray is not installed; run: make test-ray")
pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.*"),
]

NODES = 3


async def test_clients_finish_while_replicas_and_redis_are_killed(tmp_path: Path) -> None:
    from benchmarks.ray.cluster import Application, Replicas, deploy, nodes
    from benchmarks.ray.storm import settings
    from benchmarks.replicas.tasks import finish_amid, real_clients

    engine, redis, clients = Engine(0.01), Redis(tmp_path), real_clients(tmp_path, steps=8)
    await redis.start()
    flags = settings(f"vllm:{await engine.start()}", redis.url)
    replicas = Replicas(f"http://127.0.0.1:{flags['port']}")
    try:
        with nodes(NODES, cores=1):
            await deploy(Application("ray:direct", flags, NODES))
            assert len(replicas.nodes()) == NODES
            storm = Storm(replicas, redis, engine, turns=1 << 40, at_once=3, loop=4)
            found = await finish_amid(storm, clients, replicas.address, engine, pause_s=2)
    finally:
        await engine.close()
        redis.stop()
    check_all_finished(found, clients)
