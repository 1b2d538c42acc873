"""The line where a person types: history, several lines, completion.

Promise: Enter sends; Alt-Enter, or a backslash before Enter, begins a new line, and what is pasted stays as it is.
History is kept between runs in a file that only its owner can read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.styles import Style

__all__ = ["Prompt"]

_STYLE = Style.from_dict({"more": "ansibrightblack", "hint": "ansibrightblack"})


class Prompt:
    """Asks for one message at a time. `commands` are the slash commands with their meaning, `models` gives the ids that
    can follow `/model`."""

    def __init__(self, commands: Mapping[str, str], models: Callable[[], list[str]]) -> None:
        self._session: PromptSession[str] = PromptSession(
            history=_history(),
            completer=_Commands(commands, models),
            complete_while_typing=True,
            key_bindings=_keys(),
            multiline=True,
            prompt_continuation=_continuation,
            style=_STYLE,
        )

    def ask(self) -> str:
        """What was typed. Raises EOFError on Ctrl-D and KeyboardInterrupt on Ctrl-C."""
        return self._session.prompt("\n> ")


class _Commands(Completer):
    """Completes commands, and what follows those that take a model or a file."""

    def __init__(self, commands: Mapping[str, str], models: Callable[[], list[str]]) -> None:
        self._commands = commands
        self._models = models
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
        if not text.startswith("/") or "\n" in text:
            return
        name, gap, rest = text.partition(" ")
        if not gap:
            for command, meaning in self._commands.items():
                if command.startswith(name):
                    yield Completion(command, -len(name), display_meta=meaning)
        elif name == "/save":
            yield from self._paths.get_completions(Document(rest), complete_event)
        elif name == "/model" and complete_event.completion_requested:
            for model in self._models():
                if model.startswith(rest):
                    yield Completion(model, -len(rest))


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.char_before_cursor == "\\":
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


def _continuation(width: int, line: int, wrapped: int) -> StyleAndTextTuples:
    return [("class:more", "· ".rjust(width))]


def _history() -> History:
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "turnwire"
    path = folder / "chat_history"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
        path.chmod(0o600)
    except OSError:
        # A home that cannot be written to: the history lasts as long as the program.
        return InMemoryHistory()
    return FileHistory(str(path))
