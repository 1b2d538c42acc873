"""What follows a failure: every cell of the table, and the budget that bounds it."""

from __future__ import annotations

from typing import get_args

import pytest

from turnwire.engines.failures import Kind
from turnwire.engines.pool.after_failure import Attempts, Budget, Next, next_step

# The engine's word, whether the worker had said something, whether the turn can go on elsewhere.
CELLS: dict[tuple[Kind, bool, bool], Next] = {
    ("unreachable", False, True): "retry",
    ("unreachable", True, True): "migrate",
    ("unreachable", False, False): "give_up",
    ("unreachable", True, False): "give_up",
    ("disconnected", False, True): "retry",
    ("disconnected", True, True): "migrate",
    ("disconnected", False, False): "give_up",
    ("disconnected", True, False): "give_up",
    ("overloaded", False, True): "retry",
    ("overloaded", True, True): "migrate",
    ("overloaded", False, False): "give_up",
    ("overloaded", True, False): "give_up",
    ("timeout", False, True): "retry",
    ("timeout", True, True): "migrate",
    ("timeout", False, False): "give_up",
    ("timeout", True, False): "give_up",
    ("internal", False, True): "retry",
    ("internal", True, True): "migrate",
    ("internal", False, False): "give_up",
    ("internal", True, False): "give_up",
    ("context_overflow", False, True): "give_up",
    ("context_overflow", True, True): "give_up",
    ("context_overflow", False, False): "give_up",
    ("context_overflow", True, False): "give_up",
    ("invalid_request", False, True): "give_up",
    ("invalid_request", True, True): "give_up",
    ("invalid_request", False, False): "give_up",
    ("invalid_request", True, False): "give_up",
}


def test_the_table_has_every_cell() -> None:
    assert set(CELLS) == {
        (word, said, can) for word in get_args(Kind) for said in (False, True) for can in (False, True)
    }


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: "-".join(map(str, cell)))
def test_each_cell(cell: tuple[Kind, bool, bool]) -> None:
    word, had_output, can_move = cell
    assert next_step(word, had_output=had_output, can_move=can_move) == CELLS[cell]


def outcomes(budget: Budget, *said: int, word: Kind = "disconnected", others: bool = True) -> list[Next]:
    attempts = Attempts(budget)
    return [attempts.after(word, said=count, movable=True, others=others) for count in said]


def test_refusals_in_a_row_are_bounded_and_output_renews_them() -> None:
    budget = Budget(retries=2, migrations=9)
    assert outcomes(budget, 0, 0, 0) == ["retry", "retry", "give_up"]
    assert outcomes(budget, 0, 0, 5, 0, 0, 0) == ["retry", "retry", "migrate", "retry", "retry", "give_up"]


def test_moves_in_a_row_are_bounded_and_progress_renews_them() -> None:
    budget = Budget(migrations=2, progress=10, moves=4)
    assert outcomes(budget, 1, 1, 1) == ["migrate", "migrate", "give_up"]
    assert outcomes(budget, 10, 10, 10, 10, 10) == ["migrate"] * 4 + ["give_up"]


def test_a_single_worker_is_asked_again_only_if_it_may_come_back() -> None:
    gone: tuple[Kind, ...] = ("unreachable", "disconnected")
    for word in get_args(Kind):
        (step,) = outcomes(Budget(), 0, word=word, others=False)
        assert step == ("retry" if word in gone else "give_up"), word
        (step,) = outcomes(Budget(), 3, word=word, others=False)
        assert step == ("migrate" if word in gone else "give_up"), word
