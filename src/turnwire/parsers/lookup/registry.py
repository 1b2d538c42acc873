"""Finds a dialect by any name a registry gives it, and combines one family's reasoning with another's calls.

Promise: every built-in family and every installed plug-in is found by name; an unknown name is refused with the
nearest ones.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from functools import cache

from msgspec.structs import replace

from turnwire.parsers import dialects as _folder
from turnwire.parsers.dialect import Dialect
from turnwire.parsers.dialects.json.hermes import FENCED
from turnwire.parsers.lookup.failures import UnknownDialect
from turnwire.parsers.lookup.plugins import installed_dialects, load_dialect_file

__all__ = ["combined", "dialect_from_flag", "dialect_names", "dialects", "resolve"]


def normalise(name: str) -> str:
    """Registries differ in case and separators only: those do not count."""
    return name.lower().translate({ord(mark): None for mark in "-_. "})


@cache
def dialects() -> tuple[Dialect, ...]:
    """Every dialect, in the order of their names. A plug-in takes the place of a built-in family of its name."""
    found: list[Dialect] = []
    for module in pkgutil.walk_packages(_folder.__path__, f"{_folder.__name__}."):
        if not module.ispkg:
            found += importlib.import_module(module.name).DIALECTS
    by_name = {dialect.name: dialect for dialect in (*found, *installed_dialects())}
    return tuple(by_name[name] for name in sorted(by_name))


def dialect_names() -> tuple[str, ...]:
    """The canonical names of all dialects."""
    return tuple(dialect.name for dialect in dialects())


@cache
def _names() -> dict[str, Dialect]:
    names = {normalise(dialect.name): dialect for dialect in dialects()}
    for dialect in dialects():
        for alias in dialect.aliases:
            names.setdefault(normalise(alias), dialect)
    return names


@cache
def _reasoning_names() -> dict[str, Dialect]:
    names: dict[str, Dialect] = {}
    for dialect in dialects():
        if dialect.reasoning is not None:
            for alias in dialect.reasoning_aliases:
                names.setdefault(normalise(alias), dialect)
    for name, dialect in _names().items():
        if dialect.reasoning is not None:
            names.setdefault(name, dialect)
    return names


def _close(name: str, known: dict[str, Dialect]) -> tuple[str, ...]:
    near = difflib.get_close_matches(normalise(name), known, n=3, cutoff=0.5)
    return tuple(dict.fromkeys(known[key].name for key in near))


def resolve(name: str, reasoning: str | None = None, *, fenced: bool = False) -> Dialect:
    """The dialect called `name`. With `reasoning`, its thoughts are read as that dialect writes them (`none`: not at
    all). `fenced` is for models known to write calls as plain or fenced JSON: such an object then counts as a call
    if it names an offered tool and its arguments fit. Raises UnknownDialect, naming the nearest ones."""
    known = _names()
    dialect = known.get(normalise(name)) or _reasoning_names().get(normalise(name))
    if dialect is None:
        raise UnknownDialect(name, _close(name, known))
    if fenced and FENCED not in dialect.calls:
        dialect = replace(dialect, calls=(*dialect.calls, FENCED))
    if reasoning is None or normalise(reasoning) == normalise(name):
        return dialect
    return combined(dialect, reasoning)


def dialect_from_flag(flag: str, reasoning: str | None = None) -> Dialect:
    """The dialect that an operator asks for: a name, or `FILE.py` (`FILE.py:NAME` where it defines several), which is
    run. Raises UnknownDialect."""
    path, _, name = flag.partition(".py:") if ".py:" in flag else (flag.removesuffix(".py"), "", "")
    if not flag.endswith(".py") and ".py:" not in flag:
        return resolve(flag, reasoning)
    tables = load_dialect_file(f"{path}.py")
    found = next((table for table in tables if normalise(table.name) == normalise(name)), None) if name else tables[0]
    if found is None or (not name and len(tables) > 1):
        raise UnknownDialect(flag, tuple(f"{path}.py:{table.name}" for table in tables))
    return found if reasoning is None else combined(found, reasoning)


def combined(dialect: Dialect, reasoning: str) -> Dialect:
    """A dialect whose thoughts are read as the one called `reasoning` writes them (`none`: not at all)."""
    if normalise(reasoning) == "none":
        return dialect.without_reasoning()
    if _names().get(normalise(reasoning)) == dialect:
        return dialect
    if dialect.router is not None:
        raise UnknownDialect(reasoning, (dialect.name,), f"reasoning dialect to go with {dialect.name}")
    other = _reasoning_names().get(normalise(reasoning))
    if other is None:
        raise UnknownDialect(reasoning, _close(reasoning, _reasoning_names()), "reasoning dialect")
    if other.reasoning == dialect.reasoning:
        return dialect
    return replace(
        dialect,
        name=f"{dialect.name}+{other.name}",
        reasoning=other.reasoning,
        wrappers=tuple(dict.fromkeys(dialect.wrappers + other.wrappers)),
    )
