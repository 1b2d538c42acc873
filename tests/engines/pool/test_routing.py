"""Routing: the policy, the conversations that live on workers, and their load."""

from __future__ import annotations

from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.engines.pool.kv_blocks import PromptBlocks
from turnwire.engines.pool.kv_estimate import KVEstimate
from turnwire.engines.pool.routing.affinity import Bindings
from turnwire.engines.pool.routing.in_flight import InFlight
from turnwire.engines.pool.routing.load import ExpectedOutput, Load
from turnwire.engines.pool.routing.policy import Decision, TokenCost, TurnView, WorkerView

from .cache_model import PublishingCache

TURN = TurnView(prompt=50_000)


def worker(index: int, **over: object) -> WorkerView:
    return WorkerView(index=index, **over)  # type: ignore[arg-type]


def chosen(*workers: WorkerView, turn: TurnView = TURN, policy: TokenCost | None = None) -> tuple[int, str] | None:
    decision = (policy or TokenCost()).choose(turn, workers)
    return None if decision is None else (decision.index, decision.why)


# ------------------------------------------------------------------------------------------------------------ policy


def test_the_worker_that_has_least_to_do_before_the_turn_takes_it() -> None:
    assert chosen(worker(0), worker(1, cached=40_000)) == (1, "prefix")
    assert chosen(worker(0), worker(1, cached=40_000, prefilling=70_000)) == (0, "load")
    assert chosen(worker(0, decoding=9_000), worker(1)) == (1, "load")
    assert chosen(worker(0)) == (0, "only")


def test_what_is_being_read_there_counts_as_held() -> None:
    """A fan-out: the second of eight finds the first one's prompt on its way, where nothing else is held."""
    assert chosen(worker(0, prefilling=35_000, pending=35_000), worker(1), turn=TurnView(prompt=36_000)) == (
        0,
        "prefix",
    )


def test_a_full_worker_takes_nothing() -> None:
    assert chosen(worker(0), worker(1, cached=50_000, room=False)) == (0, "load")
    assert chosen(worker(0, room=False), worker(1, room=False)) is None


@pytest.mark.parametrize(
    ("affinity", "ahead", "expected"),
    [
        ("soft", 1_000, (1, "session")),
        ("soft", 2_000, (0, "load")),
        ("off", 1, (0, "load")),
        ("hard", 10**6, (1, "session")),
    ],
)
def test_a_session_is_kept_as_firmly_as_the_policy_says(affinity: str, ahead: int, expected: tuple[int, str]) -> None:
    policy = TokenCost(affinity=affinity)  # type: ignore[arg-type]
    turn = TurnView(prompt=50_000, urgency=1.0)
    assert chosen(worker(0), worker(1, bound=True, prefilling=ahead), turn=turn, policy=policy) == expected


def test_a_hard_session_waits_for_its_worker() -> None:
    policy = TokenCost(affinity="hard")
    assert chosen(worker(0), worker(1, bound=True, room=False), policy=policy) is None
    assert chosen(worker(0), worker(1), policy=policy) == (0, "load"), "one without a worker goes anywhere"


def test_a_shared_scaffold_does_not_pull_every_conversation_to_one_worker() -> None:
    """Conversations that have nothing in common but 50K tokens of scaffold come one after another."""
    policy, bindings = TokenCost(), Bindings()
    held = [0, 0, 0, 0]
    for number in range(64):
        views = [worker(n, cached=held[n], resident=bindings.resident(str(n))) for n in range(4)]
        decision = policy.choose(TurnView(prompt=52_000, fresh=True), views)
        assert decision is not None
        held[decision.index] = 50_000
        bindings.bind(f"conversation-{number}", str(decision.index), 52_000, float(number))
    lives = [bindings.worker(f"conversation-{number}", 64.0) for number in range(64)]
    counts = [lives.count(str(n)) for n in range(4)]
    assert min(counts) >= 8, counts


def test_who_is_in_no_hurry_goes_where_less_is_read() -> None:
    views = (worker(0), worker(1, cached=50_000, prefilling=60_000))
    assert chosen(*views, turn=TurnView(prompt=50_000, urgency=1.0)) == (0, "load")
    assert chosen(*views, turn=TurnView(prompt=50_000, urgency=0.25)) == (1, "prefix")


def test_a_decision_tells_its_cost() -> None:
    turn = TurnView(prompt=1_000, urgency=1.0)
    assert TokenCost().choose(turn, [worker(0, cached=600, prefilling=50, decoding=7)]) == Decision(0, "only", 457.0)


