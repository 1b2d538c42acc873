"""What workers are believed to hold, against a model of a cache: never more, and with all events never less."""

from __future__ import annotations

import random
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwire.engines.pool import kv_index
from turnwire.engines.pool.kv_blocks import PromptBlocks
from turnwire.engines.pool.kv_estimate import KVEstimate
from turnwire.engines.pool.kv_events import BlocksRemoved, BlocksStored, KVFeed, decode_events
from turnwire.engines.pool.kv_index import Held, KVIndex

from .cache_model import PublishingCache

# Few tokens and short prompts, so that prefixes are shared, evicted and come back.
PROMPTS = st.lists(st.integers(0, 2), max_size=14)
SALTS = st.sampled_from([None, "a"])
READS = st.lists(st.tuples(st.integers(0, 1), PROMPTS, SALTS, st.booleans()), max_size=30)


def believed(index: KVIndex, ids: list[int], salt: str | None = None) -> dict[str, int]:
    return {name: held.tokens for name, held in index.overlap(PromptBlocks(ids, salt)).items()}


class Sink:
    """The index, as a feed sees one worker of it."""

    def __init__(self, index: KVIndex, name: str) -> None:
        self._index, self._name = index, name
        self.apply = lambda events: index.apply(name, events)
        self.clear = lambda: index.clear(name)


@given(READS, st.integers(1, 3), st.integers(1, 8), PROMPTS, SALTS, st.sampled_from([0, 1, 2048]))
def test_with_all_events_what_is_believed_is_what_is_held(
    reads: list[tuple[int, list[int], str | None, bool]],
    size: int,
    capacity: int,
    ask: list[int],
    salt: str | None,
    swept: int,
) -> None:
    index = KVIndex()
    caches = {"x": PublishingCache(size, capacity), "y": PublishingCache(size, capacity + 1)}
    for worker in caches:
        index.join(worker)
    for which, prompt, under, cleared in reads:
        worker = "xy"[which]
        cache = caches[worker]
        before = len(cache.messages)
        cache.clear() if cleared and not prompt else cache.read(prompt, under)
        with patch.object(kv_index, "_SWEPT", swept):
            for message in cache.messages[before:]:
                index.apply(worker, decode_events(message))
        assert index.blocks(worker) == len(cache.blocks)
    for prompt, under in [(ask, salt), *((p, u) for _, p, u, _ in reads)]:
        for worker, tokens in believed(index, prompt, under).items():
            assert tokens == caches[worker].holds(prompt, under)


@settings(max_examples=40, deadline=None)
@given(READS, st.integers(1, 3), st.integers(1, 6), st.randoms(use_true_random=False), st.booleans())
def test_with_gaps_and_restarts_no_more_is_believed_than_is_held(
    reads: list[tuple[int, list[int], str | None, bool]], size: int, capacity: int, chance: random.Random, replays: bool
) -> None:
    """Messages are lost on the way, the engine keeps only its last three for a replay, and it is started again: when
    the newest message has come, nothing is claimed that is not held, and where all is known, all is claimed."""
    index = KVIndex()
    index.join("x")
    feed = KVFeed(Sink(index, "x"), replays=replays)
    cache = PublishingCache(size, capacity)
    sent = 0
    arrived = True
    for _which, prompt, salt, restart in reads:
        if restart and not prompt:
            cache, sent, arrived = PublishingCache(size, capacity), 0, True
            feed.lost()
        cache.clear() if not prompt and not restart else cache.read(prompt, salt)
        for number in range(sent, len(cache.messages)):
            arrived = chance.random() > 0.3
            if arrived:
                feed.live(number, cache.messages[number])
        sent = len(cache.messages)
        while feed.wanted is not None:
            for number in range(max(feed.wanted, sent - 3), sent):
                feed.replayed(number, cache.messages[number])
                arrived = True
            feed.replay_over()
        if arrived:
            for ids, under in ((p, u) for _, p, u, _ in reads):
                claimed, held = believed(index, ids, under).get("x", 0), cache.holds(ids, under)
                assert claimed == held if feed.complete else claimed <= held


def feeding(replays: bool) -> tuple[KVFeed, KVIndex, PublishingCache]:
    index = KVIndex()
    index.join("x")
    return KVFeed(Sink(index, "x"), replays=replays), index, PublishingCache(2, 100)


