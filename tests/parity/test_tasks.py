"""The tasks: each checker refuses what is there and takes what is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from turnwire.parity.tasks import TASKS, Task, write_tasks


def passes(task: Task, expression: str) -> bool:
    space: dict[str, Any] = {}
    exec(task.source(expression), space)
    try:
        return bool(eval(task.checks, {"f": space[task.name]}))
    except (LookupError, TypeError, ValueError, ZeroDivisionError):
        return False


def test_there_are_fifty_of_different_names() -> None:
    assert len(TASKS) == len({task.name for task in TASKS}) == 50


@pytest.mark.parametrize("task", TASKS, ids=[task.name for task in TASKS])
def test_only_the_right_function_passes(task: Task) -> None:
    assert not passes(task, task.wrong)
    assert passes(task, task.right)


def test_they_are_written_as_repositories(tmp_path: Path) -> None:
    assert write_tasks(tmp_path) == 50
    clamp = tmp_path / "clamp"
    assert sorted(path.name for path in clamp.rglob("*.*")) == ["check.py", "check.py", "clamp.py", "prompt.txt"]
    assert "clamp.py" in (clamp / "prompt.txt").read_text()
