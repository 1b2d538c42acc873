"""Which ids an engine can take, and whether its tokenizer is ours."""

from __future__ import annotations

import pytest

from turnwire.engines.interface import EngineError
from turnwire.engines.vocabulary import check_ids, differences, id_count, sample

from .toytokenizer import ToyTokenizer


def test_the_highest_id_counts_also_where_ids_have_gaps() -> None:
    tokenizer = ToyTokenizer()
    assert id_count(tokenizer) == tokenizer.vocab_size
    tokenizer.special_tokens["<far>"] = 10_000
    assert id_count(tokenizer) == 10_001


@pytest.mark.parametrize("count", [1, 2, 47, 48, 49, 151_669])
def test_samples_are_few_and_reach_the_end(count: int) -> None:
    ids = sample(count)
    assert ids[-1] == count - 1
    assert ids[0] == 0
    assert len(ids) == len(set(ids)) <= 98


def test_only_whole_characters_are_compared() -> None:
    tokenizer = ToyTokenizer()
    ids = [65, 66, 200]
    assert differences(tokenizer, ids, ["A", "B", "x"]) == [], "200 is a part of a character"
    assert differences(tokenizer, ids, ["A", "C", "\ufffd"]) == [(66, "B", "C")]


def test_an_id_that_is_not_there_is_named() -> None:
    check_ids([], 10)
    check_ids([0, 9], 10)
    for ids, wrong in (([1, 10], "10"), ([1, -1], "-1")):
        with pytest.raises(EngineError, match=f"token id {wrong}"):
            check_ids(ids, 10)