def test_a_gap_is_replayed_and_what_came_meanwhile_follows() -> None:
    feed, index, cache = feeding(True)
    feed.replay_over()
    for length in (3, 5, 7, 9, 11):
        cache.read(list(range(length)))
    feed.live(0, cache.messages[0])
    feed.live(3, cache.messages[3])
    assert feed.wanted == 1
    feed.live(4, cache.messages[4])
    assert not feed.complete
    for number in (1, 2, 3):
        feed.replayed(number, cache.messages[number])
    feed.replay_over()
    assert feed.complete
    assert believed(index, list(range(12))) == {"x": 10}


def test_a_gap_that_cannot_be_filled_forgets_what_was_known() -> None:
    feed, index, cache = feeding(False)
    for length in (3, 5, 7):
        cache.read(list(range(length)))
    feed.live(0, cache.messages[0])
    assert believed(index, list(range(8))) == {"x": 2}
    assert feed.complete
    feed.live(2, cache.messages[2])
    assert not feed.complete
    assert believed(index, list(range(8))) == {"x": 0}, "its beginning was never seen"


def test_after_an_empty_cache_everything_is_known_again() -> None:
    feed, index, cache = feeding(False)
    cache.read([1, 2, 3])
    cache.clear()
    cache.read(list(range(5)))
    assert not feed.complete
    feed.live(1, cache.messages[1])
    feed.live(2, cache.messages[2])
    assert feed.complete
    assert believed(index, list(range(5))) == {"x": 4}


def test_a_number_that_goes_back_is_a_restart() -> None:
    feed, index, cache = feeding(False)
    cache.read(list(range(9)))
    cache.read(list(range(50, 59)))
    for number in (0, 1):
        feed.live(number, cache.messages[number])
    fresh = PublishingCache(2, 100)
    fresh.read([7, 7, 7])
    feed.live(0, fresh.messages[0])
    assert believed(index, list(range(9))) == {"x": 0}
    assert believed(index, [7, 7, 7]) == {"x": 2}
    assert feed.complete


def test_a_late_subscriber_asks_for_the_beginning() -> None:
    feed, index, cache = feeding(True)
    assert feed.wanted == 0
    for length in (3, 5, 7):
        cache.read(list(range(length)))
    feed.live(2, cache.messages[2])
    for number in (0, 1, 2):
        feed.replayed(number, cache.messages[number])
    feed.replay_over()
    assert feed.complete
    assert believed(index, list(range(8))) == {"x": 6}


def test_messages_between_the_replay_and_the_subscription_are_asked_for() -> None:
    feed, index, cache = feeding(True)
    for length in (3, 5, 7, 9):
        cache.read(list(range(length)))
    feed.replayed(0, cache.messages[0])
    feed.live(3, cache.messages[3])
    feed.replay_over()
    assert feed.wanted == 1
    for number in (1, 2, 3):
        feed.replayed(number, cache.messages[number])
    feed.replay_over()
    assert feed.complete
    assert believed(index, list(range(10))) == {"x": 8}


def test_a_replay_that_never_comes_does_not_hold_everything() -> None:
    feed, _index, cache = feeding(True)
    cache.read([1, 2, 3])
    for number in range(5, 6000):
        feed.live(number, cache.messages[0])
    assert feed.wanted is None
    assert not feed._held


def stored(names: list[int], parent: int | None, ids: list[int], size: int = 2, **more: object) -> BlocksStored:
    return BlocksStored(names, parent, ids, size, **more)  # type: ignore[arg-type]


def one(index: KVIndex, ids: list[int], salt: str | None = None) -> Held:
    return index.overlap(PromptBlocks(ids, salt))["x"]


@pytest.fixture
def index() -> KVIndex:
    subject = KVIndex()
    subject.join("x")
    return subject


def test_tiers_are_told_apart(index: KVIndex) -> None:
    ids = list(range(9))
    index.apply("x", [stored([1, 2, 3, 4], None, ids[:8])])
    index.apply("x", [stored([3, 4], 2, ids[4:8], medium="CPU"), BlocksRemoved([3, 4], "GPU")])
    index.apply("x", [stored([4], 3, ids[6:8], medium="NVME"), BlocksRemoved([4], "CPU")])
    assert one(index, ids) == Held(8, 4, 2, 2)
    index.apply("x", [BlocksRemoved([3], "CPU")])
    assert one(index, ids) == Held(4, 4, 0, 0)
    assert index.blocks("x") == 3, "the last one is held, but cannot be used"