# ---------------------------------------------------------------------------------------------------------- affinity


def test_a_conversation_lives_where_it_was_last_heard_of_for_its_life_time() -> None:
    bindings = Bindings(life=60)
    bindings.bind("one", "a", 100, 0.0)
    bindings.bind("two", "a", 10, 30.0)
    assert (bindings.worker("one", 59.0), bindings.resident("a")) == ("a", 110)
    bindings.bind("one", "b", 120, 59.0)
    assert (bindings.resident("a"), bindings.resident("b")) == (10, 120)
    assert (bindings.worker("two", 91.0), bindings.resident("a")) == (None, 0)
    bindings.forget("b")
    assert (bindings.worker("one", 92.0), len(bindings)) == (None, 0)


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("xyz"), st.integers(0, 9), st.integers(0, 8))),
    st.integers(1, 5),
)
def test_what_lives_on_a_worker_is_always_the_sum_of_its_conversations(
    steps: list[tuple[str, str, int, int]], capacity: int
) -> None:
    bindings, model, now = Bindings(10.0, capacity), OrderedDict[str, tuple[str, int, float]](), 0.0
    for conversation, place, tokens, pause in steps:
        now += pause
        bindings.bind(conversation, place, tokens, now)
        model[conversation] = (place, tokens, now + 10.0)
        model.move_to_end(conversation)
        while len(model) > capacity or next(iter(model.values()))[2] <= now:
            model.popitem(last=False)
        assert {name: bindings.worker(name, now) for name in "abcdef"} == {
            name: model[name][0] if name in model else None for name in "abcdef"
        }
        for name in "xyz":
            assert bindings.resident(name) == sum(size for place, size, _ in model.values() if place == name)


# -------------------------------------------------------------------------------------------------------------- load


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, 3_000)), max_size=40))
def test_load_is_gone_with_its_turns(steps: list[tuple[int, int, int]]) -> None:
    load, turns = Load(), {}
    for name, step, tokens in steps:
        if name not in turns:
            turns[name] = load.begin(tokens, tokens + 100, 500)
        elif step == 0:
            load.read(turns[name])
        elif step == 1:
            load.wrote(turns[name], tokens)
        else:
            load.end(turns.pop(name))
        assert load.prefilling == sum(turn.prefilling for turn in turns.values())
        assert load.decoding == pytest.approx(sum(turn.decoding for turn in turns.values()))
    for turn in turns.values():
        load.end(turn)
    assert (load.prefilling, load.decoding) == (0, pytest.approx(0, abs=1e-6))


def test_the_expected_output_is_stated_or_learnt() -> None:
    expected = ExpectedOutput(start=200, capacity=2)
    assert (expected.of("s", None, None), expected.of("s", 900, None), expected.of("s", 900, 64)) == (200, 900, 64)
    for _ in range(20):
        expected.learn("s", 2_000)
    assert expected.of("s", None, None) == 2_000
    assert 200 < expected.of("another", None, None) < 2_000
    for name in ("t", "u"):
        expected.learn(name, 10)
    assert len(expected) == 2


# --------------------------------------------------------------------------------- what is read, and what was read


def test_prompts_in_flight_are_found_by_their_beginnings() -> None:
    reading = InFlight()
    scaffold = list(range(64))
    one, two = (PromptBlocks([*scaffold, *tail], None).of(8) for tail in (range(100, 150), range(200, 250)))
    reading.add(1, one[:4])
    reading.add(2, one)
    assert reading.overlap(two) == 8
    assert reading.overlap(one) == len(one)
    reading.remove(2)
    assert reading.overlap(one) == 4
    reading.remove(1)
    assert (reading.overlap(one), len(reading)) == (0, 0)


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), max_size=12), st.integers(2, 12))
def test_the_estimate_claims_no_more_than_a_cache_of_its_size_holds(prompts: list[list[int]], capacity: int) -> None:
    cache, estimate = PublishingCache(2, capacity), KVEstimate(capacity)
    for now, prompt in enumerate(prompts):
        cache.read(prompt)
        estimate.served(PromptBlocks(prompt, None).then(2, ()), float(now))
        for other in prompts:
            assert 2 * estimate.overlap(PromptBlocks(other, None).of(2), float(now)) == cache.holds(other)


def test_what_was_written_is_held_too() -> None:
    prompt, said = list(range(10)), [50, 51, 52, 53, 54, 55, 56]
    blocks = PromptBlocks(prompt, "salt")
    assert blocks.then(4, said) == PromptBlocks([*prompt, *said, 1], "salt").of(4)
