"""Tokenizers: the one that ships, and every file form a model may come with."""

from __future__ import annotations

import base64
import gc
import json
import struct
import sys
import weakref
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from turnwire.prompts.tokenizers import hf as tokenizers_hf
from turnwire.prompts.tokenizers import load as tokenizers_load
from turnwire.prompts.tokenizers.detokenizer import byte_alphabet
from turnwire.prompts.tokenizers.gguf import from_gguf_metadata
from turnwire.prompts.tokenizers.gguf_file import GGUFError
from turnwire.prompts.tokenizers.load import HFTokenizer, TokenizerError, from_library, load_tokenizer, read_gguf
from turnwire.prompts.tokenizers.patterns import BY_GGUF_NAME, PATTERNS, SAFE_EXPRESSIONS
from turnwire.prompts.tokenizers.reference import Reference

OWN = load_tokenizer()
SHIPPED = Path(tokenizers_hf.__file__).parents[1] / "data" / "turnwire-tokenizer.json"
REFERENCE = tokenizers.Tokenizer.from_file(str(SHIPPED))
SPECIAL = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"),
    *("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
)
SAMPLES = (
    "Hello, world! It's 12345 o'clock.\n\n\tYes  \n",
    "def f(x):\n    return {'a': x}  # é 你好 😀",
    "<|im_start|>user\nhi<|im_end|>\n<think>\n</think>",
    "",
    "   ",
)
PROSE = """The gateway keeps the prompt of every session and compares it with the next one. When a client sends the
same conversation again, with one more message at its end, the engine has already read everything before that message,
so only the new part costs time. If a date in the first line changes, nothing of that work can be used."""


def shipped() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(SHIPPED.read_text(encoding="utf-8"))
    return found


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


# ------------------------------------------------------------------------------------------------------------ GGUF


def gguf_value(value: Any) -> bytes:
    match value:
        case bool():
            return struct.pack("<I?", 7, value)
        case int():
            return struct.pack("<Ii", 5, value)
        case float():
            return struct.pack("<If", 6, value)
        case str():
            return struct.pack("<I", 8) + gguf_string(value)
        case list():
            inner = [gguf_value(item) for item in value]
            return struct.pack("<I", 9) + inner[0][:4] + struct.pack("<Q", len(value)) + b"".join(i[4:] for i in inner)
    raise TypeError(value)


def gguf_string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def gguf(metadata: dict[str, Any], *, version: int = 3) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, 7, len(metadata))
    return head + b"".join(gguf_string(key) + gguf_value(value) for key, value in metadata.items())


def own_metadata() -> dict[str, Any]:
    model = shipped()["model"]
    tokens = [""] * OWN.vocab_size
    kinds = [1] * OWN.vocab_size
    for token, id_ in model["vocab"].items():
        tokens[id_] = token
    for text, id_ in OWN.special_tokens.items():
        tokens[id_] = text
        kinds[id_] = 3 if text.startswith("<|") else 4
    return {
        "general.architecture": "own",
        "general.name": "Own Model",
        "own.context_length": 4096,
        "own.rope.freq_base": 10000.0,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "turnwire",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.chat_template": "{{ messages }}",
        "tokenizer.chat_template.tool_use": "{{ tools }}",
    }


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "own.gguf"
    path.write_bytes(gguf(own_metadata()) + b"weights, never read")
    return path


def test_gguf_facts(model_file: Path) -> None:
    facts = read_gguf(model_file)
    assert (facts.name, facts.architecture, facts.window) == ("Own Model", "own", 4096)
    assert (facts.bos_id, facts.eos_id) == (1, 2)
    assert facts.chat_template == "{{ messages }}"
    assert facts.chat_templates == {"tool_use": "{{ tools }}"}
    assert facts.metadata["own.rope.freq_base"] == 10000.0


