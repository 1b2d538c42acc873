"""Routing: prefix overlap by hash chains, the choice among workers, the waiting line."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from turnwire.engines.pool import Candidate, PrefixIndex, block_hashes, choose

IDS = st.lists(st.integers(0, 200_000), max_size=200)


@given(IDS, IDS, st.integers(1, 16))
def test_equal_hashes_mean_equal_prefixes(a: list[int], b: list[int], block: int) -> None:
    first, second = block_hashes(a, block=block), block_hashes(b, block=block)
    assert len(first) == len(a) // block
    for depth, (x, y) in enumerate(zip(first, second, strict=False), start=1):
        assert (x == y) == (a[: depth * block] == b[: depth * block])


def test_a_salt_separates_tenants() -> None:
    ids = list(range(64))
    assert block_hashes(ids, block=16, salt="a") != block_hashes(ids, block=16, salt="b")


def test_overlap_counts_leading_blocks_and_forgets_the_oldest() -> None:
    index = PrefixIndex(capacity=4)
    old, new = block_hashes(range(64), block=16), block_hashes(range(100, 164), block=16)
    index.add(old)
    assert index.overlap(old) == 4
    assert index.overlap(block_hashes([*range(32), *range(500, 532)], block=16)) == 2
    index.add(new)
    assert index.overlap(new) == 4
    assert index.overlap(old) == 0
    index.clear()
    assert index.overlap(new) == 0


def candidate(index: int, **over: int | bool) -> Candidate:
    return Candidate(**({"index": index, "prompt": 100, "cached": 0, "active": 0, "limit": 8} | over))  # type: ignore[arg-type]


def test_the_warm_worker_wins_until_it_is_busy() -> None:
    assert choose([candidate(0), candidate(1, cached=90)]) == 1
    assert choose([candidate(0, prompt=10), candidate(1, prompt=10, cached=9, active=7)]) == 0
    assert choose([candidate(0), candidate(1, cached=100, active=8)]) == 0


def test_ties_go_to_the_session_and_full_workers_take_nothing() -> None:
    assert choose([candidate(0), candidate(1, sticky=True)]) == 1
    assert choose([candidate(0, active=8), candidate(1, active=8)]) is None
    assert choose([]) is None
