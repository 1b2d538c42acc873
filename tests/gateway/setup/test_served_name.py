"""Under which id clients find a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwire.engines.interface import EngineInfo
from turnwire.gateway.settings import ModelSettings
from turnwire.gateway.setup.assembly import _model_id


@pytest.mark.parametrize(
    ("named", "told", "served"),
    [
        ("mine", "/home/somebody/.cache/models/Tiny-Q4.gguf", "mine"),
        ("", "/home/somebody/.cache/models/Tiny-Q4.gguf", "Tiny-Q4"),
        ("", "~/models/Tiny-Q4.gguf", "Tiny-Q4"),
        ("", "/models/Qwen3-8B", "Qwen3-8B"),
        ("", "Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("", None, "turnwire"),
    ],
)
def test_no_path_of_a_machine_is_told(named: str, told: str | None, served: str) -> None:
    assert _model_id(ModelSettings(name=named), EngineInfo(name="llamacpp", model=told)) == served


def test_a_file_that_the_operator_names_is_served_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "Tiny-Q4.gguf"
    file.touch()
    assert _model_id(ModelSettings(name=str(file)), EngineInfo(name="llamacpp", model=str(file))) == "Tiny-Q4"
