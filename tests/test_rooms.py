"""The sans-IO rooms are libraries in their own right: they import with nothing but the base dependencies."""

from __future__ import annotations

import subprocess
import sys

ROOMS = ("turns", "parsers", "protocols", "prompts", "continuity", "profiles")
PROGRAM = """
import importlib, importlib.abc, pkgutil, sys

ALLOWED = {"turnwire", "msgspec", "jinja2", "markupsafe"}

class Guard(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        root = name.partition(".")[0]
        if root not in ALLOWED and root not in sys.stdlib_module_names:
            raise ImportError(f"{name} is not a base dependency")

sys.meta_path.insert(0, Guard())
for room in sys.argv[1:]:
    module = importlib.import_module(f"turnwire.{room}")
    for found in pkgutil.walk_packages(getattr(module, "__path__", ()), f"turnwire.{room}."):
        importlib.import_module(found.name)
"""


def test_the_libraries_need_only_the_base_dependencies() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM, *ROOMS], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
