"""Turns over three processes that share a Redis, two of them killed: none is lost, doubled or truncated."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.replicas.storm import storm


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks up processes in /proc")
@pytest.mark.slow
async def test_turns_survive_the_death_of_processes(tmp_path: Path) -> None:
    found = await storm(tmp_path, turns=200, workers=3, at_once=8, kills=2)
    assert found.troubles == []
    assert (found.lost, found.doubled, found.truncated) == (0, 0, 0)
    assert found.kills == 2
    assert found.held == found.pairs >= 150
    assert set(found.verdicts) == {"first", "held"}
    assert found.verdicts["first"] == found.turns - found.pairs
    assert set(found.by_agent) == {"Messages", "Chat", "Responses", "StoredResponses"}
