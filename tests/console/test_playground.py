"""The playground in a real browser: streamed markdown, tools with approval, cancel, retry, images."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from .conftest import Gateway, wait_for

pytestmark = pytest.mark.browser

PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def tab(page: Any, gateway: Gateway) -> Any:
    page.goto(gateway.base + "/console#playground")
    page.wait_for_selector("text=ready")
    return page


def ask(tab: Any, text: str) -> None:
    tab.fill("textarea[aria-label=Message]", text)
    tab.keyboard.press("Enter")


def test_markdown_streams_and_blocks_that_are_over_stay_the_same_elements(tab: Any) -> None:
    ask(tab, "Make a table please")
    tab.wait_for_selector(".markdown h4")
    tab.evaluate("document.querySelector('.markdown h4').dataset.seen = 'yes'")
    tab.wait_for_selector("footer")
    assert tab.get_attribute(".markdown h4", "data-seen") == "yes"
    assert tab.inner_text(".markdown table td >> nth=0") == "a.py"
    assert tab.inner_text(".markdown pre code") == "def f(x):\n    return x + 1"
    assert tab.locator(".markdown li em").count() == 1
    thought = tab.locator("details.thought")
    assert thought.get_attribute("open") is None
    assert "thought for" in thought.locator("summary").inner_text()
    assert "cached" in tab.inner_text("footer")


def test_a_tool_runs_when_it_is_allowed_and_not_when_it_is_refused(tab: Any) -> None:
    ask(tab, "Please calculate it")
    tab.click(".choices button:has-text('Refuse')")
    tab.wait_for_selector("footer")
    assert "not allowed" in tab.inner_text(".toolcard")
    tab.click("button:has-text('New')")
    ask(tab, "Please calculate it")
    tab.click(".choices button:has-text('Always run')")
    tab.wait_for_selector("footer")
    assert "done in" in tab.inner_text(".toolcard")
    assert tab.inner_text(".toolcard pre") == "14"
    assert tab.inner_text(".markdown strong") == "14"


def test_escape_cancels_and_the_answer_can_be_tried_again(tab: Any, gateway: Gateway) -> None:
    ask(tab, "Talk forever")
    tab.wait_for_selector(".markdown p:has-text('word word')")
    tab.keyboard.press("Escape")
    tab.wait_for_selector("footer:has-text('cancelled')")
    wait_for(lambda: gateway.ask("/admin/live") == [])
    tab.click("button:has-text('Retry')")
    tab.wait_for_selector(".markdown p:has-text('word word')")
    tab.click("button:has-text('Stop')")
    tab.wait_for_selector("footer:has-text('cancelled')")
    assert tab.locator("article.user").count() == 1


def test_an_image_goes_along(tab: Any, gateway: Gateway, tmp_path: Path) -> None:
    picture = tmp_path / "dot.png"
    picture.write_bytes(PICTURE)
    tab.set_input_files("input[type=file]", str(picture))
    tab.wait_for_selector(".previews img")
    ask(tab, "What is this?")
    tab.wait_for_selector("footer")
    assert tab.locator("article.user img").count() == 1
    turn = gateway.ask("/admin/turns?limit=1")["turns"][0]
    # The scripted model sees no images, and the gateway says so.
    assert "content.image_omitted" in turn["notes"]
