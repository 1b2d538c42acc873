"""The routing benchmark: deterministic, and its page follows from its result file."""

from __future__ import annotations

from benchmarks.commands.routing import fan_out, simulated
from benchmarks.routing.policies import POLICIES


def test_eight_sub_agents_read_their_prefix_once_for_each_worker_used() -> None:
    fan = fan_out(POLICIES["turnwire"])
    assert fan.prefix_reads < fan.used + 0.5
    assert fan_out(POLICIES["round robin"]).prefix_reads > fan.prefix_reads - 0.5


def test_the_same_agents_give_the_same_figures_and_beliefs_are_exact() -> None:
    first, second = (simulated(2, POLICIES["turnwire"], 3) for _ in range(2))
    assert first == second
    assert first.belief_error == 0
    assert 0 < first.hit_rate < 1
