"""The page of the real parity runs says what the result files say, failures included."""

from __future__ import annotations

from pathlib import Path

import msgspec
from benchmarks.parity.coder import Results
from benchmarks.parity.page import parity_block

from turnwire.parity.results import Run


def _run(task: str, arm: str, *, success: bool, note: str = "") -> Run:
    return Run(task=task, arm=arm, calls=3, turns=4, seconds=61.2, success=success, note=note)


def test_every_run_is_shown(tmp_path: Path) -> None:
    runs = [
        _run("last", "greedy", success=True),
        _run("last", "sampled", success=False, note="the client ended with None: …"),
        _run("pad", "greedy", success=False),
    ]
    machine: dict[str, str | int | float] = {"cpu": "X", "cores": 2, "python": "3.11", "load": 9.0}
    made = Results("2026-01-02", machine, "1234567", "coder", "turnwire chat", 240.0, runs)
    (tmp_path / "parity.json").write_bytes(msgspec.json.encode(made))
    text = parity_block(tmp_path)
    assert "| last | passed (3 calls, 61 s) | failed, out of time (3 calls, 61 s) |" in text
    assert "| pad | failed (3 calls, 61 s) | – |" in text
    assert "1 tasks, greedy against sampled." in text
    assert "which other work used too" in text
    assert parity_block(tmp_path / "none") == "Nothing was run yet."
