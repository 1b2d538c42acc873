"""The routing benchmark: deterministic, and its page follows from its result file."""

from __future__ import annotations

from pathlib import Path

import msgspec
from benchmarks.commands import read_ahead
from benchmarks.commands.routing import fan_out, simulated
from benchmarks.measure.results import FOLDER
from benchmarks.routing.page import figures, index_figures, picture
from benchmarks.routing.policies import POLICIES
from benchmarks.routing.result import IndexRun, Run

ROOT = Path(__file__).resolve().parents[2]


def test_eight_sub_agents_read_their_prefix_once_for_each_worker_used() -> None:
    fan = fan_out(POLICIES["turnwire"])
    assert fan.prefix_reads < fan.used + 0.5
    assert fan_out(POLICIES["round robin"]).prefix_reads > fan.prefix_reads - 0.5


def test_the_same_agents_give_the_same_figures_and_beliefs_are_exact() -> None:
    first, second = (simulated(2, POLICIES["turnwire"], 3) for _ in range(2))
    assert first == second
    assert first.belief_error == 0
    assert 0 < first.hit_rate < 1


def test_the_page_and_the_picture_say_what_the_result_file_says() -> None:
    run = msgspec.json.decode((FOLDER / "routing.json").read_bytes(), type=Run)
    assert figures(run) in (ROOT / "docs" / "routing.md").read_text("utf-8")
    assert picture(run) == (ROOT / "docs" / "images" / "routing.svg").read_text("utf-8")


def test_the_page_says_what_the_index_costs() -> None:
    run = msgspec.json.decode((FOLDER / "routing_index.json").read_bytes(), type=IndexRun)
    assert index_figures(run) in (ROOT / "docs" / "routing.md").read_text("utf-8")


def test_the_page_says_what_reading_ahead_gave() -> None:
    run = msgspec.json.decode((FOLDER / "read_ahead.json").read_bytes(), type=read_ahead.Run)
    assert read_ahead.page(run) in read_ahead.PAGE.read_text("utf-8")