def test_the_tokenizer_in_a_gguf_file(model_file: Path) -> None:
    found = load_tokenizer(model_file)
    assert found.special_tokens == OWN.special_tokens
    for text in (*SAMPLES, PROSE):
        assert found.encode(text) == OWN.encode(text)
    assert found.decode(found.encode(SAMPLES[2]), skip_special=True) == OWN.decode(
        OWN.encode(SAMPLES[2]), skip_special=True
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer.ggml.model": "llama"}, "of kind 'llama'.*tokenizer.json"),
        ({"tokenizer.ggml.pre": "falcon"}, "splits words as 'falcon'"),
        ({"tokenizer.ggml.tokens": ["a b"], "tokenizer.ggml.token_type": [1]}, "not spelled in bytes"),
        ({"tokenizer.ggml.merges": 3}, "no tokenizer.ggml.merges"),
        ({"tokenizer.ggml.merges": ["Ġnosuch thing"]}, "do not fit together"),
    ],
)
def test_gguf_tokenizers_that_are_not_read(change: dict[str, Any], message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        from_gguf_metadata(own_metadata() | change)


SMALL = gguf({"general.name": "m", "list": ["a", "b"], "deep": [[1, 2], [3]], "yes": True, "n": -5})


def test_gguf_values(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(SMALL)
    assert read_gguf(path).metadata == {
        "general.name": "m",
        "list": ["a", "b"],
        "deep": [[1, 2], [3]],
        "yes": True,
        "n": -5,
    }


@given(st.integers(0, len(SMALL)), st.integers(0, 255), st.integers(0, len(SMALL)))
def test_damaged_gguf_files_are_refused(tmp_path_factory: pytest.TempPathFactory, at: int, byte: int, end: int) -> None:
    damaged = bytearray(SMALL)
    if at < len(damaged):
        damaged[at] = byte
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    path.write_bytes(bytes(damaged[:end]))
    with suppress(GGUFError):
        read_gguf(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"GGML", "does not start with GGUF"),
        (gguf({}, version=1), "version 1"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**40), "metadata keys"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**40), "bytes in a string"),
        (
            b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + gguf_string("k") + struct.pack("<IIQ", 9, 4, 2**30),
            "items in an array",
        ),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + gguf_string("k") + struct.pack("<I", 77), "unknown kind 77"),
        (
            b"GGUF"
            + struct.pack("<IQQ", 3, 0, 1)
            + gguf_string("k")
            + struct.pack("<I", 9)
            + struct.pack("<IQ", 9, 1) * 9,
            "too deep",
        ),
    ],
)
def test_lying_gguf_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(GGUFError, match=message):
        read_gguf(path)


def test_big_endian_gguf(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    name = b"general.name"
    path.write_bytes(b"GGUF" + struct.pack(">IQQQ", 3, 0, 1, len(name)) + name + struct.pack(">IQ", 8, 3) + b"Own")
    assert read_gguf(path).name == "Own"


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


# -------------------------------------------------------------------------------------------------- faster encoders


class _Encoding:
    def __init__(self, ids: list[int]) -> None:
        self.ids = ids


class FakeFast:
    """fastokens' tokenizer as the library would be it, with one mistake in what `wrong` names."""

    def __init__(self, path: str, wrong: str = "") -> None:
        self._inner = tokenizers.Tokenizer.from_file(path)
        self._plain = tokenizers.Tokenizer(self._inner.model)
        self._plain.pre_tokenizer = self._inner.pre_tokenizer
        if self._inner.normalizer is not None:
            self._plain.normalizer = self._inner.normalizer
        self._wrong = wrong
        self.no_truncation = self._inner.no_truncation
        self.no_padding = self._inner.no_padding

    def encode(self, text: str) -> _Encoding:
        ids = self._inner.encode(text, add_special_tokens=False).ids
        return _Encoding([*ids, 0] if self._wrong == "encode" and "你" in text else ids)

    def encode_ordinary(self, text: str) -> _Encoding:
        ids = self._plain.encode(text, add_special_tokens=False).ids
        return _Encoding([*ids, 0] if self._wrong == "encode_ordinary" and "你" in text else ids)

    def id_to_token(self, token: int) -> str | None:
        return "?" if self._wrong == "id_to_token" and token == 8191 else self._inner.id_to_token(token)


def use_fast(monkeypatch: pytest.MonkeyPatch, wrong: str = "") -> None:
    """Put the stand-in where fastokens would be."""
    made = type("Tokenizer", (), {"from_file": staticmethod(lambda path: FakeFast(path, wrong))})
    monkeypatch.setitem(sys.modules, "fastokens", type("fastokens", (), {"Tokenizer": made}))


def agrees_with_the_library(path: Path, texts: Sequence[str]) -> HFTokenizer:
    """The tokenizer of a file, once everything it gives was found to be what the library alone gives."""
    found, expected = load_tokenizer(path), from_library(tokenizers.Tokenizer.from_file(str(path)), name="expected")
    for text in texts:
        ids = expected.encode(text)
        assert found.encode(text) == ids
        for skip in (False, True):
            assert found.decode(ids, skip_special=skip) == expected.decode(ids, skip_special=skip)
        for first in (True, False):
            assert found.encode_plain(text, first) == expected.encode_plain(text, first)
    assert (found.vocab_size, found.density) == (expected.vocab_size, expected.density)
    assert (found.cuts, found.markers) == (expected.cuts, expected.markers)
    assert found.control_tokens == expected.control_tokens
    return found


def copied(folder: Path) -> Path:
    """The shipped tokenizer's file in a folder."""
    path = folder / "tokenizer.json"
    path.write_bytes(SHIPPED.read_bytes())
    return path


@pytest.mark.parametrize("wrong", ["", "encode", "encode_ordinary", "id_to_token"])
def test_a_faster_library_does_what_it_was_found_equal_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wrong: str
) -> None:
    use_fast(monkeypatch, wrong)
    found = agrees_with_the_library(copied(tmp_path), [*SAMPLES, PROSE, "你好"])
    assert found.fast is (wrong != "encode")
    assert found.decode([8191]) == OWN.decode([8191])


