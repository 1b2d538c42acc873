"""A gateway in a process of its own, with sessions in it, and a browser to look at them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from tools.browser import chromium

# A browser that asks nobody for anything by itself.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
MARKDOWN = (
    "They want a table.\n</think>\n\n## Result\n\nHere is **what I found** in `src/`:\n\n| file | lines |\n|---|---|\n"
    "| a.py | 120 |\n\n- one *item*\n- two\n\n```python\ndef f(x):\n    return x + 1\n```\n\nDone."
)
CALL = (
    "I should calculate.\n</think>\n\nLet me work it out.\n<tool_call>\n<function=calculate>\n<parameter=expression>\n"
    "(3 + 4) * 2\n</parameter>\n</function>\n</tool_call>"
)
ATTACK = "<img src=x onerror=window.hacked=1>"
SCRIPT = "</script><script>window.hacked=1</script> [a](javascript:window.hacked=1)"
MARKUP = f"{ATTACK}\n</think>\n\n{ATTACK} {SCRIPT} `{ATTACK}`"
LINES = (
    {"match": "attack", "text": MARKUP + CALL.replace("calculate", f"run{ATTACK}").replace("(3 + 4) * 2", ATTACK)},
    {"match": "calculate", "text": CALL},
    {"match": "calculate", "text": "Good.\n</think>\n\nIt is **14**."},
    {"match": "table", "text": MARKDOWN, "delay_ms": 4},
    {"match": "forever", "text": "Hm.\n</think>\n\n" + "word " * 3000, "delay_ms": 20},
    {"text": "I look.\n</think>\n\nThe parser lost its `flush`.", "prefill_tokens_per_s": 20_000},
)


class Gateway:
    """A running gateway."""

    def __init__(self, base: str) -> None:
        self.base = base

    def ask(self, path: str, body: dict[str, Any] | None = None, **headers: str) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.base + path, data=data, headers={"content-type": "application/json"} | headers
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def written(self) -> int:
        """How many turns are in capture files."""
        with urllib.request.urlopen(self.base + "/metrics", timeout=30) as answer:
            page = answer.read().decode()
        found = re.search(r'^turnwire_captures_total\{outcome="written"\} ([0-9.]+)', page, re.MULTILINE)
        return int(float(found[1])) if found else 0

    def turn(
        self, session: str, system: str = "You are careful.", *, history: list[dict[str, Any]], **over: Any
    ) -> None:
        """One turn of a session; what was said is added to the history."""
        body = {"model": "test-model", "max_tokens": 400, "system": system, "messages": history} | over
        answer = self.ask(
            "/v1/messages", body, **{"x-claude-code-session-id": session, "user-agent": "claude-cli/2.1.325"}
        )
        history.append({"role": "assistant", "content": answer["content"]})


@contextmanager
def started(folder: Path, *more: str) -> Iterator[Gateway]:
    """A scripted model behind a gateway in a process of its own."""
    script = folder / "script.jsonl"
    script.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    flags = ["--engine", f"scripted:{script}", "--model", "test-model", "--dialect", "qwen3_coder", "--port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "turnwire", "serve", *flags, "--log-level", "warning", *more],
        stderr=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"XDG_STATE_HOME": str(folder)},
    )
    try:
        assert process.stdout is not None
        base = ""
        while "on http://" not in base:
            base = process.stdout.readline()
            assert base, "the gateway did not start"
        yield Gateway("http://" + base.split("on http://")[1].split()[0])
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway that captures; one of its sessions has a date in its system prompt."""
    folder = tmp_path_factory.mktemp("console")
    with started(folder, "--capture", str(folder / "captures")) as made:
        history: list[dict[str, Any]] = []
        for day in (14, 14, 15):
            history.append({"role": "user", "content": "What changed in the parser?"})
            made.turn("dated", f"Today is 2026-11-{day}. " + "You work in a repository. " * 40, history=history)
        yield made


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The installed Chromium; a failure where there is none."""
    found = chromium()
    if found is None:
        pytest.fail("No Chromium is installed: python tools/browser.py install", pytrace=False)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Any, gateway: Gateway) -> Iterator[Any]:
    """A tab on the console; an error in the page fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 860})
    tab = context.new_page()
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.set_default_timeout(15_000)
    tab.goto(gateway.base + "/console")
    yield tab
    context.close()
    assert errors == []


def wait_for(condition: Any, seconds: float = 15) -> None:
    """Wait until something outside the page is so."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def saved(path: Path, data: bytes) -> str:
    """A file that a page can open."""
    path.write_bytes(data)
    return path.as_uri()
