"""Routing: the choice among workers."""

from __future__ import annotations

from turnwire.engines.pool import Candidate, choose


def candidate(index: int, **over: int | bool) -> Candidate:
    return Candidate(**({"index": index, "prompt": 100, "cached": 0, "active": 0, "limit": 8} | over))  # type: ignore[arg-type]


def test_the_warm_worker_wins_until_it_is_busy() -> None:
    assert choose([candidate(0), candidate(1, cached=90)]) == 1
    assert choose([candidate(0, prompt=10), candidate(1, prompt=10, cached=9, active=7)]) == 0
    assert choose([candidate(0), candidate(1, cached=100, active=8)]) == 0


def test_ties_go_to_the_session_and_full_workers_take_nothing() -> None:
    assert choose([candidate(0), candidate(1, sticky=True)]) == 1
    assert choose([candidate(0, active=8), candidate(1, active=8)]) is None
    assert choose([]) is None
