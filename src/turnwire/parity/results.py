"""Results of runs: one line of JSON for each run of a task on an arm.

Promise: a file of results from anywhere can be compared; a task that an arm lacks is left out and named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from turnwire.parity.statistics import Comparison, compare

__all__ = ["MEASURES", "Parity", "Run", "compared", "read_runs", "write_runs"]

MEASURES = ("calls", "turns", "prompt_tokens", "output_tokens", "seconds", "success")


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one task on one arm."""

    task: str
    arm: str
    run: int = 0
    calls: int
    turns: int
    prompt_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    success: bool = False
    note: str = ""


class Parity(msgspec.Struct, frozen=True):
    """Two arms over the tasks that both have. `left_out` are the tasks of only one."""

    arms: tuple[str, str]
    tasks: list[str]
    left_out: list[str]
    measures: list[Comparison]


def read_runs(path: Path) -> list[Run]:
    """The runs of a file, or ValueError that names the line."""
    runs = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if line.strip():
            try:
                runs.append(msgspec.json.decode(line, type=Run))
            except msgspec.DecodeError as error:
                raise ValueError(f"{path}, line {number}: {error}") from None
    return runs


def write_runs(path: Path, runs: Iterable[Run]) -> None:
    """Append runs to a file."""
    with path.open("ab") as file:
        for run in runs:
            file.write(msgspec.json.encode(run) + b"\n")


def compared(runs: Sequence[Run], arms: tuple[str, str]) -> Parity:
    """The first arm against the second: the mean of each measure over a task's runs, task by task."""
    for arm in arms:
        if not any(run.arm == arm for run in runs):
            known = sorted({run.arm for run in runs})
            raise ValueError(f"no run of the arm {arm!r}; the file has {', '.join(known) or 'none'}")
    tasks = {arm: {run.task for run in runs if run.arm == arm} for arm in arms}
    both = sorted(tasks[arms[0]] & tasks[arms[1]])
    measures = {
        measure: (_means(runs, arms[0], both, measure), _means(runs, arms[1], both, measure)) for measure in MEASURES
    }
    return Parity(arms, both, sorted(tasks[arms[0]] ^ tasks[arms[1]]), compare(measures))


def _means(runs: Sequence[Run], arm: str, tasks: Sequence[str], measure: str) -> list[float]:
    values: dict[str, list[float]] = {}
    for run in runs:
        if run.arm == arm:
            values.setdefault(run.task, []).append(float(getattr(run, measure)))
    return [sum(values[task]) / len(values[task]) for task in tasks]
