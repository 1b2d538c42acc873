"""Statistics against answers that are known from elsewhere."""

from __future__ import annotations

import pytest

from turnwire.parity import statistics
from turnwire.parity.statistics import Signs, bootstrap_interval, compare, holm, permutation_test, signs

# Darwin's fifteen pairs of maize, in eighths of an inch: Fisher counted 1,726 of 32,768 choices of signs as far out.
MAIZE = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]


def test_the_exact_test_gives_fishers_count() -> None:
    assert permutation_test(MAIZE) == 1726 / 32768


def test_draws_come_near_the_exact_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "EXACT_PAIRS", 0)
    drawn = permutation_test(MAIZE, draws=20_000)
    assert drawn == permutation_test(MAIZE, draws=20_000)
    assert abs(drawn - 1726 / 32768) < 0.005


def test_fifty_wins_of_fifty_are_no_chance() -> None:
    differences = [20 + n % 7 for n in range(50)]
    assert signs(differences) == Signs(50, 0, 0)
    assert permutation_test(differences) < 0.001


def test_twenty_eight_and_two_ties_are_chance() -> None:
    """Fifty tasks with the published totals, 2,205 against 2,081, and the published directions; the differences of the
    single tasks are not published, these are made to fit."""
    differences = [*([1, 2, 3, 7, 12, 20, 33] * 4), *([-1, -2, -5, -12, -27] * 4), 0, 0]
    assert sum(differences) == 2205 - 2081
    assert signs(differences) == Signs(28, 20, 2)
    assert permutation_test(differences) == pytest.approx(0.22, abs=0.02)


def test_no_difference_and_no_pairs() -> None:
    assert permutation_test([]) == 1.0
    assert permutation_test([0.0, 0.0]) == 1.0
    assert permutation_test([0.0] * 30, draws=100) == 1.0
    assert permutation_test([1.0]) == 1.0
    assert permutation_test([0.1, 0.2, 0.3]) == 0.25
    assert bootstrap_interval([]) == (0.0, 0.0)


def test_holm() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_intervals_hold_the_mean_and_shrink() -> None:
    low, high = bootstrap_interval(MAIZE, resamples=2000)
    assert low < sum(MAIZE) / len(MAIZE) < high
    wider = bootstrap_interval(MAIZE, resamples=2000, level=0.99)
    assert wider[0] <= low
    assert wider[1] >= high
    assert bootstrap_interval([3.0, 3.0, 3.0], resamples=100) == (3.0, 3.0)


def test_a_comparison_is_first_minus_second() -> None:
    (calls, turns) = compare({"calls": ([2, 4, 6], [1, 1, 1]), "turns": ([1, 1, 1], [1, 1, 1])})
    assert (calls.first, calls.second, calls.difference, calls.signs) == (4, 1, 3, Signs(3, 0, 0))
    assert (calls.p, calls.adjusted) == (0.25, 0.5)
    assert (turns.p, turns.adjusted) == (1.0, 1.0)
