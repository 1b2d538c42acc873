"""How much two prompts have in common from the start.

Promise: the work is comparing slices, never item by item; only the chunk where the two part is searched, by halves.
"""

from __future__ import annotations

from array import array
from typing import TypeVar

__all__ = ["shared_prefix"]

_CHUNK = 4096

Items = TypeVar("Items", str, "array[int]")


def shared_prefix(one: Items, other: Items) -> int:
    """How many leading items the two share."""
    size = min(len(one), len(other))
    place, end = 0, min(_CHUNK, size)
    while place < size and one[place:end] == other[place:end]:
        place, end = end, min(end + _CHUNK, size)
    low, high = place, end
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