def test_a_prefix_without_its_beginning_is_not_claimed(index: KVIndex) -> None:
    index.apply("x", [stored([1, 2, 3], None, list(range(6))), BlocksRemoved([1])])
    assert one(index, list(range(7))).tokens == 0
    index.apply("x", [stored([1], None, [0, 1])])
    assert one(index, list(range(7))).tokens == 6, "it is whole again"
    index.apply("x", [stored([9], 77, [6, 7])])
    assert one(index, list(range(9))).tokens == 6, "what follows an unknown block is unknown"


def test_salts_adapters_and_images_are_other_prefixes(index: KVIndex) -> None:
    index.apply("x", [stored([1, 2], None, [0, 1, 2, 3], extra_keys=[["tenant"], None])])
    assert one(index, [0, 1, 2, 3, 4]).tokens == 0
    assert one(index, [0, 1, 2, 3, 4], "tenant").tokens == 4
    index.apply("x", [stored([3, 4], None, [5, 5, 6, 6], lora_name="style")])
    assert one(index, [5, 5, 6, 6, 7]).tokens == 0
    index.apply("x", [stored([5, 6], None, [8, 8, 9, 9], extra_keys=[None, ["image"]])])
    assert one(index, [8, 8, 9, 9, 1]).tokens == 2


def test_signed_numbers_and_bytes_are_names_too(index: KVIndex) -> None:
    message = [
        1.0,
        [
            {"type": "BlockStored", "block_hashes": [-5], "parent_block_hash": None, "token_ids": [1, 2],
             "block_size": 2, "lora_id": None, "medium": "GPU"},
            {"type": "BlockStored", "block_hashes": [b"\x01" * 32], "parent_block_hash": -5, "token_ids": [3, 4],
             "block_size": 2},
            {"type": "SomethingElse", "x": 1},
        ],
    ]  # fmt: skip
    index.apply("x", decode_events(msgspec.msgpack.encode(message)))
    assert one(index, [1, 2, 3, 4, 5]).tokens == 4


def test_nonsense_is_passed_over_and_the_bound_is_kept() -> None:
    index = KVIndex(capacity=3)
    index.join("x")
    index.apply(
        "x", [stored([1], None, [1, 2, 3]), stored([2], None, [1], size=0), stored([3], None, [1, 2], group_idx=1)]
    )
    assert index.blocks("x") == 0
    index.apply("x", [stored([1, 2, 3, 4], None, list(range(8)))])
    assert index.blocks("x") == 3
    assert one(index, list(range(9))).tokens == 6
    index.leave("x")
    assert index._tiers == ({}, {}, {})


def test_a_large_cache_is_forgotten_at_once_and_let_go_little_by_little(index: KVIndex) -> None:
    index.join("y")
    ids = list(range(200))
    for name in "xy":
        index.apply(name, [stored(list(range(1, 101)), None, ids)])
    with patch.object(kv_index, "_SWEPT", 10):
        index.clear("x")
        assert believed(index, [*ids, 1]) == {"x": 0, "y": 200}
        assert sum(mask != index._workers["y"].bit for mask in index._tiers[0].values()) == 90
        index.clear("x")
        assert len(index._forgotten) == 1, "an empty cache adds nothing"
    index.apply("x", [stored(list(range(1, 46)), None, ids[:90])])
    assert believed(index, [*ids, 1]) == {"x": 90, "y": 200}
    assert not index._forgotten, "twice what comes is let go"
    assert {mask.bit_length() for mask in index._tiers[0].values()} == {2, 3}


def test_workers_come_and_go() -> None:
    index = KVIndex()
    for name in "abc":
        index.join(name)
        index.apply(name, [stored([1], None, [0, 1])])
    index.leave("b")
    index.join("d")
    index.apply("d", [stored([1, 2], None, [0, 1, 2, 3])])
    assert believed(index, [0, 1, 2, 3, 4]) == {"a": 2, "c": 2, "d": 4}


