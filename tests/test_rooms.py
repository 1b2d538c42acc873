"""The sans-IO rooms are libraries in their own right: they import with nothing but the base dependencies."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "turnwire"
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


def _sans_io() -> list[str]:
    """The rooms that an import contract keeps away from sockets and event loops."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (rooms,) = [contract["source_modules"] for contract in contracts if "do no I/O" in contract["name"]]
    return [str(room) for room in rooms]


@pytest.mark.parametrize("room", _sans_io())
def test_sans_io_rooms_touch_no_file(room: str) -> None:
    folder = ROOT / "src"
    place = folder / room.replace(".", "/")
    modules = sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
    assert modules
    touching = {path.relative_to(SOURCE).as_posix(): _touching(path) for path in modules}
    assert {name: found for name, found in touching.items() if found and name not in LOADERS} == {}
    assert all(touching[name] for name in LOADERS if name.startswith(f"{place.name}/"))


MOST_MODULES = 15


def test_no_folder_is_a_heap() -> None:
    """A folder can be read at a glance: at most fifteen modules, beside `__init__`."""
    counts = {
        init.parent.relative_to(SOURCE).as_posix(): sum(1 for path in init.parent.glob("*.py") if path != init)
        for init in SOURCE.rglob("__init__.py")
    }
    assert counts
    assert {folder: count for folder, count in counts.items() if count > MOST_MODULES} == {}


def test_every_module_says_what_it_promises() -> None:
    """A module opens with what it is and what it promises; a folder's `__init__` says what lives there."""
    for path in sorted(SOURCE.rglob("*.py")):
        said = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        assert said, path
        assert path.name == "__init__.py" or "Promise: " in said, f"{path}: its docstring has no Promise"


def test_equal_choices_are_written_in_one_order() -> None:
    """Two `Literal`s with the same members are equal, and `typing` keeps the first it sees of equal unions: a message
    that lists the choices would depend on the order of imports."""
    orders: dict[frozenset[str], dict[tuple[str, ...], str]] = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if (
                isinstance(node, ast.Subscript)
                and ast.unparse(node.value) == "Literal"
                and isinstance(node.slice, ast.Tuple)
            ):
                members = tuple(ast.unparse(each) for each in node.slice.elts)
                orders.setdefault(frozenset(members), {})[members] = f"{path.relative_to(SOURCE)}:{node.lineno}"
    assert [found for found in orders.values() if len(found) > 1] == []
