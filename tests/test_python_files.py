"""A user's Python file is run as it stands, however quickly it was written again."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from turnwire.python_files import source_spec


@pytest.mark.parametrize("keeps_bytecode", [True, False])
def test_a_file_that_was_written_again_at_once_is_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeps_bytecode: bool
) -> None:
    monkeypatch.setattr("sys.dont_write_bytecode", not keeps_bytecode)
    file = tmp_path / "tools.py"
    for number in range(3):
        file.write_text(f"x = {number}\n")
        os.utime(file, (1, 1))
        spec = source_spec("tools", str(file))
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        assert module.x == number
    assert list(tmp_path.iterdir()) == [file], "nothing is left beside it"


def test_what_is_not_called_a_python_file_is_none() -> None:
    assert source_spec("tools", "tools.txt") is None
