"""The file with the seal key, when several replicas start at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from turnwire.gateway.settings import Settings
from turnwire.gateway.setup.seal_keys import SealKeyError, seal_keys


def test_replicas_that_start_at_once_have_one_key(tmp_path: Path) -> None:
    settings = Settings(seal_key_file=str(tmp_path / "new" / "seal.key"))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: seal_keys(settings), range(8)))
    assert all(keys == found[0] for keys in found)


def test_a_key_that_is_being_written_is_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "seal.key"
    file.touch()
    writing = threading.Timer(0.02, lambda: file.write_text("a key of some length\n"))
    writing.start()
    assert seal_keys(Settings(seal_key_file=str(file))) == [b"a key of some length"]
    writing.join()


def test_a_file_that_stays_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "seal.key").touch()
    with pytest.raises(SealKeyError, match="is empty; delete it"):
        seal_keys(Settings(seal_key_file=str(tmp_path / "seal.key")))


def test_a_file_is_found_in_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    seal_keys(Settings(seal_key_file="~/seal.key"))
    assert (tmp_path / "seal.key").exists()
