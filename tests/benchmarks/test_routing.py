"""The routing benchmark: deterministic, and its page follows from its result file."""

from __future__ import annotations

from array import array
from pathlib import Path

import msgspec
from benchmarks.commands import read_ahead
from benchmarks.commands.routing import fan_out, simulated
from benchmarks.measure.results import FOLDER
from benchmarks.routing.agents import Agent
from benchmarks.routing.page import figures, index_figures, picture, workers_figures
from benchmarks.routing.policies import POLICIES
from benchmarks.routing.result import IndexRun, Run, WorkersRun
from benchmarks.routing.traces import TracedAgent, TracedTurn, copies, shipped, traced
from tests.capture.made import turn

from turnwire.shared_prefix import shared_prefix

ROOT = Path(__file__).resolve().parents[2]


def test_eight_sub_agents_read_their_prefix_once_for_each_worker_used() -> None:
    fan = fan_out(POLICIES["turnwire"])
    assert fan.prefix_reads < fan.used + 0.5
    assert fan_out(POLICIES["round robin"]).prefix_reads > fan.prefix_reads - 0.5


def test_the_same_agents_give_the_same_figures_and_beliefs_are_exact() -> None:
    first, second = (simulated(2, POLICIES["turnwire"], [Agent(f"a{n}", "t") for n in range(3)]) for _ in range(2))
    assert first == second
    assert first.belief_error == 0
    assert 0 < first.hit_rate < 1


def test_a_captured_session_is_a_trace_of_lengths_and_times() -> None:
    scaffold = list(range(100))
    first = [*scaffold, 7, 8]
    second = [*first, 900, 901, 5, 6, 5]
    turns = [
        turn("a", prompt=first, output=[900, 901], at=10.0, session="s", answer=((2.0, "x"),)),
        turn("t", prompt=[1], output=[2], at=10.5, session="s", turn_class="title"),
        turn("b", prompt=[*range(500, 600), 1], output=[3], at=12.5, session="s", agent="x"),
        turn("c", prompt=[*range(500, 600), 2], output=[3], at=12.5, session="s", agent="y"),
        turn("d", prompt=second, output=[4], at=15.0, session="s"),
        turn("e", prompt=[*scaffold, 9], output=[4], at=30.0, session="other"),
    ]
    trace = traced(turns, "made")
    assert [(c.kind, c.shared, c.sub) for c in trace.conversations] == [
        ("made-0", 100, False), ("made-1", 100, True), ("made-1", 100, True), ("made-0", 100, False)
    ]  # fmt: skip
    assert trace.conversations[0].turns == [TracedTurn(102, 0, 2, 3.0, (1, 2), True), TracedTurn(107, 104, 1)]
    one, other = (list(TracedAgent(trace, 0, copy).turns()) for copy in "xy")
    assert [len(t.prompt) for t in one] == [102, 107]
    assert one[1].prompt[:102] == one[0].prompt
    assert [agent.name for agent in one[0].fan_out] == ["made/1/x", "made/2/x"]
    assert shared_prefix(array("I", one[0].prompt), array("I", other[0].prompt)) == 100


def test_captured_sessions_of_real_clients_are_played() -> None:
    traces = shipped()
    assert [trace.source.partition("-")[0] for trace in traces] == ["claude", "codex"]
    assert max(len(t.fan_out) for trace in traces for c in trace.conversations for t in c.turns) == 8
    ours, theirs = (simulated(2, POLICIES[name], copies(traces, 3)) for name in ("turnwire", "round robin"))
    assert ours.turns == theirs.turns
    assert ours.hit_rate > theirs.hit_rate
    assert ours.belief_error == 0


def test_the_page_and_the_picture_say_what_the_result_file_says() -> None:
    run = msgspec.json.decode((FOLDER / "routing.json").read_bytes(), type=Run)
    assert figures(run) in (ROOT / "docs" / "routing.md").read_text("utf-8")
    assert picture(run) == (ROOT / "docs" / "images" / "routing.svg").read_text("utf-8")


def test_the_page_says_what_the_index_costs() -> None:
    run = msgspec.json.decode((FOLDER / "routing_index.json").read_bytes(), type=IndexRun)
    assert index_figures(run) in (ROOT / "docs" / "routing.md").read_text("utf-8")


def test_the_page_says_what_real_workers_did() -> None:
    run = msgspec.json.decode((FOLDER / "routing_workers.json").read_bytes(), type=WorkersRun)
    assert workers_figures(run) in (ROOT / "docs" / "routing.md").read_text("utf-8")
    assert sum(row.wrong for row in run.beliefs if not row.phase.startswith("events lost")) == 0


def test_the_page_says_what_reading_ahead_gave() -> None:
    run = msgspec.json.decode((FOLDER / "read_ahead.json").read_bytes(), type=read_ahead.Run)
    assert read_ahead.page(run) in read_ahead.PAGE.read_text("utf-8")
