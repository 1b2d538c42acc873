"""Keys while an answer streams: each counts, however many arrive at once, and arrows are not Escape."""

from __future__ import annotations

import os
import pty
import sys
import time
from collections.abc import Sequence

import pytest

from turnwire.cli.chat.keys import ESCAPE, KeyWatch


@pytest.mark.parametrize(
    ("typed", "heard"),
    [
        (["t"], ["t"]),
        (["\x1b"], ["esc"]),
        (["\x1b[A"], []),
        (["\x1b[1;5C", "\x1bOP"], []),
        (["\x1b[At\x1b"], ["t", "esc"]),
        (["\x1b", "[A", "t"], ["t"]),
        (["ttx"], ["t", "t"]),
    ],
)
def test_keys_are_told_apart(monkeypatch: pytest.MonkeyPatch, typed: Sequence[str], heard: list[str]) -> None:
    ours, theirs = pty.openpty()
    found: list[str] = []
    with os.fdopen(theirs) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        with KeyWatch({"t": lambda: found.append("t"), ESCAPE: lambda: found.append("esc"), "q": lambda: None}):
            for piece in typed:
                os.write(ours, piece.encode())
            deadline = time.monotonic() + 5
            while found != heard and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(0.1)  # nothing more comes
    os.close(ours)
    assert found == heard
