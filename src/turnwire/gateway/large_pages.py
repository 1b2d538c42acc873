"""What lives as long as the process lies on large pages, where the system has them.

Promise: nothing but speed changes, and what is mostly holes is left alone. An interpreter's objects lie far apart; on
pages of four kilobytes a turn that comes after a pause finds few of their addresses still translated. Where the system
cannot do it, or forbids it, nothing is done.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from pathlib import Path

__all__ = ["use_large_pages"]

_SIZE = 2 << 20
_COLLAPSE = 25
"""MADV_COLLAPSE, since Linux 6.1."""

_FULL = 15 / 16
"""How much of a large page must be in use before it is made one: the rest of it is then taken from the system too."""

_LARGEST = 256 << 20
"""What is larger is no heap of objects: a model's weights, or a buffer that may never be used."""

_MAPS = Path("/proc/self/maps")


def use_large_pages() -> None:
    """Put the memory that is in use now on large pages."""
    if sys.platform != "linux":
        return
    try:
        library = ctypes.CDLL(None)
        advise, resident = library.madvise, library.mincore
        lines = _MAPS.read_text().splitlines()
    except (OSError, AttributeError):
        return
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    resident.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
    pages = ctypes.create_string_buffer(_SIZE // mmap.PAGESIZE)
    for line in lines:
        bounds, rights, _, _, inode, *name = line.split()
        if rights != "rw-p" or inode != "0" or name not in ([], ["[heap]"]):
            continue
        begin, end = (int(bound, 16) for bound in bounds.split("-"))
        first, last = -(-begin // _SIZE) * _SIZE, end // _SIZE * _SIZE
        if last - first > _LARGEST:
            continue
        for address in range(first, last, _SIZE):
            # Of each page's byte only the last bit has a meaning.
            if resident(address, _SIZE, pages) == 0 and sum(page & 1 for page in pages.raw) >= _FULL * len(pages):
                advise(address, _SIZE, _COLLAPSE)
