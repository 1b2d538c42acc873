"""Pictures of the console for the docs: a gateway on a scripted model, sessions that look like work, a real browser.

    python tools/screenshots.py FOLDER [--all]

Promise: what is on the pictures was measured by the gateway that made them. Without `--all` only the pictures that the
docs show are written; with it every screen, narrow and wide, light and dark.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from browser import chromium
from playwright.sync_api import sync_playwright

RULES = (
    "You work in a repository of a streaming parser. ",
    "Read a file before you edit it. ",
    "Keep every change as small as the task allows. ",
    "Run the tests that belong to what you touched, and say what they said. ",
    "A parser never looks back: each byte is read once. ",
    "If a command fails, read its message before you try another. ",
)
SYSTEM = "Today is 2026-11-{day}. " + "".join(RULES) * 90
CALL = "<tool_call>\n<function={name}>\n<parameter={key}>\n{value}\n</parameter>\n</function>\n</tool_call>"
LOOK = "The test fails where a call is cut in two. I look at the buffer first, then at who empties it.\n</think>\n\n"
MARKDOWN = """They want to know which formats stream.
</think>

### What streams

Three of the four formats send arguments **while they are written**:

| format | arguments | first byte |
|---|---|---|
| XML | yes | at the opening tag |
| JSON | yes | at the first key |
| pythonic | yes | at the bracket |
| sections | no | at the end |

- Sections wait for their *closing mark*.
- Everything else is linear: `feed()` never looks back.

```python
for event in parser.feed(text):
    send(event)
```
"""
LINES = (
    {"match": "what 23 * 19 is", "text": "The second question of a conversation asks for it."},
    {
        "match": "what 23 * 19 is",
        "text": "I calculate.\n</think>\n\n" + CALL.format(name="calculate", key="expression", value="23 * 19"),
    },
    {"match": "what 23 * 19 is", "text": "Good.\n</think>\n\n23 × 19 is **437**."},
    {"match": "Which formats stream", "text": MARKDOWN, "delay_ms": 3},
    {
        "match": "Search the repository",
        "text": "Where is it used?\n</think>\n\nOnly `feed` and `close` touch it.",
        "delay_ms": 14,
    },
    {
        "match": "Write the release notes",
        "text": "I list what changed.\n</think>\n\n" + "A long paragraph of notes. " * 600,
        "delay_ms": 30,
    },
    {
        "match": "Explain the whole",
        "text": "Let me think it through, from the wire to the prompt. " * 200,
        "delay_ms": 25,
    },
    {
        "match": "Why does the test fail",
        "text": LOOK + "Let me look.\n" + CALL.format(name="Bash", key="command", value="pytest -x"),
        "delay_ms": 9,
    },
    {
        "match": "Why does the test fail",
        "text": "It is the flush.\n</think>\n\nThe parser loses its last piece.\n"
        + CALL.format(name="Edit", key="path", value="src/parser.py"),
        "delay_ms": 9,
    },
    {
        "match": "Why does the test fail",
        "text": "It holds now.\n</think>\n\nThe parser lost its `flush`; one line brings it back.",
        "delay_ms": 9,
    },
    {"text": "I look.\n</think>\n\nDone: one file changed, tests pass.", "delay_ms": 4},
)
RATE = 9000.0


class Shown:
    """A gateway and what talks to it."""

    def __init__(self, base: str) -> None:
        self.base = base

    def ask(self, path: str, body: dict[str, Any] | None = None, **headers: str) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310 - this tool's own gateway
            self.base + path, data=data, headers={"content-type": "application/json"} | headers
        )
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            return json.load(answer)

    def messages(self, session: str, history: list[dict[str, Any]], day: int = 16, **headers: str) -> None:
        body = {"model": "qwen3-coder", "max_tokens": 800, "system": SYSTEM.format(day=day), "messages": history}
        named = {"x-claude-code-session-id": session, "user-agent": "claude-cli/2.1.325"}
        answer = self.ask("/v1/messages", body, **(named | headers))
        history.append({"role": "assistant", "content": answer["content"]})
        calls = [block["id"] for block in answer["content"] if block["type"] == "tool_use"]
        if calls:
            done = [{"type": "tool_result", "tool_use_id": call, "content": "1 failed, 41 passed"} for call in calls]
            history.append({"role": "user", "content": done})

    def work(self) -> None:
        """Sessions of three clients, one of them with a date that changed."""
        for number in range(7):
            history: list[dict[str, Any]] = [{"role": "user", "content": f"Look at module {number}."}]
            self.messages(f"{number}c41e7a2-9d{number}f-4b1c", history)
        for number in range(4):
            body = {"model": "qwen3-coder", "instructions": "You work in a terminal. " * 60, "input": f"Task {number}"}
            self.ask(
                "/v1/responses",
                body,
                **{"session-id": f"01a1e{number}04-98af-7f31", "user-agent": "codex_exec/0.166.0"},
            )
        history = [{"role": "user", "content": "Why does the test fail?"}]
        self.messages("fix-the-parser", history)
        side: list[dict[str, Any]] = [{"role": "user", "content": "Search the repository for the buffer."}]
        self.messages("fix-the-parser", side, **{"x-claude-code-agent-id": "explore-7f31"})
        time.sleep(1.3)
        self.messages("fix-the-parser", history)
        time.sleep(0.4)
        self.messages("fix-the-parser", history, day=17)
        history.append({"role": "user", "content": "Thanks. Run it once more."})
        self.messages("fix-the-parser", history, day=17)


@contextlib.contextmanager
def gateway() -> Iterator[Shown]:
    """A gateway with all of that done."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.jsonl"
        script.write_text("".join(json.dumps({"prefill_tokens_per_s": RATE} | line) + "\n" for line in LINES))
        flags = ["--engine", f"scripted:{script}", "--model", "qwen3-coder", "--dialect", "qwen3_coder", "--port", "0"]
        flags += ["--log-level", "error", "--capture", f"{folder}/captures"]
        process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "turnwire", "serve", *flags],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"XDG_STATE_HOME": folder},
        )
        try:
            line = ""
            assert process.stdout is not None
            while "on http://" not in line:
                line = process.stdout.readline()
                assert line, "the gateway did not start"
            shown = Shown("http://" + line.split("on http://")[1].split()[0])
            shown.work()
            yield shown
        finally:
            process.terminate()
            process.wait(20)