@pytest.mark.parametrize("wrong", ["", "encode_ordinary", "id_to_token"])
def test_the_reference_is_let_go_where_nothing_needs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wrong: str
) -> None:
    made: list[weakref.ref[Reference]] = []

    class Watched(Reference):
        def __init__(self, inner: tokenizers.Tokenizer) -> None:
            super().__init__(inner)
            made.append(weakref.ref(self))

    monkeypatch.setattr(tokenizers_load, "Reference", Watched)
    use_fast(monkeypatch, wrong)
    found = load_tokenizer(copied(tmp_path))
    gc.collect()
    assert [each() is None for each in made] == [wrong == ""]
    assert found.encode("你好") == OWN.encode("你好")


def test_added_tokens_that_are_text_keep_the_reference(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    inner = tokenizers.Tokenizer.from_file(str(SHIPPED))
    inner.add_tokens([tokenizers.AddedToken(text, normalized=False) for text in ("    ", "naturally")])
    inner.save(str(tmp_path / "tokenizer.json"))
    use_fast(monkeypatch)
    texts = ["a    b", "naturally <think>    ", "<|im_end|>naturally"]
    assert agrees_with_the_library(tmp_path / "tokenizer.json", texts).fast


def test_a_faster_encoder_does_not_truncate_either(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_fast(monkeypatch)
    inner = tokenizers.Tokenizer.from_file(str(SHIPPED))
    inner.enable_truncation(4)
    inner.enable_padding(length=10)
    inner.save(str(tmp_path / "tokenizer.json"))
    found = load_tokenizer(tmp_path)
    assert found.fast
    assert found.encode_many([PROSE, "a"]) == [OWN.encode(PROSE), OWN.encode("a")]


def test_a_faster_encoder_that_fails_is_done_without(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "fastokens", type("fastokens", (), {}))
    found = load_tokenizer(copied(tmp_path))
    assert not found.fast
    assert found.encode(PROSE) == OWN.encode(PROSE)


@given(st.lists(st.sampled_from(SPECIAL) | st.text(max_size=12), max_size=12).map("".join))
def test_the_real_faster_library_gives_what_the_library_gives(text: str) -> None:
    found = with_fastokens()
    ids = OWN.encode(text)
    assert found.encode(text) == ids
    assert found.decode(ids) == OWN.decode(ids)
    assert found.encode_plain(text, False) == OWN.encode_plain(text, False)


@cache
def with_fastokens() -> HFTokenizer:
    pytest.importorskip("fastokens")
    found = load_tokenizer(SHIPPED)
    assert found.fast
    return found


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
