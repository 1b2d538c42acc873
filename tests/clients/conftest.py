"""Fixtures of the real-client suite: pinned clients, a gateway process per test, a sandbox per test."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from benchmarks.installers import installer

from turnwire.capture.reading import Capture
from turnwire.engines.captured.files import load_capture
from turnwire.gateway.replay.replaying import Replayed, replay, replay_settings
from turnwire.gateway.settings import Settings

from .sandbox import Sandbox
from .serving import ServedGateway

Serve = Callable[..., ServedGateway]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.clients)
            item.add_marker(pytest.mark.timeout(240))  # above every client's own limit, so that theirs speaks first


class Compared(NamedTuple):
    """Turns that were run again and equal, and those that could not be compared."""

    equal: int
    skipped: int


def replay_equal(folder: Path) -> Compared:
    """Run what one gateway captured again: nothing may differ. Each file is one process, and another process may have
    had other keys."""
    compared = skipped = 0
    for path in sorted(folder.glob("*.zst")):
        capture = load_capture(str(path))

        async def run(capture: Capture = capture, place: str = str(path)) -> list[Replayed]:
            return [one async for one in replay(capture, replay_settings(capture, place, Settings()))]

        # A browser of the same test has an event loop in this thread.
        with ThreadPoolExecutor(1) as thread:
            done = thread.submit(lambda run=run: asyncio.run(run())).result()  # type: ignore[misc]
        assert [str(difference) for one in done for difference in one.differences] == []
        compared += sum(not one.skipped for one in done)
        skipped += sum(bool(one.skipped) for one in done)
    return Compared(compared, skipped)


@pytest.fixture(scope="session")
def bundles() -> dict[str, Any]:
    """The pinned clients, installed if they are not."""
    installed: dict[str, Any] = installer("clients").install()
    return installed


@pytest.fixture
def sandbox(tmp_path: Path, bundles: dict[str, Any]) -> Sandbox:
    return Sandbox(tmp_path / "sandbox", bundles)


@pytest.fixture
def serve(tmp_path: Path, sandbox: Sandbox, request: pytest.FixtureRequest) -> Iterator[Serve]:
    """Start a gateway that plays the given lines; further arguments are flags of `turnwire serve`."""
    running: list[ServedGateway] = []

    def start(*lines: dict[str, Any], flags: tuple[str, ...] = ()) -> ServedGateway:
        folder = tmp_path / f"gateway{len(running)}"
        code = {"PYTHONPATH": path} if (path := os.environ.get("PYTHONPATH")) else {}
        gateway = ServedGateway(folder, list(lines), flags, sandbox.environment(**code))
        running.append(gateway)
        return gateway.start()

    yield start
    for gateway in running:
        gateway.close()
    for gateway in running:
        # A plain list: the report may travel between processes.
        request.node.user_properties.append(("replayed", list(replay_equal(gateway.captures))))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How many turns of the real clients were run again, over all tests."""
    told = [
        value
        for outcomes in terminalreporter.stats.values()
        for report in outcomes
        if getattr(report, "when", "") == "teardown"
        for name, value in report.user_properties
        if name == "replayed"
    ]
    if told:
        equal, skipped = (sum(column) for column in zip(*told, strict=True))
        terminalreporter.write_line(
            f"replayed the captures of {len(told)} gateways: {equal} turns equal, {skipped} not compared"
        )


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """A failed test shows the gateway's log, since the client's own words rarely say why."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.when == "call" and report.failed:
        folder = item.funcargs.get("tmp_path")  # type: ignore[attr-defined]
        for log in sorted(folder.glob("gateway*/log.txt")) if folder else ():
            report.sections.append((f"gateway {log.parent.name}", log.read_text()[-4000:]))
