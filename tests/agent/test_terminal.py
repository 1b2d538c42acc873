"""`turnwire chat` as a person meets it: on a real terminal (tmux), and in a pipe."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.conftest import Client, Serve
from turnwire.cli.chat.flow import MarkdownFlow
from turnwire.cli.chat.screen import call_line

from .conftest import call_text

TURNWIRE = Path(sys.executable).parent / "turnwire"
TOOLS = '''
import time

def weather(city: str) -> str:
    """Tell the weather in a city."""
    time.sleep(0.3)
    return {"Oslo": "rain, 4 °C", "Rome": "sun, 21 °C"}[city]
'''
LOOK: dict[str, Any] = {
    "text": "I compare the two.\n</think>\n\nI look at both.\n\n"
    + call_text("weather", city="Oslo")
    + call_text("weather", city="Rome"),
    "delay_ms": 5,
}
TABLE: dict[str, Any] = {
    "text": "Rome wins.\n</think>\n\n| city | weather |\n|---|---|\n| Oslo | rain |\n| Rome | sun |\n\n"
    "- **Rome** is the better place.\n",
    "delay_ms": 5,
}
ENDLESS: dict[str, Any] = {"text": "Counting.\n</think>\n\n" + "and one more " * 2000, "delay_ms": 20}


class Terminal:
    """A program in a terminal of its own: keys in, screen out."""

    def __init__(self, socket: str) -> None:
        self._socket = socket

    async def tmux(self, *words: str) -> str:
        process = await asyncio.create_subprocess_exec(
            "tmux", "-S", self._socket, *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        out, _ = await process.communicate()
        return out.decode()

    async def type(self, text: str) -> None:
        await self.tmux("send-keys", "-t", "chat", "-l", text)
        await self.tmux("send-keys", "-t", "chat", "Enter")

    async def screen(self) -> str:
        return await self.tmux("capture-pane", "-t", "chat", "-p", "-S", "-200")

    async def shows(self, *texts: str) -> str:
        """The screen once it holds all these texts."""
        seen = ""
        for _ in range(600):
            seen = await self.screen()
            if all(text in seen for text in texts):
                return seen
            await asyncio.sleep(0.05)
        raise AssertionError(f"{texts} did not all appear on\n{seen}")

    async def over(self) -> None:
        """Wait until the program has ended and its terminal with it."""
        for _ in range(200):
            if not await self.tmux("list-sessions"):
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"the program still runs:\n{await self.screen()}")


@asynccontextmanager
async def terminal(tmp_path: Path, *command: str) -> AsyncIterator[Terminal]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed; the terminal chat was not tested on a terminal")
    screen = Terminal(str(tmp_path / "tmux"))
    line = " ".join(["env", "TERM=screen-256color", "LANG=C.UTF-8", *command])
    await screen.tmux("-f", "/dev/null", "new-session", "-d", "-x", "90", "-y", "40", "-s", "chat", line)
    try:
        yield screen
    finally:
        await screen.tmux("kill-server")


async def test_a_conversation_on_a_terminal(serve: Serve, tmp_path: Path) -> None:
    client = await serve(LOOK, TABLE, ENDLESS)
    tools, saved = tmp_path / "tools.py", tmp_path / "saved.json"
    tools.write_text(TOOLS)
    async with terminal(tmp_path, str(TURNWIRE), "chat", "--url", client.base, "--tools", str(tools)) as screen:
        await screen.shows("test-model", "/help")
        await screen.type("Oslo or Rome?")
        seen = await screen.shows("Rome is the better place.", "thought for")
        # Markdown is drawn, thoughts are folded, tools have their time and their result.
        assert "| Oslo | rain |" not in seen
        assert "I compare the two." not in seen
        assert '✓ weather(city="Oslo")  0.3' in seen
        assert "sun, 21 °C" in seen
        assert "4 words" in seen
        await screen.type("/thoughts")
        await screen.shows("I compare the two.", "Rome wins.")
        await screen.type("Count.")
        await screen.shows("Esc cancels", "and one more and one more")
        # An arrow key begins like Escape and is none.
        await screen.tmux("send-keys", "-t", "chat", "Up")
        await screen.tmux("send-keys", "-t", "chat", "t")
        await screen.tmux("send-keys", "-t", "chat", "Escape")
        seen = await screen.shows("· cancelled")
        assert "Esc cancels" not in seen
        async with asyncio.timeout(5):
            await client.gateway.heartbeat.quiet.wait()
        await screen.type("/tokens")
        await screen.shows("in 2 turn(s)", "All in all")
        await screen.type("/model")
        await screen.shows("* test-model")
        await screen.type("/history")
        await screen.shows("you: Count.", 'model calls weather(city="Rome")')
        await screen.type(f"/save {saved}")
        await screen.shows("Saved 7 messages")
        await screen.type("/nonsense")
        await screen.shows("There is no /nonsense")
        await screen.tmux("send-keys", "-t", "chat", "C-d")
        await screen.over()
    roles = [message["role"] for message in json.loads(saved.read_text())["messages"]]
    assert roles == ["user", "assistant", "tool", "tool", "assistant", "user", "assistant"]


async def test_ctrl_c_cancels_a_turn_and_not_the_program(serve: Serve, tmp_path: Path) -> None:
    client = await serve(ENDLESS)
    async with terminal(tmp_path, str(TURNWIRE), "chat", "--url", client.base, "--thoughts") as screen:
        await screen.shows("/help")
        await screen.type("Count.")
        await screen.shows("Counting.", "and one more and one more")
        await screen.tmux("send-keys", "-t", "chat", "C-c")
        await screen.shows("· cancelled")
        await screen.type("/quit")
        await screen.over()


# ------------------------------------------------------------------------------------------------------------- a pipe


async def piped(client: Client, *arguments: str, text: str = "") -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        TURNWIRE,
        "chat",
        "--url",
        client.base,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"LANG": "C.UTF-8"},
    )
    out, err = await process.communicate(text.encode())
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_one_question_with_tools_and_a_file_behind_it(serve: Serve, tmp_path: Path) -> None:
    client = await serve(LOOK, TABLE)
    (tmp_path / "tools.py").write_text(TOOLS)
    code, out, err = await piped(
        client, "--tools", str(tmp_path / "tools.py"), "--thoughts", "Oslo or Rome?", text="Be quick.\n"
    )
    assert code == 0
    assert out == "I look at both.\n" + TABLE["text"].split("</think>\n\n")[1].rstrip("\n") + "\n"
    assert '[weather(city="Oslo"): ok, 0.3' in err
    assert "I compare the two." in err


async def test_a_line_is_a_question_and_commands_work(serve: Serve, tmp_path: Path) -> None:
    client = await serve({"text": "Hm.\n</think>\n\nOne."}, {"text": "Hm.\n</think>\n\nTwo."})
    saved = tmp_path / "chat.json"
    read = tmp_path / "chat.md"
    code, out, err = await piped(client, text=f"First?\n\n/save {saved}\nSecond?\n/save {read}\n/tokens\n")
    assert (code, err) == (0, "")
    assert out.startswith(f"One.\nSaved 2 messages to {saved}.\nTwo.\n")
    assert "in 2 turn(s)" in out
    assert read.read_text() == "# Conversation with test-model\n\n**You:** First?\n\nOne.\n\n**You:** Second?\n\nTwo.\n"
    code, out, _ = await piped(client, "--load", str(saved), "Second?")
    assert (code, out) == (0, "Two.\n")


async def test_failures_are_told_and_counted(serve: Serve, tmp_path: Path) -> None:
    client = await serve({"text": "x"})
    code, out, err = await piped(client, "--model", "nobody", "Hello")
    assert (code, out) == (1, "")
    assert "nobody" in err
    for text, words in (
        ("x = 1\n", "no public function"),
        ("1 / 0\n", "ZeroDivisionError"),
        ("def f(*a): ...\n", "'*a'"),
    ):
        (tmp_path / "tools.py").write_text(text)
        code, _, err = await piped(client, "--tools", str(tmp_path / "tools.py"), "Hello")
        assert code == 1
        assert words in err
    (tmp_path / "saved.json").write_text("{}")
    code, _, err = await piped(client, "--load", str(tmp_path / "saved.json"), "Hello")
    assert code == 1
    assert "not a saved conversation" in err


# ------------------------------------------------------------------------------------------------------------- pieces


@given(
    st.lists(st.sampled_from(["a", "\n", "\n\n", "```", "```py\n", "~~~\n", "- x", " ", "# h\n"])), st.integers(1, 5)
)
def test_settled_text_and_rest_are_the_text(pieces: list[str], size: int) -> None:
    text, flow, settled = "".join(pieces), MarkdownFlow(), ""
    for at in range(0, len(text), size):
        settled += flow.feed(text[at : at + size])
        assert settled + flow.rest == text[: at + size]
    whole = MarkdownFlow()
    assert whole.feed(text) == settled
    assert settled + flow.finish() == text


def test_a_code_block_is_not_cut() -> None:
    flow = MarkdownFlow()
    assert flow.feed("Text.\n\n```\na\n\nb\n") == "Text.\n\n"
    assert flow.feed("```\n\n") == "```\na\n\nb\n```\n\n"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ('{"city": "Oslo", "days": 2}', 'look(city="Oslo", days=2)'),
        ("", "look()"),
        ('{"city": ', 'look({"city":)'),
        ("[1]", "look([1])"),
        (json.dumps({"text": "word " * 50}), 'look(text="word word word word word word word word word word wor…)'),
    ],
)
def test_a_call_in_one_line(arguments: str, line: str) -> None:
    assert call_line("look", arguments) == line
