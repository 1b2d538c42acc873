"""Memory on large pages: nothing but speed changes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from turnwire.gateway import large_pages
from turnwire.gateway.large_pages import use_large_pages

MIB = 1 << 20


def test_what_lies_in_memory_is_the_same_afterwards() -> None:
    kept = [str(number) for number in range(200_000)]
    block = bytes(range(256)) * (24 * MIB // 256)
    use_large_pages()
    assert kept == [str(number) for number in range(200_000)]
    assert block == bytes(range(256)) * (24 * MIB // 256)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_only_writable_memory_of_the_process_itself_that_is_in_use_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps = tmp_path / "maps"
    maps.write_text(
        "7f0000100000-7f0000b00000 rw-p 00000000 00:00 0 \n"
        "7f0001000000-7f0001400000 r-xp 00000000 08:01 77 /usr/lib/libx.so\n"
        "7f0002000000-7f0002400000 rw-p 00000000 08:01 78 /tmp/a mapped file\n"
        "7f0003000000-7f0003100000 rw-p 00000000 00:00 0 \n"
        "7f0010000000-7f0040000000 rw-p 00000000 00:00 0 \n"
        "7ffc00000000-7ffc00400000 rw-p 00000000 00:00 0 [stack]\n"
    )
    asked: list[tuple[int, int, int]] = []

    class Advise:
        def __call__(self, *arguments: int) -> int:
            asked.append(arguments)  # type: ignore[arg-type]
            return -1

    class Resident:
        """The third large page is half empty, the fourth cannot be asked about."""

        def __call__(self, address: int, size: int, pages: Any) -> int:
            used = len(pages) // 2 if address == 0x7F0000600000 else len(pages)
            pages.raw = b"\x01" * used + b"\xfe" * (len(pages) - used)
            return -1 if address == 0x7F0000800000 else 0

    class Library:
        madvise = Advise()
        mincore = Resident()

    monkeypatch.setattr(large_pages, "_MAPS", maps)
    monkeypatch.setattr(large_pages.ctypes, "CDLL", lambda name: Library())
    use_large_pages()
    assert asked == [(0x7F0000200000, 2 * MIB, 25), (0x7F0000400000, 2 * MIB, 25)]


def test_a_system_that_hides_its_maps_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_pages, "_MAPS", tmp_path / "absent")
    use_large_pages()
