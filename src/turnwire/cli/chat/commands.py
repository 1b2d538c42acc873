"""The commands of the terminal chat: lines that begin with a slash.

Promise: each is a small function on the session; an unknown one is answered with the list of those that exist.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from turnwire.agent import ChatSession, EndpointError
from turnwire.cli.chat.screen import call_line

__all__ = ["Commands", "SavedChat"]


class SavedChat(msgspec.Struct):
    """A conversation on disk, as `/save` writes and `--load` reads it."""

    model: str | None
    instructions: str
    messages: list[dict[str, Any]]


class Commands:
    """Runs commands. `thoughts` gives those of the last turn; `done` is true once the user wants to leave."""

    def __init__(self, session: ChatSession, say: Callable[[str], None], thoughts: Callable[[], str]) -> None:
        self._session = session
        self._say = say
        self._thoughts = thoughts
        self.done = False
        self._table: dict[str, tuple[Callable[[str], None], str]] = {
            "/history": (self._history, "what was said so far"),
            "/tokens": (self._tokens, "what the conversation costs"),
            "/model": (self._model, "which model answers; with an id: another one"),
            "/tools": (self._tools, "what the model may call, and whether you are asked first"),
            "/save": (self._save, "write the conversation to a file (.json, or .md to read)"),
            "/thoughts": (self._show_thoughts, "the model's thoughts of the last turn"),
            "/new": (self._new, "forget everything and begin anew"),
            "/help": (self._help, "this list"),
            "/quit": (self._quit, "leave (as Ctrl-D does)"),
        }

    @property
    def meanings(self) -> dict[str, str]:
        """Each command and what it does."""
        return {name: meaning for name, (_, meaning) in self._table.items()}

    def run(self, line: str) -> None:
        """One line that begins with a slash."""
        name, _, rest = line.partition(" ")
        entry = self._table.get(name)
        if entry is None:
            self._say(f"There is no {name}. Commands: {', '.join(self._table)}")
        else:
            entry[0](rest.strip())

    def _history(self, rest: str) -> None:
        if not self._session.history:
            self._say("Nothing was said yet.")
        for message in self._session.history:
            content = " ".join((message.get("content") or "").split())
            if message["role"] == "tool":
                self._say(f"   → {content[:160]}")
                continue
            if content or message["role"] == "user":
                self._say(f"{'you' if message['role'] == 'user' else 'model'}: {content}")
            for call in message.get("tool_calls", ()):
                self._say(f"model calls {call_line(call['function']['name'], call['function']['arguments'])}")

    def _tokens(self, rest: str) -> None:
        tokens, now = self._session.tokens, self._session.context_tokens
        self._say(f"The conversation holds {now} tokens in {self._session.turns} turn(s).")
        self._say(f"All in all: {tokens.prompt} read ({tokens.cached} of them cached), {tokens.output} written.")

    def _model(self, rest: str) -> None:
        try:
            served = self._session.models()
        except EndpointError as error:
            self._say(str(error))
            return
        if not rest:
            for model in served:
                self._say(f"{'*' if model == self._session.model else ' '} {model}")
        elif rest in served:
            self._session.model = rest
            self._say(f"{rest} answers from now on.")
        else:
            self._say(f"{rest} is not served. Served: {', '.join(served)}")

    def _tools(self, rest: str) -> None:
        words = {"asks": "asks before it runs", "always": "runs without asking", "never": "never runs"}
        for name, rule in self._session.tools.items():
            self._say(f"{name:20} {words[rule]}")
        if not self._session.tools:
            self._say("There are no tools; --tools FILE.py brings some.")

    def _save(self, rest: str) -> None:
        if not rest:
            self._say("Say where to: /save FILE")
            return
        session, path = self._session, Path(rest).expanduser()
        saved = SavedChat(session.model, session.instructions, session.history)
        data = markdown(saved).encode() if path.suffix == ".md" else msgspec.json.format(msgspec.json.encode(saved))
        try:
            path.write_bytes(data)
        except OSError as error:
            self._say(f"Cannot write {path}: {error.strerror}")
        else:
            self._say(f"Saved {len(session.history)} messages to {path}.")

    def _show_thoughts(self, rest: str) -> None:
        self._say(self._thoughts() or "The last turn had no thoughts.")

    def _new(self, rest: str) -> None:
        self._session.forget()
        self._say("A new conversation.")

    def _help(self, rest: str) -> None:
        for name, (_, what) in self._table.items():
            self._say(f"{name:10} {what}")

    def _quit(self, rest: str) -> None:
        self.done = True


def markdown(chat: SavedChat) -> str:
    """A conversation for people."""
    parts = [f"# Conversation with {chat.model or 'a model'}"]
    for message in chat.messages:
        if message["role"] == "user":
            parts.append(f"**You:** {message['content']}")
        elif message["role"] == "tool":
            parts.append(f"> {message['content']}")
        else:
            if message.get("content"):
                parts.append(message["content"])
            parts += [
                f"`{call_line(call['function']['name'], call['function']['arguments'])}`"
                for call in message.get("tool_calls", ())
            ]
    return "\n\n".join(parts) + "\n"
