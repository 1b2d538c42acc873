"""Turns over three processes that share a Redis; two are killed, and Redis once: none is lost, doubled or truncated."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.replicas.storm import storm


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks up processes in /proc")
@pytest.mark.slow
async def test_turns_survive_the_death_of_processes(tmp_path: Path) -> None:
    found = await storm(tmp_path, turns=200, workers=3, at_once=8, kills=2, redis_kills=1)
    assert found.troubles == []
    assert (found.lost, found.doubled, found.truncated) == (0, 0, 0)
    assert (found.kills, found.redis_kills, found.misjudged) == (2, 1, 0)
    assert found.held == found.pairs >= 150
    assert set(found.verdicts) == {"first", "held"}
    assert found.redis_commands > 0
    assert set(found.by_agent) == {"Messages", "Chat", "Responses", "StoredResponses"}
