"""Detokenizers: piece by piece gives what all at once gives, and no piece ends inside a code point."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from test_tokenizers import SHIPPED

from turnwire.prompts.recall.recall import ids_within
from turnwire.prompts.tokenizers.detokenizer import TokenBytes, byte_alphabet
from turnwire.prompts.tokenizers.load import HFTokenizer, from_library, load_tokenizer

OWN = load_tokenizer()
LIBRARY = tokenizers.Tokenizer.from_file(str(SHIPPED))  # what decodes all at once
TEXTS = st.lists(
    st.text(max_size=6) | st.sampled_from(("<|im_end|>", "<think>", "你好", "😀👨‍👩‍👧", "é", " the", "\n\n")),
    max_size=15,
).map("".join)
CUTS = st.lists(st.integers(1, 5), min_size=1, max_size=20)


@cache
def pieces_tokenizer() -> HFTokenizer:
    """A tokenizer of the other kind: words marked by ▁, bytes for what the vocabulary lacks."""
    chars = "▁abcdefghijklmnopqrstuvwxyzé.,!"
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    vocab |= {f"<0x{byte:02X}>": 3 + byte for byte in range(256)}
    for text in (*chars, "▁t", "he", "▁the", "in", "▁a"):
        vocab[text] = len(vocab)
    merges = [("▁", "t"), ("h", "e"), ("▁t", "he"), ("i", "n"), ("▁", "a")]
    model = tokenizers.models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    inner = tokenizers.Tokenizer(model)
    inner.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")]
    )
    inner.decoder = tokenizers.decoders.Sequence(
        [
            tokenizers.decoders.Replace("▁", " "),
            tokenizers.decoders.ByteFallback(),
            tokenizers.decoders.Fuse(),
            tokenizers.decoders.Strip(content=" ", left=1, right=0),
        ]
    )
    inner.add_special_tokens(["<s>", "</s>"])
    return from_library(inner, name="pieces")


def streamed(tokenizer: HFTokenizer, ids: Sequence[int], cuts: Sequence[int], skip: bool) -> list[str]:
    detokenizer = tokenizer.detokenizer(skip_special=skip)
    given, place, turn = [], 0, 0
    while place < len(ids):
        size = cuts[turn % len(cuts)]
        given.append(detokenizer.feed(ids[place : place + size]))
        place, turn = place + size, turn + 1
    return [*given, detokenizer.flush()]


@given(TEXTS, CUTS, st.booleans())
def test_pieces_join_to_the_whole(text: str, cuts: list[int], skip: bool) -> None:
    ids = OWN.encode(text)
    given = streamed(OWN, ids, cuts, skip)
    assert "".join(given) == LIBRARY.decode(ids, skip_special_tokens=skip)
    if not skip:
        assert "".join(given) == text
    assert not any("\ufffd" in piece for piece in given)
    assert given[-1] == ""


@given(st.lists(st.integers(0, OWN.vocab_size + 5), max_size=40), CUTS)
def test_any_ids_decode_alike(ids: list[int], cuts: list[int]) -> None:
    known = [id_ for id_ in ids if id_ < OWN.vocab_size]
    whole = LIBRARY.decode(known, skip_special_tokens=False)
    assert "".join(streamed(OWN, ids, cuts, False)) == whole == OWN.decode(ids)


def test_half_a_character_waits_and_is_replaced_at_the_end() -> None:
    ids = OWN.encode("😀")
    assert len(ids) > 1
    detokenizer = OWN.detokenizer()
    assert [detokenizer.feed([id_]) for id_ in ids] == [""] * (len(ids) - 1) + ["😀"]
    assert detokenizer.feed(ids[:2]) == ""
    assert detokenizer.flush() == "\ufffd"
    assert detokenizer.feed(OWN.encode("ok")) == "ok"


@given(st.text("abcdefghinthe é.,!😀你\n", max_size=40), CUTS, st.booleans())
def test_other_vocabularies_join_to_the_whole(text: str, cuts: list[int], skip: bool) -> None:
    tokenizer = pieces_tokenizer()
    ids = [1, *tokenizer.encode(text), 2]
    given = streamed(tokenizer, ids, cuts, skip)
    whole = tokenizer.decode(ids, skip_special=skip)
    assert "".join(given) == whole
    assert text in whole
    assert not any("\ufffd" in piece for piece in given)


@given(st.lists(st.integers(131, 290), max_size=30), CUTS)
def test_broken_bytes_in_other_vocabularies_cost_no_letter(ids: list[int], cuts: list[int]) -> None:
    # A broken run of bytes is replaced as a whole when decoded at once; streamed, its valid beginning is out already.
    tokenizer = pieces_tokenizer()
    given = "".join(streamed(tokenizer, ids, cuts, False))
    whole = tokenizer.decode(ids)
    assert [char for char in given if char.isascii()] == [char for char in whole if char.isascii()]


def test_other_vocabularies_do_not_wait_for_ever() -> None:
    tokenizer = pieces_tokenizer()
    detokenizer = tokenizer.detokenizer()
    stray = 3 + 0xFF
    given = "".join(detokenizer.feed([stray]) for _ in range(100))
    assert len(given) >= 80


def test_text_before_an_unfinished_character_is_not_held_back() -> None:
    tokenizer = pieces_tokenizer()
    first, *rest = tokenizer.encode("😀")[1:]
    word = tokenizer.encode("the")
    detokenizer = tokenizer.detokenizer()
    assert detokenizer.feed([*word, first]) == "the"
    assert detokenizer.feed(rest) == "😀"


def test_the_byte_alphabet_is_the_librarys() -> None:
    assert set(byte_alphabet()) == set(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    assert sorted(byte_alphabet().values()) == list(range(256))


@pytest.mark.parametrize(("spelled", "expected"), [(None, b""), ("Ġa", b" a"), ("▁a", "▁a".encode())])
def test_token_bytes(spelled: str | None, expected: bytes) -> None:
    assert TokenBytes(lambda _: spelled, {})[0] == expected


@pytest.mark.parametrize("kind", ["bytes", "pieces"])
@given(text=TEXTS, repeats=st.integers(1, 40), share=st.floats(0, 1))
def test_ids_within_a_number_of_characters_are_those_that_one_by_one_spell_no_more(
    kind: str, text: str, repeats: int, share: float
) -> None:
    tokenizer = OWN if kind == "bytes" else pieces_tokenizer()
    ids = tokenizer.encode(text * repeats)
    spell, spelled, end = tokenizer.detokenizer().feed, 0, round(share * len(text) * repeats)
    kept = 0
    for token in ids:
        spelled += len(spell((token,)))
        if spelled > end:
            break
        kept += 1
    assert ids_within(tokenizer, ids, end) == kept
    assert ids_within(tokenizer, ids, None) == len(ids)
