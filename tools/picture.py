"""Makes docs/images/explain.svg: what `turnwire explain` says of a session whose prefix broke, as it really says it.

Promise: the gateway, the requests and the command are real; only the model is a script. Nothing is drawn by hand.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "images" / "explain.svg"
SESSION = "3f2a9c1e"
CALL = "<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>"
SAID = [
    "I should look at the failing test first.\n</think>\n\nI'll read the test.\n\n"
    + CALL.format(name="read_file", parameters="<parameter=path>\ntests/test_dates.py\n</parameter>\n"),
    "The test expects UTC, the code uses local time.\n</think>\n\n"
    + CALL.format(name="edit_file", parameters="<parameter=path>\nsrc/dates.py\n</parameter>\n"),
    "That is all.\n</think>\n\nFixed: the code used local time where the test expects UTC.",
]
DAYS = ["2026-11-14", "2026-11-14", "2026-11-15"]
TOOLS = [
    {"name": name, "description": "Work with files. " * 40, "input_schema": {"type": "object", "properties": {}}}
    for name in ("read_file", "edit_file")
]


def ask(url: str, day: str, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One turn of the agent."""
    body = {
        "model": "coder",
        "max_tokens": 500,
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "system": f"You are a coding agent. Today is {day}. " + "Follow the rules of the house. " * 200,
        "tools": TOOLS,
        "messages": messages,
    }
    headers = {
        "content-type": "application/json",
        "x-claude-code-session-id": SESSION,
        "user-agent": "claude-cli/2.1.325",
    }
    request = urllib.request.Request(f"{url}/v1/messages", json.dumps(body).encode(), headers)  # noqa: S310
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        content: list[dict[str, Any]] = json.load(answer)["content"]
        return content


def converse(url: str) -> None:
    """The whole session; in its last turn the date in the system text is another one."""
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "test_dates fails. Mend it. " + "Some context of the project. " * 300}
    ]
    for day in DAYS:
        content = ask(url, day, messages)
        messages.append({"role": "assistant", "content": content})
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": "done"}
            for block in content
            if block["type"] == "tool_use"
        ]
        time.sleep(0.3)
        messages.append({"role": "user", "content": results or "Thanks."})


def draw(said: str) -> None:
    """The output as a picture of a terminal, without fonts from elsewhere."""
    console = Console(record=True, width=112, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    console.print(Text(f"$ turnwire explain --session {SESSION}", "bold"))
    console.print(Text(said.rstrip()))
    picture = console.export_svg(title="why was that turn slow?")
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)
    PICTURE.write_text(picture.replace("Fira Code", "ui-monospace"), encoding="utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "model.jsonl"
        lines = [{"text": text, "delay_ms": 12, "prefill_tokens_per_s": 9000} for text in SAID]
        script.write_text("".join(json.dumps(line) + "\n" for line in lines))
        command = [sys.executable, "-m", "turnwire", "serve", "--port", "0", "--model", "coder"]
        engine = ["--engine", f"scripted:{script}", "--history-thinking", "keep", "--seal-key", "a key for one picture"]
        server = subprocess.Popen([*command, *engine], stdout=subprocess.PIPE, text=True, cwd=folder)  # noqa: S603
        try:
            assert server.stdout is not None
            found = re.search(r"http://[\d.]+:\d+", server.stdout.readline())
            assert found is not None
            converse(found[0])
            explain = [sys.executable, "-m", "turnwire", "explain", "--url", found[0], "--session", SESSION]
            said = subprocess.run(explain, capture_output=True, text=True, check=True).stdout  # noqa: S603
        finally:
            server.terminate()
            server.wait(20)
        draw(said.replace(str(script), "model"))
