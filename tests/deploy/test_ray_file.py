"""The files for a Ray cluster: what they import exists, and their settings are settings."""

from __future__ import annotations

import ast
from pathlib import Path
from string import Formatter
from typing import Any

import pytest
import yaml

from turnwire.gateway.setup.loading import load_settings

ROOT = Path(__file__).resolve().parents[2]


def names_of(module: str) -> set[str]:
    """The functions of a module, without importing it."""
    file = ROOT / "src" / Path(*module.split(".")).with_suffix(".py")
    return {node.name for node in ast.parse(file.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)}


FILES = ("laptop.yaml", "turnwire.yaml", "with-engines.yaml")


def applications(name: str) -> dict[str, dict[str, Any]]:
    file: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "ray" / name).read_text(encoding="utf-8"))
    return {application["name"]: application for application in file["applications"]}


@pytest.mark.parametrize("name", FILES)
def test_a_file_names_what_there_is(name: str) -> None:
    there = applications(name)
    for application in there.values():
        module, _, function = application["import_path"].partition(":")
        assert function in names_of(module)
        for deployment in application["deployments"]:
            scaling = deployment.get("autoscaling_config")
            if scaling is not None:
                module, _, function = scaling["policy"]["policy_function"].partition(":")
                assert function in names_of(module)
            else:
                assert deployment["num_replicas"]
                # A gateway scales by live turns unless its file says that it does not.
                assert application["name"] != "turnwire" or "autoscaling_config" in deployment
    args = dict(there["turnwire"]["args"])
    engines = args.pop("engines", None)
    settings = load_settings(args, config=None, environ={})
    assert settings.port
    assert settings.store is not None
    assert settings.store.startswith("redis://")
    assert settings.seal_key_file
    if engines is not None:
        assert {"host", "port"} <= {field for _, field, _, _ in Formatter().parse(there[engines]["args"]["command"])}
        assert "engine" not in args
