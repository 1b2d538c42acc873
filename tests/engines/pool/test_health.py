"""A worker's health: what each failure, each token and each probe does to it."""

from __future__ import annotations

import pytest

from turnwire.engines.failures import Kind
from turnwire.engines.pool.health import FirstToken, Health


def fail(health: Health, word: Kind, now: float, **over: float) -> None:
    health.failed(word, "it said so", **({"began": now, "now": now} | over))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("word", "state", "admits"),
    [
        ("unreachable", "down", False),
        ("disconnected", "down", False),
        ("overloaded", "suspect", False),
        ("internal", "suspect", True),
        ("timeout", "suspect", True),
        ("invalid_request", "healthy", True),
        ("context_overflow", "healthy", True),
    ],
)
def test_one_failure(word: Kind, state: str, admits: bool) -> None:
    health = Health()
    fail(health, word, 10.0)
    assert (health.state, health.admits(10.0)) == (state, admits)
    assert bool(health.why) == (state != "healthy")


def test_a_refused_worker_is_left_alone_for_the_time_it_named_and_no_longer() -> None:
    health = Health()
    fail(health, "overloaded", 10.0, retry_after=3.0)
    assert not health.checking
    health.completed()
    health.spoke()
    assert not health.admits(12.9), "a turn that ends meanwhile does not shorten the pause"
    health.rested(12.9)
    assert health.state == "suspect"
    health.rested(13.0)
    assert (health.state, health.admits(13.0)) == ("healthy", True)


def test_pauses_grow_without_a_named_time_and_shrink_after_a_success() -> None:
    health, now, pauses = Health(), 0.0, []
    for _ in range(8):
        fail(health, "overloaded", now)
        pauses.append(health.not_before - now)
        now = health.not_before
        health.rested(now)
    assert pauses == [0.25, 0.5, 1, 2, 4, 8, 8, 8]
    health.completed()
    fail(health, "overloaded", now)
    assert health.not_before - now == 0.25


def test_a_pause_without_measure_is_cut() -> None:
    health = Health()
    fail(health, "overloaded", 0.0, retry_after=1e12)
    assert health.not_before == 60.0


def test_failures_in_a_row_break_the_circuit_for_longer_and_longer() -> None:
    health, now = Health(), 100.0
    for _ in range(2):
        fail(health, "internal", now)
        assert health.state == "suspect"
        health.probed(True, now, answers=True)
        assert health.state == "healthy"
        now += 1
    fail(health, "internal", now)
    assert (health.state, health.not_before) == ("down", now + 0.5)
    assert health.thorough
    health.probed(True, now, answers=True)
    fail(health, "internal", now)
    assert (health.state, health.not_before) == ("down", now + 1.0)
    health.probed(True, now, answers=True)
    health.completed()
    fail(health, "internal", now)
    assert health.state == "suspect", "a completed turn wipes the slate"


def test_an_error_rate_breaks_the_circuit_though_no_failures_are_in_a_row() -> None:
    health, now = Health(), 0.0
    for _ in range(40):
        now += 1
        fail(health, "internal", now)
        if health.state == "down":
            break
        fail(health, "internal", now + 0.5)
        health.probed(True, now, answers=True)
        health.completed()
    assert health.state == "down"
    assert health.failures < 3


def test_failures_of_turns_that_began_before_the_last_change_say_nothing_new() -> None:
    health = Health()
    for _ in range(64):
        fail(health, "internal", 10.0, began=5.0)
    assert (health.failures, health.state) == (1, "suspect")
    health.probed(True, 11.0, answers=True)
    fail(health, "disconnected", 12.0, began=9.0)
    assert health.state == "healthy"


def test_silence_makes_suspect_until_a_token_or_a_probe_clears_it() -> None:
    health = Health()
    health.late("silent", 1.0)
    assert health.state == "suspect"
    health.probed(False, 2.0, answers=True)
    assert health.state == "suspect", "busy is not gone"
    health.spoke()
    assert health.state == "healthy"
    health.late("silent", 3.0)
    health.probed(False, 4.0, answers=False)
    assert health.state == "down"
    health.spoke()
    assert health.state == "down", "what is down comes back by a probe"
    health.probed(True, 5.0, answers=True)
    assert health.state == "healthy"


def test_the_first_token_is_expected_by_prompt_size_and_history() -> None:
    history = FirstToken()
    assert history.deadline(0, 10.0) == 10.0
    assert history.deadline(50_000, 10.0) == 260.0, "nothing known: the slowest reading that makes sense"
    for _ in range(10):
        history.observed(1.0, 9_488)
    assert history.deadline(0, 2.0) == 2.0
    assert history.deadline(9_488, 2.0) == pytest.approx(8.0)
    assert history.deadline(49_488, 2.0) == pytest.approx(40.0)
