"""The console in a real browser while real clients work."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ..console.conftest import browser
from .conftest import Serve
from .outputs import call, line, thought
from .sandbox import Finished
from .test_claude_code import claude
from .test_codex import codex

__all__ = ["browser", "claude", "codex"]

LONG = "I think about the file for a while. " * 12


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1280, "height": 860})
    tab = context.new_page()
    tab.set_default_timeout(60_000)
    yield tab
    context.close()


@pytest.mark.parametrize("client", ["claude", "codex"])
def test_a_real_session_is_followed(serve: Serve, page: Any, client: str, claude: Any, codex: Any) -> None:
    slow = "sleep 1.2; echo hello"  # a wait of less than a second is not worth a sentence
    tool = call("Bash", command=slow) if client == "claude" else call("exec_command", cmd=slow)
    gateway = serve(
        line(thought(LONG), "Let me see.", tool, delay_ms=25),
        line(thought("It is there."), "The command printed hello."),
    )
    agent = claude(gateway) if client == "claude" else codex(gateway)
    done: list[Finished] = []
    thread = threading.Thread(target=lambda: done.append(agent("Run the shell command echo hello")))
    thread.start()
    page.goto(f"http://127.0.0.1:{gateway.port}/console#live")
    # The running turn: who asks, and what it does now.
    page.wait_for_selector("td:has-text('thinking')")
    shown = "claude-cli/" if client == "claude" else "codex"
    assert shown in page.inner_text("main")
    thread.join(120)
    assert done[0].code == 0, str(done[0])
    page.click("nav a[href='#sessions']")
    page.click("tr.link >> nth=0")
    page.wait_for_selector(".turn[role=button] >> nth=1")
    assert "the client ran 1 tool call" in page.inner_text("main")
    page.click(".turn[role=button] >> nth=1")
    page.wait_for_selector(".verdict.held")
    assert "The command printed hello." in page.inner_text(".beside")
