"""Finds a dialect by any name a registry gives it, and combines one family's reasoning with another's calls."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from dataclasses import replace
from functools import cache

from turnwire.parsers import dialects as _folder
from turnwire.parsers.dialect import Dialect
from turnwire.parsers.dialects.hermes import FENCED

__all__ = ["UnknownDialect", "dialect_names", "dialects", "resolve"]


class UnknownDialect(LookupError):
    """No dialect has this name. `close` are the names nearest to it."""

    def __init__(self, name: str, close: tuple[str, ...], what: str = "dialect") -> None:
        hint = f"; did you mean {', '.join(close)}?" if close else ""
        super().__init__(f"there is no {what} called {name!r}{hint} (turnwire dialects lists all names)")
        self.name = name
        self.close = close


def normalise(name: str) -> str:
    """Registries differ in case and separators only: those do not count."""
    return name.lower().translate({ord(mark): None for mark in "-_. "})


@cache
def dialects() -> tuple[Dialect, ...]:
    """Every dialect, in the order of their names."""
    found: list[Dialect] = []
    for module in pkgutil.iter_modules(_folder.__path__):
        found += importlib.import_module(f"{_folder.__name__}.{module.name}").DIALECTS
    return tuple(sorted(found, key=lambda dialect: dialect.name))


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
    if reasoning is None or normalise(reasoning) == normalise(name) or known.get(normalise(reasoning)) == dialect:
        return dialect
    if normalise(reasoning) == "none":
        return dialect.without_reasoning()
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
