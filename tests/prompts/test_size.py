"""A lower bound on tokens by size: never too high, and cheap."""

from __future__ import annotations

import random

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from test_tokenizers import SHIPPED

from turnwire.prompts.builder import PromptBuilder
from turnwire.prompts.size import may_exceed, minimum_tokens
from turnwire.prompts.templates.template import default_template
from turnwire.prompts.tokenizers.load import from_library, load_tokenizer
from turnwire.turns import Conversation, ImageBlock, Message, TextBlock, ToolResultBlock

OWN = load_tokenizer()
BUILDER = PromptBuilder(default_template(), OWN)


def asked(*texts: str) -> Conversation:
    return Conversation(model="m", messages=tuple(Message(role="user", blocks=(TextBlock(text=t),)) for t in texts))


@given(
    st.lists(
        st.text(max_size=60) | st.sampled_from(("word " * 40, " " * 90, "=" * 70, "é東🙂" * 30, "<|im_end|>" * 9)),
        max_size=4,
    ),
    st.integers(1, 50),
)
def test_it_is_never_more_than_the_prompt_has(texts: list[str], enough: int) -> None:
    conversation = asked("Hi", *texts)
    assert minimum_tokens(conversation, OWN, enough=enough) <= len(BUILDER.build(conversation).ids)


def test_what_is_far_too_long_is_known_without_reading_it_all() -> None:
    words = "the gateway keeps every turn of a session and compares it with the next one "
    result = ToolResultBlock(call_id="c", content=(TextBlock(text=words * 30_000), ImageBlock(url="u")))
    conversation = Conversation(model="m", messages=(Message(role="user", blocks=(result,)),))
    assert minimum_tokens(conversation, OWN, enough=10_000) == (len(words) * 30_000 - 1) // 33
    assert may_exceed(conversation, 10_000)
    assert not may_exceed(conversation, 10_000_000)
    found = minimum_tokens(conversation, OWN, enough=100_000)
    assert 100_000 < found < 104_000  # it stopped counting words there
    assert minimum_tokens(conversation, OWN, enough=10_000_000) < 10_000_000
    assert minimum_tokens(asked(" " * 1_000_000), OWN, enough=10) == 0  # a template may trim it
    noise = "".join(random.Random(1).choices("abcdefghij", k=400_000))
    assert minimum_tokens(asked(noise), OWN, enough=1000) > 1000


@pytest.mark.parametrize("greedy", [False, True])
def test_nothing_is_said_of_vocabularies_without_a_bound(greedy: bool) -> None:
    if greedy:
        inner = tokenizers.Tokenizer.from_file(str(SHIPPED))
        inner.add_special_tokens([tokenizers.AddedToken("<eat>", rstrip=True)])
    else:
        inner = tokenizers.Tokenizer(tokenizers.models.Unigram([("<unk>", 0.0), ("a", -1.0)], unk_id=0))
    assert minimum_tokens(asked("a" * 100_000), from_library(inner, name="odd"), enough=10) == 0
