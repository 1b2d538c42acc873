"""The file for a Ray cluster: what it imports exists, and its settings are settings."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import yaml

from turnwire.gateway.setup.loading import load_settings

ROOT = Path(__file__).resolve().parents[2]


def names_of(module: str) -> set[str]:
    """The functions of a module, without importing it."""
    file = ROOT / "src" / Path(*module.split(".")).with_suffix(".py")
    return {node.name for node in ast.parse(file.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)}


def test_the_file_names_what_there_is() -> None:
    file: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "ray" / "turnwire.yaml").read_text(encoding="utf-8"))
    (application,) = file["applications"]
    module, _, name = application["import_path"].partition(":")
    assert name in names_of(module)
    settings = load_settings(application["args"], config=None, environ={})
    assert settings.port
    assert settings.store is not None
    assert settings.store.startswith("redis://")
    assert settings.seal_key_file
    (deployment,) = application["deployments"]
    module, _, name = deployment["autoscaling_config"]["policy"]["policy_function"].partition(":")
    assert name in names_of(module)
