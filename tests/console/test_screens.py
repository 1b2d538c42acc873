"""Every screen of the console in a real browser, on real turns."""

from __future__ import annotations

import contextlib
import http.server
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from turnwire.gateway.stores.journal import SQLiteJournal
from turnwire.gateway.telemetry.journal import TurnSummary
from turnwire.gateway.telemetry.kept_turns import KeptTurns

from .conftest import ATTACK, Gateway, started, wait_for

pytestmark = pytest.mark.browser


def test_sessions_and_a_timeline(page: Any) -> None:
    page.click("nav a[href='#sessions']")
    page.click("tr.link:has-text('dated')")
    page.wait_for_selector(".turn[role=button]")
    assert page.locator(".turn[role=button]").count() == 3
    assert "a date or time in the text changed" in page.inner_text("main")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:has-text('Turn')")


def test_a_prefix_broken_by_a_date_is_explained(page: Any, gateway: Gateway) -> None:
    turns = gateway.ask("/admin/turns?session=dated")["turns"]
    (broken,) = [turn for turn in turns if turn["lost"]]
    page.goto(f"{gateway.base}/console#turns/{broken['turn_id']}")
    page.wait_for_selector(".verdict.broken")
    told = page.inner_text("main")
    assert f"{broken['lost']:,} were read again" in told
    assert "put dates at the end of the conversation" in told
    assert page.locator(".sections").count() == 2
    assert page.inner_text(".cut b") == f"token {broken['shared']}"
    # The first token that differs, on both sides.
    before = page.inner_text(".diff .was .tok.first")
    now = page.inner_text(".diff .is .tok.first")
    assert ("14" in before, "15" in now) == (True, True)
    assert "The parser lost its" in page.inner_text(".beside")
    assert page.locator(".beside .block").count() == 2
    assert "Today is 2026-11-15." in page.inner_text(".section .toks >> nth=0")
    page.click("summary:has-text('Sent to the client')")
    assert '"type":"message"' in page.inner_text(".wire")


def test_a_held_prefix_is_told_as_held(page: Any, gateway: Gateway) -> None:
    held = next(
        turn for turn in gateway.ask("/admin/turns?session=dated")["turns"] if turn["prefix"].startswith("held")
    )
    page.goto(f"{gateway.base}/console#turns/{held['turn_id']}")
    page.wait_for_selector(".verdict.held")
    assert page.locator(".cut").count() == 0


def test_a_live_turn_is_shown_and_cancelled(page: Any, gateway: Gateway) -> None:
    def run() -> None:
        body = {"model": "test-model", "messages": [{"role": "user", "content": "Talk forever."}]}
        with contextlib.suppress(OSError):
            gateway.ask("/v1/chat/completions", body)

    thread = threading.Thread(target=run)
    thread.start()
    page.goto(gateway.base + "/console#live")
    page.wait_for_selector("td:has-text('text')")
    page.click("button:has-text('Cancel')")
    thread.join(15)
    assert not thread.is_alive()
    wait_for(lambda: gateway.ask("/admin/turns?limit=1")["turns"][0]["finish"] == "cancelled")
    page.wait_for_selector("text=No turn is running.")


@pytest.mark.parametrize(
    ("view", "said"),
    [
        ("workers", "healthy"),
        ("usage", "claude-cli/2.1.325"),
        ("connect", "turnwire launch claude"),
        ("settings", "Share of the sessions that is captured."),
    ],
)
def test_the_other_screens(page: Any, view: str, said: str) -> None:
    page.click(f"nav a[href='#{view}']")
    page.wait_for_selector(f"main:has-text('{said}')")


def test_keys_switch_between_screens(page: Any) -> None:
    for key, title in (("2", "Sessions"), ("4", "Workers"), ("6", "Connect"), ("7", "Settings")):
        page.keyboard.press(key)
        page.wait_for_selector(f"h1:has-text('{title}')")


