"""The waiting line: rank first, then each tenant's share, then priority and arrival."""

from __future__ import annotations

import random
from collections import Counter

from turnwire.engines.pool import WaitingLine


def served(line: WaitingLine[str], count: int, cost: float = 100.0) -> list[str]:
    """Who is served, each charged the same."""
    order = []
    for _ in range(count):
        ticket = line.head()
        if ticket is None:
            break
        line.leave(ticket)
        line.settle(ticket.tenant, 0, cost)
        order.append(ticket.item)
    return order


def test_priority_then_arrival_within_a_tenant() -> None:
    line: WaitingLine[str] = WaitingLine(3)
    tickets = {name: line.join(name, priority=priority) for name, priority in (("a", 0), ("b", 5), ("c", 0))}
    assert line.full
    line.leave(tickets["a"])
    line.leave(tickets["a"])
    assert len(line) == 2
    assert [ticket.item for ticket in line.in_order()] == ["b", "c"]
    assert served(line, 9) == ["b", "c"]
    assert len(line) == 0
    assert line.head() is None


def test_who_floods_the_line_delays_nobody_else() -> None:
    line: WaitingLine[str] = WaitingLine(1000)
    for number in range(120):
        line.join(f"flood-{number}", tenant="flood")
    for number in range(3):
        line.join(f"small-{number}", tenant="small")
    first = served(line, 8)
    assert [name for name in first if name.startswith("small")] == ["small-0", "small-1", "small-2"]
    assert max(first.index(f"small-{number}") for number in range(3)) <= 6


def test_shares_are_in_tokens_and_by_weight() -> None:
    line: WaitingLine[str] = WaitingLine(10_000)
    weights = {"one": 1.0, "three": 3.0}
    costs = {"one": 50.0, "three": 500.0}
    for tenant in weights:
        for _ in range(2000):
            line.join(tenant, tenant=tenant)
    tokens: Counter[str] = Counter()
    for _ in range(1000):
        ticket = line.head()
        assert ticket is not None
        line.leave(ticket)
        tokens[ticket.tenant] += int(costs[ticket.tenant])
        line.settle(ticket.tenant, 0, costs[ticket.tenant] / weights[ticket.tenant])
    assert abs(tokens["three"] / tokens["one"] - 3.0) < 0.1


def test_idleness_earns_no_credit() -> None:
    line: WaitingLine[str] = WaitingLine(1000)
    for _ in range(200):
        line.join("busy", tenant="busy")
    served(line, 100)
    for _ in range(50):
        line.join("late", tenant="late")
    order = served(line, 40)
    assert 18 <= order.count("late") <= 22


def test_what_runs_counts_by_what_it_will_probably_get() -> None:
    line: WaitingLine[str] = WaitingLine(10)
    line.settle("a", 0, 100)
    line.settle("b", 0, 100)
    line.reserve("a", 50)
    line.join("a", tenant="a")
    line.join("b", tenant="b")
    assert [ticket.item for ticket in line.in_order()] == ["b", "a"]
    line.settle("a", 50, 10)
    line.settle("b", 0, 20)
    assert [ticket.item for ticket in line.in_order()] == ["a", "b"]


def test_a_rank_goes_before_another_tenants_share_and_a_priority_does_not() -> None:
    line: WaitingLine[str] = WaitingLine(10)
    line.settle("a", 0, 10_000)
    line.join("b", tenant="b")
    line.join("urgent a", tenant="a", priority=100)
    line.join("ranked a", tenant="a", rank=1)
    assert served(line, 3) == ["ranked a", "b", "urgent a"]


def test_who_lost_a_worker_stands_before_the_others_of_its_tenant() -> None:
    line: WaitingLine[str] = WaitingLine(10)
    line.join("new", tenant="a")
    line.join("moved", tenant="a", again=True)
    assert served(line, 2) == ["moved", "new"]


def test_any_order_of_joining_and_leaving_keeps_the_count_and_forgets_idle_tenants() -> None:
    dice = random.Random(4)
    line: WaitingLine[int] = WaitingLine(100_000)
    tickets = []
    for number in range(20_000):
        if tickets and dice.random() < 0.5:
            line.leave(tickets.pop(dice.randrange(len(tickets))))
        else:
            tickets.append(line.join(number, tenant=str(dice.randrange(10_000)), priority=dice.randrange(3)))
    assert len(line) == len(tickets)
    assert {ticket.item for ticket in line.in_order()} == {ticket.item for ticket in tickets}
    for ticket in tickets:
        line.leave(ticket)
    assert (len(line), line.head()) == (0, None)
    assert len(line._used) <= 4097


def test_tiers_are_strict_and_priority_is_worth_seconds_within_one() -> None:
    line: WaitingLine[str] = WaitingLine(10)
    line.join("long waiting", at=0.0)
    line.join("urgent", priority=5, at=4.0)
    line.join("too late for its urgency", priority=5, at=6.0)
    line.join("background", priority=-2, at=4.5)
    line.join("tier", tier=1, at=9.0)
    line.join("urgent in its tier", tier=1, priority=1, at=9.5)
    assert [ticket.item for ticket in line.in_order()] == [
        "urgent in its tier",
        "tier",
        "urgent",
        "long waiting",
        "too late for its urgency",
        "background",
    ]
