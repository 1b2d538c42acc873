"""What every test starts from."""

from __future__ import annotations

import sys

import pytest

_LIMIT = sys.getrecursionlimit()


@pytest.fixture(autouse=True)
def _usual_recursion_limit() -> None:
    """Property tests raise the interpreter's limit and may leave it so; tests of deep input need the usual one."""
    sys.setrecursionlimit(_LIMIT)
