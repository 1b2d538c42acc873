"""Claude Code and Codex at work while the gateway's processes and its Redis are killed: both finish, step by step."""

from __future__ import annotations

import asyncio
from array import array
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from benchmarks.replicas.engine import Engine
from benchmarks.replicas.storm import Gateway, Redis, Storm

from .sandbox import Finished, Sandbox
from .test_claude_code import ClaudeCode
from .test_codex import Codex

STEPS = 8
RETRIES = [f"-cmodel_providers.gw.{name}_max_retries=20" for name in ("request", "stream")]


class Served:
    """What the clients' drivers need of a gateway."""

    model = "m"

    def __init__(self, url: str) -> None:
        self.url = url
        self.v1 = f"{url}/v1"


def asked(tool: str, parameter: str) -> str:
    return f"task-of-{STEPS} by {tool} with {parameter}."


def held(turns: list[tuple[int, array[int], array[int]]]) -> bool:
    """Whether every turn read what the one before read and wrote. Of a turn that was broken off Codex keeps the items
    that were whole, beside those of the second attempt; after such a one only what was read before it is compared."""
    asked = Counter(step for step, _, _ in turns)
    known = [(step, prompt if asked[step] > 1 else prompt + output[:-1]) for step, prompt, output in turns]
    return all(
        any(before == step - 1 and prompt[: len(whole)] == whole for before, whole in known)
        for step, prompt, _ in turns
        if step
    )


@pytest.mark.timeout(400)
async def test_clients_finish_while_processes_and_redis_are_killed(tmp_path: Path, bundles: dict[str, Any]) -> None:
    engine, redis = Engine(0.01), Redis(tmp_path)
    await redis.start()
    gateway = Gateway(tmp_path, await engine.start(), redis.url, 3)
    await gateway.start()
    served: Any = Served(gateway.address)
    sandboxes = [Sandbox(tmp_path / name, bundles) for name in ("claude", "codex")]
    claude = ClaudeCode(sandboxes[0], served)
    codex = Codex(sandboxes[1], served).configure()
    storm = Storm(gateway, redis, engine, turns=1 << 40, at_once=3, loop=4)
    try:
        around = asyncio.create_task(storm.run())
        killer = asyncio.create_task(kill_now_and_then(storm))
        clients: list[Finished] = await asyncio.gather(
            asyncio.to_thread(claude, asked("Bash", "command"), timeout=180, CLAUDE_CODE_MAX_RETRIES="20"),
            asyncio.to_thread(codex, asked("exec_command", "cmd"), *RETRIES, timeout=180),
        )
        killer.cancel()
        storm.enough()
        found = await around
    finally:
        await gateway.stop()
        await engine.close()
        redis.stop()
    for client, sandbox in zip(clients, sandboxes, strict=True):
        assert client.code == 0, str(client)
        assert f"all {STEPS} steps done" in client.stdout, str(client)
        assert len((sandbox.workspace / "steps.txt").read_text().splitlines()) >= STEPS
    assert found.kills >= 1
    assert found.redis_kills >= 1
    assert found.troubles == []
    assert not found.wrong
    for tool in ("Bash", "exec_command"):
        assert len(engine.tasks[tool]) > STEPS
        assert held(engine.tasks[tool])
    print(found.kills, found.redis_kills, found.turns, {tool: len(turns) for tool, turns in engine.tasks.items()})


async def kill_now_and_then(storm: Storm) -> None:
    while True:
        for kill in (storm.kill_process, storm.kill_redis, storm.kill_process):
            await asyncio.sleep(1.0)
            await kill()
