"""What every test starts from, and what each must leave behind: answers of the published types."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from .published_types import HELD, watch

_LIMIT = sys.getrecursionlimit()
_TOLD: Counter[str] = Counter()

# A change is judged by the same examples on every machine, however slow; `--hypothesis-profile=default` draws new ones.
settings.register_profile(
    "repeatable", deadline=None, database=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def _usual_recursion_limit() -> None:
    """Property tests raise the interpreter's limit and may leave it so; tests of deep input need the usual one."""
    sys.setrecursionlimit(_LIMIT)


@pytest.fixture(autouse=True)
def _published_types() -> Iterator[None]:
    """A test fails if it made a stream or a document that the vendors' types do not allow."""
    yield
    if problems := HELD.settle():
        pytest.fail(f"{len(problems)} not of the published types:\n" + "\n".join(problems[:5]), pytrace=False)


def pytest_sessionstart() -> None:
    """Wrap the encoders before the first test."""
    watch()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the process that started this one, if there is one, what was sent."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["published_types"] = dict(HELD.counts)
    else:
        _TOLD.update(HELD.counts)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """One of several test processes has ended."""
    _TOLD.update(getattr(node, "workeroutput", {}).get("published_types", {}))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what was held against the published types."""
    if _TOLD:
        told = ", ".join(f"{count:,} {what}" for what, count in sorted(_TOLD.items()))
        terminalreporter.write_line(f"held against the vendors' published types: {told}")
