"""Tokenizers: the one that ships, and every file form a model may come with."""

from __future__ import annotations

import base64
import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from shipped_tokenizer import OWN, PROSE, SAMPLES, SHIPPED, SPECIAL, shipped

from turnwire.prompts.tokenizers import hf as tokenizers_hf
from turnwire.prompts.tokenizers.detokenizer import byte_alphabet
from turnwire.prompts.tokenizers.load import HFTokenizer, TokenizerError, load_tokenizer
from turnwire.prompts.tokenizers.patterns import BY_GGUF_NAME, PATTERNS, SAFE_EXPRESSIONS

REFERENCE = tokenizers.Tokenizer.from_file(str(SHIPPED))


# ------------------------------------------------------------------------------------------------- the shipped one


def test_the_shipped_tokenizer_is_small_and_complete() -> None:
    assert SHIPPED.stat().st_size < 300_000
    assert OWN.vocab_size == 8192
    assert set(OWN.special_tokens) == set(SPECIAL)
    for text in SPECIAL:
        assert OWN.encode(text) == [OWN.special_tokens[text]]


def test_the_shipped_tokenizer_is_about_as_dense_as_real_ones() -> None:
    code = Path(tokenizers_hf.__file__).read_text(encoding="utf-8")
    assert len(PROSE) / len(OWN.encode(PROSE)) > 3.5
    assert len(code) / len(OWN.encode(code)) > 3.0


@given(st.text(max_size=200))
def test_text_survives(text: str) -> None:
    assert OWN.decode(OWN.encode(text)) == text


@given(st.lists(st.sampled_from(SPECIAL) | st.text(max_size=10), max_size=12).map("".join))
def test_ids_are_the_librarys_own(text: str) -> None:
    assert OWN.encode(text) == REFERENCE.encode(text, add_special_tokens=False).ids


def test_special_tokens_are_spelled_out_or_skipped() -> None:
    ids = OWN.encode("<|im_start|>a<think>b</think><|im_end|>")
    assert OWN.decode(ids) == "<|im_start|>a<think>b</think><|im_end|>"
    assert OWN.decode(ids, skip_special=True) == "a<think>b</think>"


def test_a_file_that_truncates_is_told_not_to(tmp_path: Path) -> None:
    inner = tokenizers.Tokenizer.from_file(str(SHIPPED))
    inner.enable_truncation(4)
    inner.enable_padding(length=10)
    inner.save(str(tmp_path / "tokenizer.json"))
    assert load_tokenizer(tmp_path).encode(PROSE) == OWN.encode(PROSE)


# ----------------------------------------------------------------------------------------------------- other forms


@cache
def ranks() -> dict[bytes, int]:
    """The shipped vocabulary as tiktoken would rank it."""
    alphabet = byte_alphabet()
    vocab = shipped()["model"]["vocab"]
    return {bytes(alphabet[char] for char in token): rank for token, rank in vocab.items()}


def tiktoken_folder(folder: Path, name: str = "own.tiktoken") -> Path:
    lines = [base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks().items()]
    (folder / name).write_bytes(b"".join(lines))
    added = {str(id_): {"content": text, "special": text.startswith("<|")} for text, id_ in OWN.special_tokens.items()}
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))
    return folder


def merge_by_rank(piece: bytes, table: dict[bytes, int]) -> list[int]:
    """tiktoken's own rule, written plainly: join the neighbours whose joint rank is lowest, leftmost first."""
    if piece in table:
        return [table[piece]]
    parts = [piece[place : place + 1] for place in range(len(piece))]
    while len(parts) > 1:
        joint = [table.get(parts[place] + parts[place + 1], 1 << 40) for place in range(len(parts) - 1)]
        if min(joint) == 1 << 40:
            break
        place = joint.index(min(joint))
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    return [table[part] for part in parts]


@pytest.fixture(scope="module")
def from_ranks(tmp_path_factory: pytest.TempPathFactory) -> HFTokenizer:
    return load_tokenizer(tiktoken_folder(tmp_path_factory.mktemp("ranks")), pattern="turnwire")


@given(
    st.lists(st.text(max_size=12) | st.sampled_from((" the", "\n\n", "    ", "====", "aaaa")), max_size=8).map("".join)
)
def test_ranks_are_merged_as_tiktoken_does(from_ranks: HFTokenizer, text: str) -> None:
    table = ranks()
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(PATTERNS["turnwire"][0]), behavior="isolated")
    words = [word for word, _ in split.pre_tokenize_str(text)]
    assert from_ranks.encode(text) == [id_ for word in words for id_ in merge_by_rank(word.encode(), table)]


