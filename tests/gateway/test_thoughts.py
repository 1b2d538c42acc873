"""Tokens of thoughts: the same number however the engine delivers them, and the true one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.gateway.turns.output.token_places import thought_tokens
from turnwire.prompts.tokenizers.load import load_tokenizer

from .conftest import Serve

TOKENIZER = load_tokenizer()
THOUGHT = "Two words é, then more of them.\n</think>"


@given(
    parts=st.lists(st.sampled_from(["<think>", "</think>", "\n\n", "words and ", "x", "été ", "1234"]), max_size=12),
    cuts=st.lists(st.integers(1, 5), max_size=12),
    data=st.data(),
)
def test_every_token_that_touches_a_span_counts_once(parts: list[str], cuts: list[int], data: st.DataObject) -> None:
    text = "".join(parts)
    ids = TOKENIZER.encode(text)
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4, unique=True)))
    spans = [(places[at], places[at + 1]) for at in range(0, len(places) - 1, 2)]
    spell = TOKENIZER.detokenizer().feed
    owned = [spell((token,)) for token in ids]
    expected, place = 0, 0
    for piece in owned:
        expected += sum(place < end and place + len(piece) > start for start, end in spans if piece)
        place += len(piece)
    lengths, sizes, at = [], [], 0
    while at < len(ids):
        size = cuts[len(sizes) % len(cuts)] if cuts else len(ids)
        lengths.append(sum(map(len, owned[at : at + size])))
        sizes.append(min(size, len(ids) - at))
        at += size
    if all(owned):  # a token that spells nothing by itself belongs to its neighbour
        assert thought_tokens(spans, lengths, sizes, ids, TOKENIZER) == expected


@pytest.mark.parametrize("line", [{}, {"burst": 1}, {"cut": 3}, {"cut": "all"}, {"delay_ms": 1}])
async def test_the_count_in_the_answer(serve: Serve, line: dict[str, Any]) -> None:
    client = await serve({"text": f"{THOUGHT}\n\nHello.", **line})
    body = {"model": "test-model", "input": "Hi", "store": False}
    _, answer = await client.post("/v1/responses", body)
    assert answer["usage"]["output_tokens_details"]["reasoning_tokens"] == len(TOKENIZER.encode(THOUGHT))
    body = {"model": "test-model", "max_tokens": 99, "messages": [{"role": "user", "content": "Hi"}]}
    _, answer = await client.post("/v1/messages", body)
    assert answer["usage"]["output_tokens_details"]["thinking_tokens"] == len(TOKENIZER.encode(THOUGHT))
