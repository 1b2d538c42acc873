"""Claude Code and Codex at work while the gateway's processes and its Redis are killed: both finish, step by step."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.replicas.engine import Engine
from benchmarks.replicas.storm import Gateway, Redis, Storm
from benchmarks.replicas.tasks import finish_amid, real_clients

from tests.clients.storm_outcome import check_all_finished


@pytest.mark.timeout(700)
async def test_clients_finish_while_processes_and_redis_are_killed(tmp_path: Path) -> None:
    engine, redis, clients = Engine(0.01), Redis(tmp_path), real_clients(tmp_path, steps=8)
    await redis.start()
    gateway = Gateway(tmp_path, await engine.start(), redis.url, 3)
    try:
        await gateway.start()
        storm = Storm(gateway, redis, engine, turns=1 << 40, at_once=3, loop=4)
        found = await finish_amid(storm, clients, gateway.address, engine, pause_s=1)
    finally:
        await gateway.stop()
        await engine.close()
        redis.stop()
    check_all_finished(found, clients)
