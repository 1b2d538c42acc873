"""Token ids that grow: what they are, what they are written as, and that nothing else changes with them."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.token_ids import TokenIds, ids_json, ids_msgpack

IDS = st.lists(st.integers(0, 2**32 - 1), max_size=40)
GROWTH = st.lists(st.tuples(st.floats(0, 1), IDS, st.booleans()), max_size=8)


@given(first=IDS, growth=GROWTH)
def test_ids_that_grew_are_those_made_at_once(first: list[int], growth: list[tuple[float, list[int], bool]]) -> None:
    grown, expected = TokenIds(first), first
    for share, fresh, written in growth:
        if written:
            assert msgspec.json.decode(grown.json) == expected
            assert msgspec.msgpack.decode(grown.msgpack) == expected
        kept = int(share * len(expected))
        before, grown = grown, grown.grown(kept, fresh)
        assert before == expected
        expected = expected[:kept] + fresh
        assert grown == expected
        assert grown.below(max(expected, default=0) + 1)
        assert not expected or not grown.below(max(expected))
    assert grown.json == TokenIds(expected).json == msgspec.json.encode(expected)
    assert grown.msgpack == TokenIds(expected).msgpack
    assert msgspec.msgpack.decode(grown.msgpack) == expected


@pytest.mark.parametrize("dropped", [0, 1, 4096, 4097, 9000])
def test_a_cut_far_back_gives_the_same_text(dropped: int) -> None:
    base = TokenIds(range(9000))
    assert base.json
    grown = base.grown(9000 - dropped, array("I", [7, 8]))
    assert grown.json == msgspec.json.encode([*range(9000 - dropped), 7, 8])


def test_text_that_is_cut_anywhere_is_cut_at_an_id() -> None:
    dice = random.Random(5)
    ids = [dice.randrange(10 ** dice.randrange(1, 10)) for _ in range(2500)]
    base = TokenIds(ids)
    assert base.json
    for kept in (*range(1, 2500, 19), 2499, 2500):
        grown = base.grown(kept, array("I", [3]))
        assert grown.json == msgspec.json.encode([*ids[:kept], 3]), kept


def test_they_are_a_sequence_like_any_other() -> None:
    ids = TokenIds([5, 6, 7])
    for same in ([5, 6, 7], (5, 6, 7), TokenIds([5, 6, 7]), array("I", [5, 6, 7])):
        assert ids == same
    for other in ([5, 6], [5, 6, 8], "567"):
        assert ids != other
    more: Sequence[int] = (7,)
    assert ids + more == [5, 6, 7, 7]
    assert ids[1:] == [6, 7]
    assert 6 in ids
    assert not TokenIds()
    assert TokenIds().json == b"[]"
    with pytest.raises(TypeError):
        hash(ids)


def test_a_request_holds_them_as_a_list() -> None:
    for ids in (TokenIds([1, 2]), [1, 2], (1, 2)):
        assert msgspec.json.encode({"prompt": ids_json(ids)}) == b'{"prompt":[1,2]}'
        assert msgspec.msgpack.decode(msgspec.msgpack.encode({"prompt": ids_msgpack(ids)})) == {"prompt": [1, 2]}
