"""What must hold after real clients have worked amid a storm, on one machine and on Ray."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.replicas.storm import Findings
from benchmarks.replicas.tasks import RealClient

__all__ = ["check_all_finished"]


def check_all_finished(found: Findings, clients: Sequence[RealClient]) -> None:
    """A process and Redis were killed, nothing went wrong, and every client has done all its tasks."""
    assert found.kills >= 1
    assert found.redis_kills >= 1
    assert found.troubles == []
    assert not found.wrong
    for client in clients:
        assert client.troubles == []
        assert client.finished == client.tasks >= 1
        assert client.turns > client.steps * client.tasks
        assert client.held + client.parted == client.pairs >= client.steps * client.tasks