@pytest.mark.parametrize("width", [400, 1600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_the_window(browser: Any, gateway: Gateway, width: int, scheme: str) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    broken = next(turn for turn in gateway.ask("/admin/turns")["turns"] if turn["lost"])
    views = (
        "live",
        "sessions/dated",
        f"turns/{broken['turn_id']}",
        "connect",
        "playground",
        "usage",
        "workers",
        "settings",
    )
    for view in views:
        page.goto(f"{gateway.base}/console#{view}")
        page.wait_for_selector("main > *")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == (
        "rgb(16, 20, 27)" if scheme == "dark" else "rgb(246, 247, 249)"
    )
    context.close()


def test_a_trace_page_needs_nobody(browser: Any, gateway: Gateway, tmp_path: Path) -> None:
    folder = gateway.ask("/admin/settings")["capture"]
    # Captures are written by a thread of their own.
    wait_for(lambda: gateway.written() >= len(gateway.ask("/admin/turns?limit=1000")["turns"]))
    target = tmp_path / "trace.html"
    command = [sys.executable, "-m", "turnwire", "trace", folder, "--session", "dated", "-o", str(target)]
    subprocess.run(command, check=True, timeout=60)
    context = browser.new_context()
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(target.as_uri())
    page.click("tr.link:has-text('dated')")
    page.click(".turn[role=button] >> nth=2")
    page.wait_for_selector(".verdict.broken")
    assert "15" in page.inner_text(".diff .is .tok.first")
    assert asked == [target.as_uri()]
    context.close()


def test_nothing_that_a_client_or_a_model_wrote_runs(page: Any, gateway: Gateway, tmp_path: Path) -> None:
    gateway.turn(ATTACK, ATTACK, history=[{"role": "user", "content": f"attack {ATTACK}"}])
    (turn,) = gateway.ask(f"/admin/turns?session={quote(ATTACK)}")["turns"]
    for view in ("live", "sessions", f"sessions/{quote(ATTACK)}", f"turns/{turn['turn_id']}", "usage", "workers"):
        page.goto(f"{gateway.base}/console#{view}")
        page.wait_for_selector("main > *")
    page.wait_for_timeout(300)
    assert page.evaluate("[window.hacked, document.querySelectorAll('main img').length]") == [None, 0]
    page.goto(f"{gateway.base}/console#playground")
    page.wait_for_selector("text=ready")
    page.fill("textarea[aria-label=Message]", "attack")
    page.keyboard.press("Enter")
    page.wait_for_selector("article.assistant")
    page.wait_for_selector("article > .markdown:has-text('onerror')")
    assert page.evaluate("[window.hacked, document.querySelectorAll('article img, article a').length]") == [None, 0]
    folder = gateway.ask("/admin/settings")["capture"]
    wait_for(lambda: gateway.written() >= len(gateway.ask("/admin/turns?limit=1000")["turns"]))
    target = tmp_path / "trace.html"
    command = [sys.executable, "-m", "turnwire", "trace", folder, "--session", ATTACK, "-o", str(target)]
    subprocess.run(command, check=True, timeout=60)
    page.goto(target.as_uri())
    page.click("tr.link >> nth=0")
    page.click(".turn[role=button] >> nth=0")
    page.wait_for_selector(".beside .block")
    assert page.evaluate("[window.hacked, document.querySelectorAll('main img').length]") == [None, 0]


def test_charts_are_drawn_by_the_library_that_the_gateway_brings(page: Any) -> None:
    for view, title in (("live", "Time to the first token"), ("usage", "Tokens over time")):
        page.click(f"nav a[href='#{view}']")
        page.wait_for_selector(f".chart:has-text('{title}') canvas")


def test_a_thousand_sessions_that_a_gateway_kept_before_it_was_restarted(
    browser: Any, gateway: Gateway, tmp_path: Path
) -> None:
    (real,) = gateway.ask("/admin/turns?limit=1&session=dated")["turns"]
    kept = KeptTurns(SQLiteJournal(str(tmp_path / "store.db.journal"), max_bytes=32 << 20, age=3600))
    for number in range(1200):
        over = {"turn_id": f"turn-{number}", "session": f"many-{number:04d}", "at": real["at"] - 1200 + number}
        kept.add(msgspec.convert(real | over, TurnSummary))
    kept.close()
    context = browser.new_context(viewport={"width": 1280, "height": 860})
    with started(tmp_path, "--store", f"sqlite:{tmp_path / 'store.db'}") as crowded:
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.goto(crowded.base + "/console#sessions")
        page.wait_for_selector("tr.link:has-text('many-1199')")
        page.click("button:has-text('Older turns')")
        page.wait_for_selector("button:has-text('Older turns')", state="detached")
        shown = page.locator("tr.link").count()
        while page.locator("td:has-text(' more')").count():
            page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
            wait_for(lambda before=shown: page.locator("tr.link").count() > before)  # type: ignore[misc]
            shown = page.locator("tr.link").count()
        assert shown == 1200
        took = page.evaluate(
            """async () => {
                const began = performance.now();
                location.hash = "live"; await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
                location.hash = "sessions"; await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
                return performance.now() - began;
            }"""
        )
        print(f"two screens of 1,200 sessions drawn in {took:.0f} ms")
        name = page.inner_text("tr.link >> nth=20 >> .mono")
        page.click("tr.link >> nth=20")
        page.wait_for_selector(f"h1:has-text('{name}')")
        page.click(".turn[role=button]")
        page.wait_for_selector(f"h1:has-text('Turn turn-{int(name.removeprefix('many-'))}')")
    context.close()


class _UnderAPath(http.server.BaseHTTPRequestHandler):
    """A proxy that serves a gateway under /llm and nothing else."""

    gateway = ""

    def do_GET(self) -> None:
        if not self.path.startswith("/llm/"):
            self.send_error(404)
            return
        asked = urllib.request.Request(self.gateway + self.path.removeprefix("/llm"))
        asked.add_header("accept", self.headers.get("accept", "*/*"))
        with urllib.request.urlopen(asked) as answer, contextlib.suppress(ConnectionError):
            self.send_response(answer.status)
            self.send_header("content-type", answer.headers["content-type"])
            self.end_headers()
            while block := answer.read1(65_536):
                self.wfile.write(block)
                self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_a_proxy_may_serve_it_under_a_path(page: Any, gateway: Gateway) -> None:
    _UnderAPath.gateway = gateway.base
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _UnderAPath) as proxy:
        proxy.daemon_threads = True
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{proxy.server_port}/llm"
        page.goto(f"{base}/#sessions")
        page.click("tr.link:has-text('dated')")
        page.wait_for_selector(".turn[role=button]")
        page.click("nav a[href='#connect']")
        page.wait_for_selector(f"text={base}")
        page.goto("about:blank")
        proxy.shutdown()
