"""A result file: what was measured, of which versions, on which machine, with every round's figure.

Promise: a figure is never a single number without its rounds; whoever reads the file can tell what ran.
"""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

FOLDER = Path(__file__).resolve().parents[1] / "results"


class Cell(msgspec.Struct):
    """One gateway, API and case: a list of rounds for each figure. `failed` counts rounds that gave none."""

    gateway: str
    api: str
    case: str
    figures: dict[str, list[float]]
    failed: int = 0


class Result(msgspec.Struct):
    """One run of a command; `options` are those that it was started with, or its own."""

    command: str
    taken: str
    machine: dict[str, str | int | float]
    gateways: dict[str, dict[str, str]]
    cells: list[Cell]
    options: dict[str, str] = {}

    def cell(self, gateway: str, api: str, case: str) -> Cell | None:
        """The cell of a gateway, or None where it was not measured."""
        return next((c for c in self.cells if (c.gateway, c.api, c.case) == (gateway, api, case)), None)


def machine() -> dict[str, str | int | float]:
    """What the figures depend on."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    return {
        "cpu": model,
        "cores": os.cpu_count() or 0,
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 1),
    }


def place(machine: Mapping[str, str | int | float]) -> str:
    """The machine in words, as pages name it."""
    return f"{machine.get('cores')} cores ({machine.get('cpu')})"


def today() -> str:
    """The day, as result files write it."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def save(result: Result, folder: Path = FOLDER) -> Path:
    """Write a result where the README's table is made from."""
    folder.mkdir(exist_ok=True)
    file = folder / f"{result.command}.json"
    file.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")
    return file


def read(command: str, folder: Path = FOLDER) -> Result:
    """The last saved result of a command."""
    return msgspec.json.decode((folder / f"{command}.json").read_bytes(), type=Result)


def span(values: Sequence[float]) -> str:
    """The range of rounds, as tables say it."""
    low, high = figure(min(values)), figure(max(values))
    return low if low == high else f"{low} to {high}"


def figure(value: float) -> str:
    """A number with as many digits as it deserves."""
    if value >= 20:
        return f"{value:.0f}"
    return f"{value:.1f}"