def live(shown: Shown) -> None:
    """Two turns that go on for a while."""
    for session, text, client in (
        ("release-notes", "Write the release notes.", "claude-cli/2.1.325"),
        ("01a1e904-98af-7f31", "Explain the whole.", "codex_exec/0.166.0"),
    ):

        def run(session: str = session, text: str = text, client: str = client) -> None:
            with contextlib.suppress(OSError):
                shown.messages(session, [{"role": "user", "content": text}], **{"user-agent": client})

        threading.Thread(target=run, daemon=True).start()
    time.sleep(3.5)


def talk(page: Any) -> None:
    """A conversation in the playground."""
    page.wait_for_selector("text=ready")
    for number, question in enumerate(("Which formats stream?", "Please say what 23 * 19 is"), 1):
        page.fill("textarea[aria-label=Message]", question)
        page.keyboard.press("Enter")
        if "19" in question:
            page.click(".choices button:has-text('Always run')")
        page.wait_for_selector(f"article:nth-of-type({2 * number}) footer")


SHOWN = {
    "console-live-light": ("live", 1280, "light"),
    "console-live-dark": ("live", 1280, "dark"),
    "console-session-light": ("session", 1280, "light"),
    "console-session-dark": ("session", 1280, "dark"),
    "console-turn-light": ("turn", 1280, "light"),
    "console-turn-dark": ("turn", 1280, "dark"),
    "console-playground-light": ("playground", 1280, "light"),
    "console-playground-dark": ("playground", 1280, "dark"),
}
SCREENS = ("live", "session", "turn", "playground", "sessions", "workers", "usage", "connect", "settings")


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    wanted = dict(SHOWN)
    if "--all" in sys.argv:
        wanted = {
            f"{name}-{width}-{scheme}": (name, width, scheme)
            for name in SCREENS
            for width in (400, 1600)
            for scheme in ("light", "dark")
        }
    found = chromium()
    if found is None:
        sys.exit("No Chromium is installed: python tools/browser.py install")
    print("starting", flush=True)
    with gateway() as shown, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        broken = next(turn for turn in shown.ask("/admin/turns")["turns"] if turn["lost"])
        hashes = {"session": "sessions/fix-the-parser", "turn": f"turns/{broken['turn_id']}"}
        live(shown)
        for name, (view, width, scheme) in wanted.items():
            context = browser.new_context(
                viewport={"width": width, "height": 1180 if view == "turn" and width > 500 else 860},
                color_scheme=scheme,
                device_scale_factor=1.5 if width < 1600 else 1,
            )
            page = context.new_page()
            page.goto(f"{shown.base}/console#{hashes.get(view, view)}")
            page.wait_for_selector("main > *")
            if view == "playground":
                talk(page)
            page.wait_for_timeout(1200)
            page.screenshot(path=folder / f"{name}.png", full_page=view == "session" and width > 500)
            context.close()
            print(name, flush=True)
        browser.close()


if __name__ == "__main__":
    main()
