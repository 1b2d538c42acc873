"""`turnwire chat` as a person meets it: on a real terminal (tmux), and in a pipe."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.conftest import Client, Serve
from turnwire.agent import ToolRequest
from turnwire.cli.chat.asking import Asker
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

_SOCKETS = itertools.count()


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
        """A line, once there is a prompt to type it at."""
        for _ in range(600):
            if (await self.screen()).rstrip().splitlines()[-1:] == [">"]:
                break
            await asyncio.sleep(0.05)
        await self.tmux("send-keys", "-t", "chat", "-l", text)
        await self.tmux("send-keys", "-t", "chat", "Enter")

    async def press(self, *keys: str) -> None:
        await self.tmux("send-keys", "-t", "chat", *keys)

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

    async def hides(self, text: str) -> None:
        """Wait until the screen no longer holds a text."""
        for _ in range(600):
            if text not in await self.screen():
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{text!r} stays on\n{await self.screen()}")

    async def over(self) -> None:
        """Wait until the program has ended and its terminal with it."""
        for _ in range(600):
            if not await self.tmux("list-sessions"):
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"the program still runs:\n{await self.screen()}")


@asynccontextmanager
async def terminal(tmp_path: Path, *command: str) -> AsyncIterator[Terminal]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed; the terminal chat was not tested on a terminal")
    # A socket of its own: a server that is about to end still takes a new session, and ends with it.
    screen = Terminal(str(tmp_path / f"tmux-{next(_SOCKETS)}"))
    state = f"XDG_STATE_HOME={tmp_path / 'state'}"
    line = " ".join(["env", "TERM=screen-256color", "LANG=C.UTF-8", state, *command])
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
        await screen.shows("? run weather", 'city: "Oslo"', "y once")
        await screen.press("a")
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
        await screen.shows("· cancelled")
        await screen.hides("Esc cancels")
        async with asyncio.timeout(30):
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


DELETE_TOOLS = '''
from pathlib import Path

def delete_file(path: str) -> str:
    """Delete a file."""
    Path(path).unlink()
    return "deleted"

def look(path: str) -> str:
    """Look at a file."""
    return "a file"
'''


def delete_turns(path: Path) -> list[dict[str, Any]]:
    """A model that looks at a file, deletes it, and says so."""
    look = "Look.\n</think>\n\n" + call_text("look", path="x\x1b[2J\u202etxt")
    delete = "Off.\n</think>\n\n" + call_text("delete_file", path=path)
    return [{"text": look}, {"text": delete}, {"text": "Well.\n</think>\n\nIs it \x1b]0;gone\x07?\n"}]


async def test_a_tool_runs_only_when_the_user_says_so(serve: Serve, tmp_path: Path) -> None:
    precious, tools = tmp_path / "precious", tmp_path / "tools.py"
    precious.write_text("x")
    tools.write_text(DELETE_TOOLS)
    asked = delete_turns(precious)
    client = await serve(*asked, *asked[:2], *asked[:2], {"text": "Hm.\n</think>\n\nAll tidy.\n"})
    async with terminal(tmp_path, str(TURNWIRE), "chat", "--url", client.base, "--tools", str(tools)) as screen:
        await screen.shows("tools: delete_file, look · asks before each runs")
        await screen.type("Tidy up.")
        # What a terminal would act on is spelled out.
        await screen.shows("? run look", "\\u001b[2J\\u202etxt")
        assert precious.exists()
        await screen.press("a")
        seen = await screen.shows("✓ look(", "? run delete_file", "a always delete_file")
        assert "precious" in "".join(seen.split())  # a long path is wrapped
        assert precious.exists()
        await screen.press("n")
        await screen.shows("– not run:", "Is it ]0;gone?")
        assert precious.exists()
        await screen.type("/tools")
        await screen.shows("delete_file          asks before it runs", "look                 runs without asking")
        # Esc leaves the turn with the question open; the tool does not run.
        await screen.type("Again.")
        await screen.shows("? run delete_file", "s show it whole")
        await screen.press("Escape")
        await screen.shows("· cancelled")
        assert precious.exists()
        await screen.type("And again.")
        await screen.shows("? run delete_file", "s show it whole")
        await screen.press("y")
        await screen.shows("✓ delete_file(", "All tidy.")
        assert not precious.exists()
        await screen.type("/new")
        await screen.shows("A new conversation.")
        await screen.press("C-d")
        await screen.over()


def test_a_key_counts_only_while_a_question_is_open() -> None:
    shown: list[ToolRequest | None] = []
    asked, request = threading.Event(), ToolRequest("c1", "delete_file", '{"path": "x"}')

    def show(now: ToolRequest | None) -> None:
        shown.append(now)
        asked.set()

    asker = Asker(show, lambda request: None)
    asker.keys["y"]()
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(asker, request)
        assert asked.wait(10)
        assert not answer.done()
        asker.keys["n"]()
        asker.keys["y"]()
        assert answer.result(10) == "no"
        asker.close()
        assert pool.submit(asker, request).result(10) == "no"
    assert shown == [request, None]


@pytest.mark.slow
async def test_history_several_lines_and_completion(serve: Serve, tmp_path: Path) -> None:
    client = await serve({"text": "Hm.\n</think>\n\nRead."})
    async with terminal(tmp_path, str(TURNWIRE), "chat", "--url", client.base) as screen:
        await screen.shows("Alt-Enter: new line", "\n>")  # the line where one types is there
        for text, key in (("first line", "M-Enter"), ("second line\\", "Enter"), ("third line", "Enter")):
            await screen.tmux("send-keys", "-t", "chat", "-l", text)
            await screen.press(key)
        await screen.shows("> first line", "· second line", "Read.")
        await screen.press("/", "h", "i")
        await screen.shows("/history", "what was said so far")
        await screen.press("Tab", "Enter")
        await screen.shows("you: first line second line third line")
        await screen.press("C-d")
        await screen.over()
    history = tmp_path / "state" / "turnwire" / "chat_history"
    assert "+first line\n+second line\n+third line\n" in history.read_text()
    assert history.stat().st_mode & 0o777 == 0o600
    async with terminal(tmp_path, str(TURNWIRE), "chat", "--url", client.base) as screen:
        await screen.shows("/help")
        await screen.press("Up")
        await screen.press("Up")
        await screen.shows("> first line", "· second line")


# ------------------------------------------------------------------------------------------------------------- a pipe


@pytest.mark.slow
async def test_without_a_terminal_a_tool_needs_yes(serve: Serve, tmp_path: Path) -> None:
    precious, tools = tmp_path / "precious", tmp_path / "tools.py"
    precious.write_text("x")
    tools.write_text(DELETE_TOOLS)
    client = await serve(*delete_turns(precious), *delete_turns(precious))
    code, out, err = await piped(client, "--tools", str(tools), "Tidy up.")
    assert (code, out) == (0, "Is it \x1b]0;gone\x07?\n")
    assert "not run; --yes runs tools without asking" in err
    assert precious.exists()
    code, _, err = await piped(client, "--yes", "--tools", str(tools), "Tidy up.")
    assert code == 0
    assert not precious.exists()


@pytest.mark.slow
async def test_a_missing_key_says_where_to_give_it(serve: Serve, tmp_path: Path) -> None:
    from turnwire.gateway.door.keys import hash_key

    keys = tmp_path / "keys.toml"
    keys.write_text(f'[[key]]\nname = "a"\nhash = "{hash_key("tw-secret")}"\n')
    client = await serve({"text": "Hm.\n</think>\n\nYes."}, keys=str(keys))
    code, _, err = await piped(client, "Hello")
    assert code == 1
    assert "--key or TURNWIRE_API_KEY" in err
    assert "Unclosed" not in err
    assert (await piped(client, "--key", "tw-secret", "Hello"))[:2] == (0, "Yes.\n")


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
        client, "--tools", str(tmp_path / "tools.py"), "--yes", "--thoughts", "Oslo or Rome?", text="Be quick.\n"
    )
    assert code == 0
    assert out == "I look at both.\n" + TABLE["text"].split("</think>\n\n")[1].rstrip("\n") + "\n"
    assert '[weather(city="Oslo"): ok, 0.3' in err
    assert "I compare the two." in err


@pytest.mark.slow
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


@pytest.mark.slow
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
