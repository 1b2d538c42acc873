"""Families that do not ship with the project: from an installed package, or from a file of the operator's.

Promise: what a plug-in brings is a table like any other; one that cannot be used is refused with what to change, and
never takes the others with it unseen.
"""

from __future__ import annotations

import importlib.util
from importlib.metadata import entry_points
from pathlib import PurePath
from typing import Any, Final

from turnwire.parsers.dialect import Dialect
from turnwire.parsers.lookup.failures import DialectFileError
from turnwire.python_files import source_spec

__all__ = ["GROUP", "installed_dialects", "load_dialect_file"]

GROUP: Final = "turnwire.dialects"
"""The entry point group: each entry names a module with a `DIALECTS` tuple, or such a tuple."""


def installed_dialects() -> tuple[Dialect, ...]:
    """The dialects of every installed package that declares some."""
    found: list[Dialect] = []
    for entry in entry_points(group=GROUP):
        try:
            brought = entry.load()
        except Exception as error:  # a foreign module may fail in any way
            raise DialectFileError(
                entry.name, f"The plug-in {entry.name} ({entry.value}) cannot be loaded: {error}"
            ) from error
        found += _tables(getattr(brought, "DIALECTS", brought), f"The plug-in {entry.name} ({entry.value})")
    return tuple(found)


def load_dialect_file(path: str) -> tuple[Dialect, ...]:
    """The dialects that a Python file defines in `DIALECTS`. The file is run: it must be the operator's own."""
    spec = source_spec(f"turnwire_dialect_{PurePath(path).stem}", path)
    if spec is None or spec.loader is None:
        raise DialectFileError(path, f"{path} is not a Python file; give FILE.py with a DIALECTS tuple.")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except FileNotFoundError:
        raise DialectFileError(path, f"There is no file {path}.") from None
    except Exception as error:  # a foreign module may fail in any way
        raise DialectFileError(path, f"{path} cannot be run: {type(error).__name__}: {error}") from error
    return _tables(getattr(module, "DIALECTS", None), path)


def _tables(brought: Any, source: str) -> tuple[Dialect, ...]:
    tables = (brought,) if isinstance(brought, Dialect) else brought
    if not isinstance(tables, (tuple, list)) or not tables or not all(isinstance(one, Dialect) for one in tables):
        raise DialectFileError(source, f"{source} defines no dialect: it must have DIALECTS, a tuple of Dialect.")
    return tuple(tables)
