"""Under which id clients find a model, and which model a name means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from turnwire.engines.embedded.engine import EmbeddedEngine
from turnwire.engines.interface import EngineError, EngineInfo
from turnwire.gateway.settings import ModelSettings, Settings
from turnwire.gateway.setup.assembly import AssemblyError, _model_id, assemble_models


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


@pytest.mark.parametrize(
    ("settings", "runs"),
    [
        (Settings(models=(ModelSettings(name="small"),)), None),
        (Settings(models=(ModelSettings(name="Qwen2.5-Coder-1.5B"),)), "Qwen2.5-Coder-1.5B"),
        (Settings(models=(ModelSettings(name="small", source="maker/repo"),)), "maker/repo"),
        (Settings(models=(ModelSettings(name="small", engine="embedded:some.gguf"),)), "some.gguf"),
        (Settings(models=(ModelSettings(name="none.gguf"),)), "none.gguf"),
        (Settings(model="smal"), "smal"),
        (Settings(), None),
    ],
)
async def test_a_free_name_in_a_table_means_the_default_model(
    settings: Settings, runs: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []

    class Recorded(EmbeddedEngine):
        async def start(self) -> EngineInfo:
            raise EngineError("internal", "not started here")

        def __init__(self, model: str | None, **rest: Any) -> None:
            asked.append(model)
            super().__init__(model, **rest)

    monkeypatch.setattr("turnwire.engines.embedded.engine.EmbeddedEngine", Recorded)
    with pytest.raises(AssemblyError, match="not started here"):
        await assemble_models(settings)
    assert asked == [runs]
