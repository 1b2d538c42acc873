"""The prefix cache: always the ids of the whole text, never more work than the new part."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from test_tokenizers import SHIPPED

from turnwire.prompts.tokenizers import part_cache as prefix_cache
from turnwire.prompts.tokenizers.load import HFTokenizer, from_library, load_tokenizer
from turnwire.prompts.tokenizers.part_cache import PrefixTokenizer

OWN = load_tokenizer()
AWKWARD = (
    *("<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "<|im_", "end|>", "<", ">"),
    *(
        " ",
        "  ",
        "\n",
        "\n\n",
        "\t",
        " \n ",
        "a ",
        " b",
        "word ",
        "Word",
        "'s",
        "é",
        "e\u0301",
        "你好",
        "😀",
        "12",
        "_",
    ),
)
TEXTS = st.lists(st.sampled_from(AWKWARD) | st.text(max_size=3), max_size=40).map("".join)


def variant(**changes: Any) -> HFTokenizer:
    """The shipped tokenizer with other steps or other added tokens."""
    whole = json.loads(SHIPPED.read_text(encoding="utf-8"))
    for text, flags in changes.pop("flags", {}).items():
        for token in whole["added_tokens"]:
            if token["content"] == text:
                token.update(flags)
    whole.update(changes)
    return from_library(tokenizers.Tokenizer.from_str(json.dumps(whole)), name="variant")


def added(token: int, content: str) -> dict[str, Any]:
    """A control token as a file has it."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": token, "content": content, "special": True, **flags}


def metaspace(scheme: str, *added: str | tokenizers.AddedToken) -> HFTokenizer:
    vocab = {"<unk>": 0, **{char: 1 + place for place, char in enumerate("▁abcdefghijklmnopqrstuvwxyz<>|_/\n")}}
    merges = []
    for left, right in (("▁", "a"), ("a", "b"), ("▁", "b"), ("▁", "w"), ("o", "r"), ("▁w", "or"), ("▁", "▁")):
        vocab[left + right] = len(vocab)
        merges.append((left, right))
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    inner.decoder = tokenizers.decoders.Metaspace(prepend_scheme=scheme, split=False)
    inner.add_special_tokens(list(added) or ["<|im_start|>", "<|im_end|>"])
    return from_library(inner, name=scheme)


