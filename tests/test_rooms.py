"""The sans-IO rooms are libraries in their own right: they import with nothing but the base dependencies."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import turnwire

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


# Who may touch files in the rooms that do no I/O: loaders say in their docstrings that they do.
LOADERS = {"prompts/tokenizers/load.py", "profiles/book.py"}
TOUCHES = {"read_text", "read_bytes", "write_text", "write_bytes", "from_file", "from_pretrained", "stat", "glob"}


def _touches(call: ast.Call) -> bool:
    if isinstance(call.func, ast.Name):
        return call.func.id == "open"
    if not isinstance(call.func, ast.Attribute) or "resources.files" in ast.unparse(call.func):
        return False
    modes = [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
    return call.func.attr in TOUCHES or (
        call.func.attr == "open" and any(mode in ("r", "rb", "w", "wb") for mode in modes)
    )


def _touching(path: Path) -> list[str]:
    """Calls that read or write files, and coroutines, in one module. Data that ships inside the package is code."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            found.append(f"{path.name}:{node.lineno} async")
        elif isinstance(node, ast.Call) and _touches(node):
            found.append(f"{path.name}:{node.lineno} {ast.unparse(node.func)}")
    return found


@pytest.mark.parametrize("room", ["prompts", "parsers", "continuity"])
def test_sans_io_rooms_touch_no_file(room: str) -> None:
    folder = Path(turnwire.__file__).parent
    modules = sorted((folder / room).rglob("*.py"))
    assert modules
    touching = {str(path.relative_to(folder)): _touching(path) for path in modules}
    assert {name: found for name, found in touching.items() if found and name not in LOADERS} == {}
    assert all(touching[name] for name in LOADERS if name.startswith(room))
