"""Several processes' answers to an operator as one.

Promise: counters and histograms are summed, and never fall because a process ended: what it counted last is kept. What
each process sees of the same thing (the state of a worker) is taken once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["MetricsPage", "merged_workers"]

# Gauges of which every process reports the same value.
_SAME = ("turnwire_workers{", "process_start_time_seconds", "process_max_fds")
_STATES = ("healthy", "draining", "suspect", "down")


class MetricsPage:
    """A page of Prometheus metrics that others can be added to."""

    def __init__(self, text: str = "") -> None:
        self._heads: dict[str, list[str]] = {}
        self._kinds: dict[str, str] = {}
        self._families: dict[str, dict[str, float]] = {}
        self.add(text)

    def add(self, text: str, *, ended: bool = False) -> None:
        """Take over a process's page; of one that has `ended` only what it counted."""
        family = ""
        for line in text.splitlines():
            if line.startswith("#"):
                _, word, family, rest = line.split(" ", 3)
                if family not in self._heads or len(self._heads[family]) < 2:
                    self._heads.setdefault(family, []).append(line)
                if word == "TYPE":
                    self._kinds[family] = rest
            elif line:
                series, _, value = line.rpartition(" ")
                self._take(family, series, float(value), ended=ended)

    def _take(self, family: str, series: str, value: float, *, ended: bool) -> None:
        values = self._families.setdefault(family, {})
        if self._kinds.get(family) != "gauge":
            values[series] = values.get(series, 0.0) + value
        elif family.endswith("_created"):
            values[series] = min(values.get(series, value), value)
        elif not ended:
            before = values.get(series, 0.0)
            values[series] = max(before, value) if series.startswith(_SAME) else before + value

    def text(self) -> str:
        """The page as a scraper reads it."""
        lines: list[str] = []
        for family, head in self._heads.items():
            lines += head
            lines += [f"{series} {value!r}" for series, value in self._families.get(family, {}).items()]
        return "\n".join(lines) + "\n"


_LOAD = ("active", "prefilling", "decoding", "resident")


def merged_workers(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every worker once: its turns of all processes, in the worst state that one of them sees."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        known = found.setdefault(
            (row["model"], row["worker"]), dict(row) | dict.fromkeys(_LOAD, 0) | {"state": _STATES[0]}
        )
        for name in _LOAD:
            known[name] += row.get(name, 0)
        known["state"] = max(known["state"], row["state"], key=_rank)
    return list(found.values())


def _rank(state: str) -> int:
    order: Sequence[str] = _STATES
    return order.index(state) if state in order else len(order)
