"""Signs of life: lines in a pipe, one bar on a terminal, and an end to both."""

from __future__ import annotations

import io
import re
import threading
from pathlib import Path

import pytest

from turnwire.cli.launch.up import last_said
from turnwire.cli.loading import DownloadProgress, Loading

TOTAL = 90_000_000


class Said:
    """Lines as they are said, and a wait for one of them."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._changed = threading.Condition()

    def __call__(self, line: str) -> None:
        with self._changed:
            self.lines.append(line)
            self._changed.notify_all()

    def until(self, pattern: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: any(re.search(pattern, line) for line in self.lines), 20)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Said:
    monkeypatch.setattr(Loading, "_EVERY_S", 0.005)
    return Said()


def test_a_download_in_a_pipe_says_how_far_it_is_and_what_comes_next(said: Said) -> None:
    with Loading("looking") as loading:
        loading.say = said
        progress = DownloadProgress(loading, after="loading the model")
        progress("Small", 1_000_000, TOTAL)
        said.until(r"^fetching Small, 90 MB$")
        said.until(r"^\.\.\. fetching Small: 1 of 90 MB \(\d+ s\)$")
        progress("Small", 45_000_000, TOTAL)
        said.until(r"^\.\.\. fetching Small: 45 of 90 MB")
        progress("Small", TOTAL, TOTAL)
        progress("Small", TOTAL, TOTAL)
        said.until(r"^\.\.\. loading the model")
    assert said.lines.count("loading the model") == 1
    assert said.lines.count("fetching Small, 90 MB") == 1


def test_a_download_while_the_gateway_serves_ends_in_silence(said: Said) -> None:
    loading = Loading()
    loading.say = said
    loading.ready("turnwire: ready")
    progress = DownloadProgress(loading, after="loading the model")
    progress("Encoder", 0, TOTAL)
    progress("Encoder", TOTAL, TOTAL)
    assert said.lines[0] == "fetching Encoder, 90 MB"
    # A beat may have come in between; what matters is that nothing is waited for afterwards.
    assert all("fetching Encoder" in line for line in said.lines)


class Terminal(io.StringIO):
    """Standard error as a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_download_on_a_terminal_is_one_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm-256color")
    with Loading("looking") as loading:
        progress = DownloadProgress(loading, after="loading the model")
        for done in (0, TOTAL // 2, TOTAL, TOTAL):
            progress("Small", done, TOTAL)
    shown = terminal.getvalue()
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1, "the cursor is hidden and shown once"
    assert shown.endswith("  loading the model\n")
    assert shown.count("loading the model") == 1


def test_the_gateways_own_lines_are_passed_on(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("")
    assert last_said(log) == "starting the gateway"
    log.write_text("  fetching Coder, 1,000 MB\n  ... fetching Coder: 7 of 1,000 MB (12 s)\n")
    assert last_said(log) == "fetching Coder: 7 of 1,000 MB"
