"""The browser that the tests of the console need: found, installed, or asked for in a sentence."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Any

import pytest
from tools import browser


def test_a_browser_that_is_there_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/opt/{name}" if name == "google-chrome" else None)
    assert browser.install() == 0
    assert capsys.readouterr().out == "browser: /opt/google-chrome\n"


@pytest.mark.parametrize(
    ("apt", "user", "why"),
    [
        (None, 0, "there is no apt-get"),
        ("/usr/bin/apt-get", 1000, "apt-get needs root"),
        ("/usr/bin/apt-get", 0, "apt-get update failed: no network"),
    ],
)
def test_one_that_cannot_be_had_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], apt: str | None, user: int, why: str
) -> None:
    def refused(command: list[str], **_: Any) -> Any:
        return subprocess.CompletedProcess(command, 100, "", "reading\nno network\n")

    monkeypatch.setattr(shutil, "which", lambda name: apt if name == "apt-get" else None)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(subprocess, "run", refused)
    assert browser.install() == 1
    told = capsys.readouterr().err
    assert f"it cannot be installed from here ({why})" in told
    assert "such as Debian's package chromium." in told


def test_one_that_is_missing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def run(command: list[str], **_: Any) -> Any:
        ran.append(command[1])
        return subprocess.CompletedProcess(command, 0, "", "")

    found = {"apt-get": lambda: "/usr/bin/apt-get", "chromium": lambda: "/usr/bin/chromium" if ran else None}
    monkeypatch.setattr(shutil, "which", lambda name: found.get(name, lambda: None)())
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(subprocess, "run", run)
    assert browser.install() == 0
    assert ran == ["update", "install"]