VARIANTS = {
    "own": OWN,
    "normal form": variant(normalizer={"type": "NFC"}),
    "compatibility form": variant(normalizer={"type": "NFKC"}),
    "lower case": variant(normalizer={"type": "Lowercase"}),
    "greedy left": variant(flags={"<|im_end|>": {"lstrip": True}}),
    "greedy right": variant(flags={"<|im_end|>": {"rstrip": True}, "<think>": {"rstrip": True, "lstrip": True}}),
    "whole words": variant(flags={"<think>": {"single_word": True}}),
    "added late": variant(flags={"<think>": {"normalized": True}, "<|im_end|>": {"normalized": True}}),
    "no added tokens": variant(added_tokens=[]),
    "leading blank": variant(
        pre_tokenizer={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    ),
    "digits": variant(
        pre_tokenizer={
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Digits", "individual_digits": True},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            ],
        }
    ),
    "blank first": metaspace("first"),
    "blank always": metaspace("always"),
    "blank never": metaspace("never"),
    "blank first, one begins another": metaspace("first", "<|im_", "<|im_end|>", "<think>"),
    "blank first, all begin another": metaspace(
        "first", "<|im_", tokenizers.AddedToken("<|im_end|>", special=True, rstrip=True)
    ),
    "overlapping": variant(added_tokens=[added(1, "<|im_end|>"), added(2, "_<|im_"), added(3, " <think>")]),
}


@pytest.mark.parametrize("name", VARIANTS)
@settings(max_examples=40)
@given(data=st.data())
def test_always_the_ids_of_the_whole_text(name: str, data: st.DataObject) -> None:
    tokenizer = VARIANTS[name]
    before, prefix_cache._LONG = prefix_cache._LONG, 24
    try:
        cached = PrefixTokenizer(tokenizer, max_bytes=data.draw(st.sampled_from((2_000, 1_000_000))))
        text = ""
        for _ in range(4):
            text += data.draw(TEXTS)
            assert cached.encode(text) == tokenizer.encode(text)
    finally:
        prefix_cache._LONG = before


@pytest.mark.parametrize("name", VARIANTS)
@settings(max_examples=40)
@given(text=TEXTS)
def test_text_is_cut_only_where_that_changes_no_token(name: str, text: str) -> None:
    tokenizer = VARIANTS[name]
    for at in range(1, len(text)):
        if tokenizer.may_cut(text, at):
            assert tokenizer.encode(text) == tokenizer.encode(text[:at]) + tokenizer.encode(text[at:])


def test_a_token_that_began_before_is_not_cut() -> None:
    overlapping = VARIANTS["overlapping"]
    assert overlapping.may_cut("a<|im_end|>", 1)
    assert not overlapping.may_cut("a_<|im_end|>", 2)


def test_what_stands_behind_a_marker_is_not_read_as_the_rest_of_a_longer_one() -> None:
    for name in ("blank first, one begins another", "blank first, all begin another"):
        tokenizer = VARIANTS[name]
        for text in ("<think>end|>ab", "<|im_ab<|im_end|>  ab", "<|im_end|> ab<|im_ab"):
            assert PrefixTokenizer(tokenizer).encode(text) == tokenizer.encode(text), (name, text)


def conversation(turns: int) -> str:
    said = "I looked at the file and the numbers do not add up, so I will check the sum again. " * 6
    return "".join(
        f"<|im_start|>user\nTurn {n}: {said}<|im_end|>\n<|im_start|>assistant\n{said}<|im_end|>\n" for n in range(turns)
    )


def test_only_the_new_part_is_tokenized() -> None:
    cached = PrefixTokenizer(OWN)
    cached.encode(conversation(50))
    before = cached.figures
    longer = conversation(51)
    assert cached.encode(longer) == OWN.encode(longer)
    after = cached.figures
    assert after.tokenized - before.tokenized < 1200
    assert after.found - before.found > 40_000


def test_a_long_text_that_grows_is_mostly_found() -> None:
    cached = PrefixTokenizer(OWN)
    text = "no markers here, only words that go on and on; " * 2000
    cached.encode(text)
    before = cached.figures.tokenized
    longer = text + "and a little more"
    assert cached.encode(longer) == OWN.encode(longer)
    assert cached.figures.tokenized - before < 8192


def test_memory_is_bounded() -> None:
    cached = PrefixTokenizer(OWN, max_bytes=50_000)
    for number in range(400):
        cached.encode(f"<|im_start|>{number} " + "text that is new " * 20)
    figures = cached.figures
    assert figures.bytes <= 50_000
    assert 0 < figures.entries < 100


def test_a_part_larger_than_the_memory_is_tokenized_and_not_kept() -> None:
    cached = PrefixTokenizer(OWN, max_bytes=500)
    assert cached.encode("word " * 500) == OWN.encode("word " * 500)
    assert cached.figures.bytes <= 500


def test_threads_share_it() -> None:
    cached = PrefixTokenizer(OWN, max_bytes=30_000)
    texts = [conversation(1 + number % 7) + str(number % 5) for number in range(60)]
    expected = [OWN.encode(text) for text in texts]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(cached.encode, texts)) == expected


def test_it_is_a_tokenizer_like_the_one_inside() -> None:
    cached = PrefixTokenizer(OWN)
    ids = cached.encode("<|im_start|>hello")
    assert cached.decode(ids, skip_special=True) == "hello"
    assert cached.detokenizer().feed(ids) == "<|im_start|>hello"
    assert cached.special_tokens == OWN.special_tokens
    assert cached.vocab_size == OWN.vocab_size


def test_cuts_are_taken_only_where_they_are_known_to_be_safe() -> None:
    safe = {name for name, tokenizer in VARIANTS.items() if tokenizer.cuts.after_letter}
    assert safe == {
        *("own", "normal form", "compatibility form", "added late", "no added tokens", "digits", "overlapping"),
    }


def test_memory_must_be_some() -> None:
    with pytest.raises(ValueError, match="positive"):
        PrefixTokenizer(OWN, max_bytes=0)
