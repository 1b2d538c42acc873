"""Sizes as people write them: a number of bytes, or a number with a unit.

Promise: one table of units reads and spells them. What is spelled here is read back as the same number of bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

__all__ = ["bytes_of", "spelled"]

_UNITS: Mapping[str, int] = {
    "TiB": 1 << 40,
    "GiB": 1 << 30,
    "MiB": 1 << 20,
    "KiB": 1 << 10,
    "TB": 10**12,
    "GB": 10**9,
    "MB": 10**6,
    "kB": 10**3,
    "B": 1,
}
_BY_NAME = {name.lower(): unit for name, unit in _UNITS.items()}
_WRITTEN = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", re.ASCII)


def bytes_of(text: str) -> int:
    """The bytes that a text means; units in any case. ValueError, with what to write instead, for any other text and
    for a part of a byte."""
    written = _WRITTEN.fullmatch(text)
    unit = _BY_NAME.get(written[2].lower() or "b") if written else None
    size = Decimal(written[1]) * unit if written and unit else None
    if size is None or size != int(size):
        raise ValueError(f"'{text}' is no size: write whole bytes, or a number with one of {', '.join(_UNITS)}: 512MiB")
    return int(size)


def spelled(size: int) -> str:
    """A size with the largest binary unit that divides it; without one below 1 KiB, and where none does."""
    for name, unit in _UNITS.items():
        if name.endswith("iB") and size >= unit and size % unit == 0:
            return f"{size // unit}{name}"
    return str(size)
