"""Models for the embedded engine by hub id, on disk, and the guard against endless repetition."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from click.testing import CliRunner
from huggingface_hub import constants
from huggingface_hub.errors import LocalEntryNotFoundError

from turnwire.cli.main import main
from turnwire.engines.embedded.downloads import DownloadError, resolve_model
from turnwire.engines.embedded.hub import choose_file, is_hub_id
from turnwire.engines.embedded.loop_guard import SPAN, TIMES, LoopGuard

FILES = [
    "README.md",
    "model-Q4_K_M.gguf",
    "model-Q8_0.gguf",
    "model-UD-Q4_K_XL.gguf",
    "mmproj-F16.gguf",
    "big/model-BF16-00001-of-00002.gguf",
    "big/model-BF16-00002-of-00002.gguf",
]


@pytest.mark.parametrize(
    ("quant", "file"),
    [
        ("", "model-Q4_K_M.gguf"),
        ("Q8_0", "model-Q8_0.gguf"),
        ("q4_k_m", "model-Q4_K_M.gguf"),
        ("UD-Q4_K_XL", "model-UD-Q4_K_XL.gguf"),
        ("BF16", "big/model-BF16-00001-of-00002.gguf"),
    ],
)
def test_an_id_means_one_file(quant: str, file: str) -> None:
    assert choose_file(FILES, quant, "maker/repo") == file


def test_what_cannot_be_chosen_lists_what_there_is() -> None:
    with pytest.raises(DownloadError, match=r"model-Q4_K_M\.gguf.*MAKER/REPO:Q4_K_M"):
        choose_file(FILES, "Q2", "maker/repo:Q2")
    with pytest.raises(DownloadError, match=r"holds no \.gguf"):
        choose_file(["model.safetensors"], "", "maker/repo")


def test_hub_ids_are_told_from_paths() -> None:
    assert all(map(is_hub_id, ("a/b", "unsloth/Qwen3-8B-GGUF:Q4_K_M", "a.b/c-d_e")))
    assert not any(map(is_hub_id, ("a", "/a/b", "a/b/c", "a/b:", "../b", "a/b.gguf/c", "")))


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """A hub that holds one repository, and an empty cache."""
    files = {name: name.encode() * 100 for name in FILES}
    cache = tmp_path / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def listed(self: object, repository: str) -> list[str]:
        if repository != "maker/repo":
            raise LocalEntryNotFoundError("offline")
        return list(files)

    def download(repository: str, name: str) -> str:
        blob = cache / "models--maker--repo" / "blobs" / name.replace("/", "_")
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(files[name])
        link = cache / "models--maker--repo" / "snapshots" / "abc" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob)
        return str(link)

    monkeypatch.setattr(huggingface_hub.HfApi, "list_repo_files", listed)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    return files


def test_a_hub_model_is_fetched_listed_and_removed(hub: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    path = resolve_model("maker/repo:BF16")
    assert path.name == "model-BF16-00001-of-00002.gguf"
    assert resolve_model("maker/repo:Q8_0").read_bytes() == hub["model-Q8_0.gguf"]

    def offline(*_: Any) -> list[str]:
        raise LocalEntryNotFoundError("offline")

    monkeypatch.setattr(huggingface_hub.HfApi, "list_repo_files", offline)
    assert resolve_model("maker/repo:Q8_0").name == "model-Q8_0.gguf", "what is in the cache needs no network"
    with pytest.raises(DownloadError, match=r"other/repo cannot be fetched from the hub.*--model FILE\.gguf"):
        resolve_model("other/repo")

    runner = CliRunner()
    shown = runner.invoke(main, ["models", "ls"]).output
    assert "maker/repo:Q8_0" in shown
    assert "maker/repo:BF16" in shown
    assert "model-BF16-00001-of-00002.gguf and 1 more" in shown
    refused = runner.invoke(main, ["models", "rm", "maker/repo:Q8_0"], input="n\n")
    assert (refused.exit_code, path.exists()) == (1, True)
    removed = runner.invoke(main, ["models", "rm", "maker/repo:BF16", "--yes"])
    assert removed.output.startswith("Deleted maker/repo:BF16")
    assert not path.exists()
    assert not list(Path(constants.HF_HUB_CACHE).glob("**/*BF16*"))
    assert runner.invoke(main, ["models", "rm", "maker/repo:Q8_0", "--yes"]).exit_code == 0
    assert not list(Path(constants.HF_HUB_CACHE).glob("models--*"))
    missing = runner.invoke(main, ["models", "rm", "maker/repo:Q8_0", "--yes"])
    assert "No model called" in missing.output


def test_a_model_is_still_shown_by_its_name() -> None:
    assert "SmolLM2" in CliRunner().invoke(main, ["models", "smollm2-135m"]).output
    assert "Known model families" in CliRunner().invoke(main, ["models"]).output


def fed(tokens: list[int], batch: int = 1) -> int | None:
    """After how many tokens the guard ended it; None: never."""
    guard = LoopGuard()
    for at in range(0, len(tokens), batch):
        if guard.feed(tokens[at : at + batch]):
            return at + batch
    return None


@pytest.mark.parametrize("period", [1, 2, 7, 40, SPAN // TIMES])
@pytest.mark.parametrize("batch", [1, 3, 64])
def test_a_loop_is_ended(period: int, batch: int) -> None:
    opening = list(range(1000, 1200))
    ended = fed(opening + list(range(period)) * 2000, batch)
    assert ended is not None
    assert len(opening) + SPAN - period <= ended <= len(opening) + SPAN + 64 + batch


def test_what_only_resembles_a_loop_goes_on() -> None:
    random.seed(4)
    assert fed([random.randrange(5) for _ in range(5000)]) is None
    table = [token for row in range(300) for token in (1, 2, 3, 100 + row, 4)]
    assert fed(table) is None
    assert fed(list(range(100)) * 50) is None, "a passage of a hundred tokens may come again a few times"
    assert fed([7] * (SPAN - 1)) is None
