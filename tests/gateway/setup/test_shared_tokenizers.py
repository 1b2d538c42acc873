"""Models whose tokenizer files are equal share one tokenizer, for as long as one of them is served."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import tokenizers

import turnwire.prompts
from turnwire.gateway.setup.sources import PromptSource, SourceError, find_source
from turnwire.prompts.cache_bounds import CacheBounds
from turnwire.prompts.tokenizers import load as tokenizers_load

SHIPPED = Path(turnwire.prompts.__file__).parent / "data" / "turnwire-tokenizer.json"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders whose tokenizers are read."""
    folders: list[str] = []
    from_json = tokenizers_load._from_json

    def watched(
        path: Path, name: str, ask_reference: tokenizers_load.AskReference | None
    ) -> tokenizers_load.HFTokenizer:
        folders.append(name)
        return from_json(path, name, ask_reference)

    monkeypatch.setattr(tokenizers_load, "_from_json", watched)
    return folders


def folder(place: Path, inner: tokenizers.Tokenizer) -> str:
    place.mkdir()
    inner.save(str(place / "tokenizer.json"))
    return str(place)


def source(place: str) -> PromptSource:
    return find_source(place, tokenizer=None, template=None, builtin=False, bounds=CacheBounds.within(1 << 26))


def test_equal_files_are_read_once(tmp_path: Path, read: list[str]) -> None:
    inner = tokenizers.Tokenizer.from_file(str(SHIPPED))
    small, large = source(folder(tmp_path / "small", inner)), source(folder(tmp_path / "large", inner))
    assert read == ["small"]
    assert small.tokenizer.encode("<think> 12") == large.tokenizer.encode("<think> 12")
    inner.add_special_tokens(["<|more|>"])
    other = source(folder(tmp_path / "other", inner))
    assert read == ["small", "other"]
    assert other.tokenizer.encode("<|more|>") != large.tokenizer.encode("<|more|>")


def test_each_keeps_its_name(tmp_path: Path) -> None:
    inner = tokenizers.Tokenizer.from_file(str(SHIPPED))
    known: dict[bytes, tokenizers_load.HFTokenizer] = {}
    names = ("small", "large")
    found = [tokenizers_load.load_tokenizer(folder(tmp_path / name, inner), known=known) for name in names]
    assert [each.name for each in found] == ["small", "large"]
    assert len(known) == 1


def test_one_that_no_model_uses_any_more_is_let_go(tmp_path: Path, read: list[str]) -> None:
    place = folder(tmp_path / "model", tokenizers.Tokenizer.from_file(str(SHIPPED)))
    for _ in range(2):
        source(place)
        gc.collect()
    assert read == ["model", "model"]


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = folder(tmp_path / "model", tokenizers.Tokenizer.from_file(str(SHIPPED)))

    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(SourceError, match=r"model/tokenizer\.json: Permission denied"):
        source(place)
