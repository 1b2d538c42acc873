"""README's figures are those of the result files, and the table says of each what its file says."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.commands import scale  # noqa: E402
from benchmarks.measure.results import Cell, Result, read, save, span  # noqa: E402
from benchmarks.peers.table import peers_block  # noqa: E402

from benchmarks import figures  # noqa: E402


def test_the_readme_is_made_from_the_result_files() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks", "figures", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr


def test_the_first_lines_of_the_readme_say_what_was_measured() -> None:
    run = json.loads((figures.FOLDER / "prefix.json").read_text())["conditions"]
    first = (ROOT / "README.md").read_text(encoding="utf-8").partition("```")[0]
    stable, varying = (statistics.median(run[name]["times"]) for name in ("stable", "varying"))
    tokens = run["stable"]["prompt"][-1]
    said = f"{tokens:,}-token prompt, and the first token took {varying:,.0f} ms instead of {stable:.0f} ms"
    assert said in " ".join(first.split())


ROUNDS = [file for file in sorted(figures.FOLDER.glob("**/*.json")) if "cells" in json.loads(file.read_text())]


@pytest.mark.parametrize("file", ROUNDS, ids=lambda file: file.stem)
def test_a_result_file_says_what_ran_and_keeps_every_round(file: Path) -> None:
    result = read(file.stem, file.parent)
    assert result.command == file.stem
    assert {"cpu", "cores", "python", "load"} <= set(result.machine)
    assert {cell.gateway for cell in result.cells} <= set(result.gateways)
    for cell in result.cells:
        assert cell.figures or cell.failed, cell
        assert len({len(rounds) for rounds in cell.figures.values()}) <= 1, cell
    assert json.loads(file.read_text())["taken"] == result.taken


def test_ranges_of_rounds_become_cells(tmp_path: Path) -> None:
    case = "paced, 64 x 50 tokens/s"
    cells = [
        Cell("turnwire", "chat", case, {"cpu_us": [24.2, 26.8, 25.0]}),
        Cell("turnwire", "messages", case, {"cpu_us": [9.04, 9.01]}),
        Cell("vllm-rust", "chat", case, {"cpu_us": [23.0]}),
    ]
    gateways = {name: {"version": "1", "wire": "HTTP"} for name in ("turnwire", "vllm-rust")}
    machine: dict[str, str | int | float] = {"cpu": "X", "cores": 2, "python": "3.11", "load": 0.1}
    save(Result("stream", "2026-01-02", machine, gateways, cells), tmp_path)
    lines = figures.quiet_block(tmp_path).splitlines()
    (line,) = [line for line in lines if "64 streams x 50" in line]
    assert line.endswith("| 24 to 27 / 9.0 | 23 / – |")
    assert any("Taken 2026-01-02 on 2 cores (X)" in line for line in lines)


def test_peers_are_multiples_within_a_round(tmp_path: Path) -> None:
    case = "20 messages, growing"
    cells = [
        Cell("turnwire", "chat", case, {"cpu_ms": [2.0, 4.0]}),
        Cell("dynamo", "chat", case, {"cpu_ms": [5.0, 8.0]}),
        Cell("smg", "chat", case, {"cpu_ms": [3.0]}, failed=1),
        Cell("litellm", "chat", case, {}, failed=2),
    ]
    gateways = {name: {"version": "1", "wire": "HTTP"} for name in ("turnwire", "dynamo", "smg", "litellm")}
    machine: dict[str, str | int | float] = {"cpu": "X", "cores": 2, "python": "3.11", "load": 3.0}
    save(Result("turn_cost", "2026-01-02", machine, gateways, cells, {"rounds": "2"}), tmp_path)
    lines = peers_block(tmp_path)
    (line,) = [line for line in lines if "20 messages" in line]
    assert line.endswith("| 2.0 to 4.0 | x 1 | x 2 to 2.5 | failed |")
    assert any("on 2 cores (X), load " in line and "(2 rounds)" in line for line in lines)
    assert peers_block(tmp_path / "none") == []


def test_small_figures_keep_a_digit() -> None:
    assert span([1.26, 3.04]) == "1.3 to 3.0"
    assert span([151.4]) == "151"


def test_the_page_on_scale_is_made_from_the_result_files() -> None:
    text = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    assert scale.written(text, scale.page(scale.measured(), scale.Assumed())) == text


def test_twice_the_sessions_need_twice_as_much() -> None:
    cost = scale.measured()
    one, two = (scale.need(cost, scale.Assumed(sessions=sessions)) for sessions in (10_000, 20_000))
    assert two.tokens == pytest.approx(2 * one.tokens)
    assert two.kept_tb["1 day"] == pytest.approx(2 * one.kept_tb["1 day"])
    assert scale.lost(0, [1.0, 2.0]) == 1
    assert scale.lost(1.5, [1.0, 2.0]) == 0.5
