"""The prefix cache of the GPU engine against a plain model of one."""

from __future__ import annotations

from benchmarks.gpu.blocks import BLOCK, PrefixCache
from hypothesis import given, settings
from hypothesis import strategies as st

SEQUENCES = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6 * BLOCK), st.integers(1, 9)), max_size=12)


def shared(first: list[int], second: list[int]) -> int:
    """Tokens in full blocks that two sequences have in common from their start."""
    count = 0
    while first[count : count + BLOCK] == second[count : count + BLOCK] and count + BLOCK <= len(first):
        count += BLOCK
    return count


@settings(max_examples=40, deadline=None)
@given(SEQUENCES)
def test_what_is_held_is_what_an_earlier_sequence_had(drawn: list[tuple[int, int, int]]) -> None:
    cache, seen = PrefixCache(1000), []
    for kind, length, room in drawn:
        ids = [kind if at > 2 * BLOCK else 7 for at in range(length)]
        table, held = cache.take(ids, room)
        most = max((shared(earlier, ids) for earlier in seen), default=0)
        assert held == min(most, (length - 1) // BLOCK * BLOCK)
        assert len(set(table)) == len(table)
        cache.keep(table, ids)
        seen.append(ids)


def test_the_block_unused_for_longest_goes_first_and_running_ones_stay() -> None:
    cache = PrefixCache(4)
    first, second, third = ([number] * (BLOCK + 1) for number in (1, 2, 3))
    for ids in (first, second):
        table, _ = cache.take(ids, 0)
        cache.keep(table, ids)
    running, held = cache.take(second, 0)
    assert held == BLOCK
    table, held = cache.take(third, 0)
    assert held == 0
    assert not set(table) & set(running)
    cache.keep(table, third)
    cache.keep(running, second)
    assert cache.take(first, 0)[1] == 0