def test_block_sizes_may_differ() -> None:
    index = KVIndex()
    index.join("a")
    index.join("b")
    index.apply("a", [stored([1, 2], None, list(range(8)), size=4)])
    index.apply("b", [stored([1, 2, 3], None, list(range(9)), size=3)])
    assert believed(index, list(range(10))) == {"a": 8, "b": 9}


def test_one_walk_answers_for_all_workers() -> None:
    """The work for a decision depends on the prompt, not on the prompt times the workers."""
    workers = 64
    index = KVIndex()
    ids = list(range(3200))
    names = list(range(1, 201))
    for number in range(workers):
        index.join(str(number))
        index.apply(str(number), [stored(names[: number + 1], None, ids[: 16 * (number + 1)], size=16)])
    looked = 0

    class Counting(dict[int, int]):
        def get(self, key: int, default: int = 0) -> int:  # type: ignore[override]
            nonlocal looked
            looked += 1
            return super().get(key, default)

    index._tiers = (Counting(index._tiers[0]), {}, {})
    found = believed(index, [*ids, 1])
    assert found == {str(number): 16 * (number + 1) for number in range(workers)}
    assert looked <= workers + 1


# ------------------------------------------------------------------------------------------------------ estimate


@given(
    st.lists(st.tuples(PROMPTS, st.booleans(), st.floats(0, 40)), max_size=30),
    st.integers(1, 8),
    st.integers(1, 3),
    PROMPTS,
)
def test_the_estimate_is_bounded_and_holds_beginnings_only(
    sent: list[tuple[list[int], bool, float]], capacity: int, size: int, ask: list[int]
) -> None:
    estimate = KVEstimate(capacity, sent_life=30, served_life=60)
    now = 0.0
    for prompt, served, pause in sent:
        now += pause
        blocks = PromptBlocks(prompt, None).of(size)
        (estimate.served if served else estimate.sent)(blocks, now)
        assert len(estimate) <= capacity
        assert estimate.overlap(blocks, now) == min(len(blocks), capacity), "what was just sent is all there"
    blocks = PromptBlocks(ask, None).of(size)
    claimed = estimate.overlap(blocks, now)
    held = [estimate._until.get(block, 0.0) > now for block in blocks]
    assert all(held[:claimed])
    assert not any(held[claimed:]), "nothing is held whose beginning is not"


def test_what_was_sent_counts_for_a_short_time() -> None:
    estimate = KVEstimate(100, sent_life=30, served_life=600)
    blocks = PromptBlocks(list(range(9)), None).of(2)
    estimate.sent(blocks, 0.0)
    assert (estimate.overlap(blocks, 29.0), estimate.overlap(blocks, 31.0)) == (4, 0)
    estimate.served(blocks[:2], 31.0)
    assert (estimate.overlap(blocks, 500.0), estimate.overlap(blocks, 700.0)) == (2, 0)
    estimate.clear()
    assert estimate.overlap(blocks, 32.0) == 0


def test_ends_go_before_beginnings() -> None:
    estimate = KVEstimate(6)
    scaffold = list(range(8))
    first, second = ([*scaffold, *tail, 0] for tail in ([50, 51, 52, 53], [60, 61, 62, 63]))
    estimate.served(PromptBlocks(first, None).of(2), 0.0)
    estimate.served(PromptBlocks(second, None).of(2), 1.0)
    assert estimate.overlap(PromptBlocks(second, None).of(2), 2.0) == 6
    assert estimate.overlap(PromptBlocks(first, None).of(2), 2.0) == 4, "what both begin with stays"


# -------------------------------------------------------------------------------------------------------- blocks


@given(
    st.lists(st.integers(0, 200_000), max_size=200), st.lists(st.integers(0, 200_000), max_size=200), st.integers(1, 16)
)
def test_equal_numbers_mean_equal_prefixes(a: list[int], b: list[int], size: int) -> None:
    first, second = PromptBlocks(a, None).of(size), PromptBlocks(b, None).of(size)
    assert len(first) == max(len(a) - 1, 0) // size
    for depth, (x, y) in enumerate(zip(first, second, strict=False), start=1):
        assert (x == y) == (a[: depth * size] == b[: depth * size])
    assert not set(first) & set(PromptBlocks(a, "salt").of(size))