def test_ranks_with_their_added_tokens(from_ranks: HFTokenizer) -> None:
    assert from_ranks.special_tokens == OWN.special_tokens
    for text in SAMPLES:
        assert from_ranks.decode(from_ranks.encode(text)) == text
    assert from_ranks.encode("<|im_end|>") == OWN.encode("<|im_end|>")


def test_a_ranks_file_without_a_known_pattern_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="give pattern="):
        load_tokenizer(tiktoken_folder(tmp_path))


def test_a_ranks_file_may_say_its_pattern_by_name(tmp_path: Path) -> None:
    found = load_tokenizer(tiktoken_folder(tmp_path, "my_cl100k_base.tiktoken"))
    assert found.encode("<|im_start|>") == OWN.encode("<|im_start|>")


def tekken_file(folder: Path, *, special: bool) -> Path:
    vocab = [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for rank, token in enumerate(sorted(ranks(), key=ranks().__getitem__))
    ]
    whole: dict[str, Any] = {
        "config": {
            "pattern": PATTERNS["turnwire"][0],
            "num_vocab_tokens": len(vocab),
            "default_vocab_size": len(vocab) + 100 - 8,
            "default_num_special_tokens": 100,
            "version": "v3",
        },
        "vocab": vocab,
    }
    if special:
        whole["special_tokens"] = [
            {"rank": 0, "token_str": "<unk>", "is_control": True},
            {"rank": 1, "token_str": "<s>", "is_control": True},
        ]
    path = folder / "tekken.json"
    path.write_text(json.dumps(whole))
    return path


@pytest.mark.parametrize("special", [True, False])
def test_tekken(tmp_path: Path, special: bool) -> None:
    found = load_tokenizer(tekken_file(tmp_path, special=special))
    expected = [id_ + 100 for id_ in OWN.encode("Hello, world! 123\n")]
    assert found.encode("Hello, world! 123\n") == expected
    assert found.special_tokens["<s>"] == 1
    assert found.special_tokens["<SPECIAL_50>"] == 50
    assert ("[TOOL_CALLS]" in found.special_tokens) is not special
    assert max(id_ for text in SAMPLES for id_ in found.encode(text)) < found.vocab_size
    assert found.decode(found.encode("<s>" + PROSE)) == "<s>" + PROSE


# ---------------------------------------------------------------------------------------------------------- errors


def test_what_cannot_be_loaded_says_what_to_change(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.json").write_text("{}")
    (tmp_path / "two").mkdir()
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / "two" / name).write_bytes(b"")
    for source, message in (
        (tmp_path / "empty", "no tokenizer found; expected one of tokenizer.json"),
        (tmp_path / "two", "2 files match"),
        (tmp_path / "bad.json", "not a tokenizer.json file"),
        (tmp_path / "two" / "a.gguf", "cut short"),
        ("no such thing", "not a hub id"),
    ):
        with pytest.raises(TokenizerError, match=message):
            load_tokenizer(source)


def test_without_the_library_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(TokenizerError, match=r"turnwire\[server\]"):
        load_tokenizer()


# --------------------------------------------------------------------------------------------------------- patterns


def test_every_pattern_compiles_and_keeps_all_text() -> None:
    for expressions in PATTERNS.values():
        steps = [tokenizers.pre_tokenizers.Split(tokenizers.Regex(each), behavior="isolated") for each in expressions]
        pipe = tokenizers.pre_tokenizers.Sequence(steps)
        for text in (*SAMPLES, PROSE, "漢字かな한글"):
            assert "".join(word for word, _ in pipe.pre_tokenize_str(text)) == text
    assert set(BY_GGUF_NAME.values()) <= set(PATTERNS)


@given(st.sampled_from(sorted(SAFE_EXPRESSIONS)), st.text(max_size=30), st.sampled_from("aZ"), st.text(max_size=30))
def test_a_word_ends_between_letter_and_blank(expression: str, left: str, letter: str, right: str) -> None:
    pipe = tokenizers.pre_tokenizers.Split(tokenizers.Regex(expression), behavior="isolated")
    left, right = left + letter, " " + right

    def words(text: str) -> list[str]:
        return [word for word, _ in pipe.pre_tokenize_str(text)]

    whole, parts = words(left + right), words(left) + words(right)
    if expression in (r"\p{N}", r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+"):
        # These only take digits or Han and kana out; what lies between stays for the next step.
        whole, parts = ["".join(whole)], ["".join(parts)]
    assert whole == parts
