"""A faster library beside the reference: used for what it was found equal in, and for nothing else."""

from __future__ import annotations

import gc
import random
import sys
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from shipped_tokenizer import OWN, PROSE, SAMPLES, SHIPPED, SPECIAL

from turnwire.prompts.tokenizers import load as tokenizers_load
from turnwire.prompts.tokenizers.load import HFTokenizer, from_library, load_tokenizer
from turnwire.prompts.tokenizers.reference import Reference


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
        self.prepared: list[int] = []
        self.no_truncation = self._inner.no_truncation
        self.no_padding = self._inner.no_padding

    def encode(self, text: str) -> _Encoding:
        assert threading.get_ident() in self.prepared
        ids = self._inner.encode(text, add_special_tokens=False).ids
        return _Encoding([*ids, 0] if self._wrong == "encode" and "你" in text else ids)

    def encode_batch(self, texts: list[str]) -> list[_Encoding]:
        self.prepared.append(threading.get_ident())
        return [self.encode(text) for text in texts]

    def encode_ordinary(self, text: str) -> _Encoding:
        assert threading.get_ident() in self.prepared
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


@pytest.mark.parametrize("written", ["你好世界，日本語。", "0123456789abcdef", "-=/\n\t{}[]", "a é\u0301ж '8\r\n <"])
def test_long_texts_that_the_faster_library_shares_among_threads_are_equal_too(written: str) -> None:
    found, chance = with_fastokens(), random.Random(written)
    text = "".join(each for _ in range(30_000) for each in (*chance.choices(written, k=4), chance.choice(" ,;\n")))
    ids = OWN.encode(text)
    with ThreadPoolExecutor(3) as threads:
        assert all(each == ids for each in threads.map(found.encode, [text] * 3))
    assert found.encode_plain(text, True) == OWN.encode_plain(text, True)


def test_a_thread_is_prepared_before_it_encodes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_fast(monkeypatch)
    found = load_tokenizer(copied(tmp_path))
    assert found.fast
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(found.encode, PROSE).result() == OWN.encode(PROSE)
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(found.encode_many, [PROSE, "a"]).result() == [OWN.encode(PROSE), OWN.encode("a")]
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(found.encode_plain, PROSE, True).result() == OWN.encode_plain(PROSE, True)


@cache
def with_fastokens() -> HFTokenizer:
    pytest.importorskip("fastokens")
    found = load_tokenizer(SHIPPED)
    assert found.fast
    return found
