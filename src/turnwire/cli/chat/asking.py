"""The question before a tool runs, answered with one key.

Promise: a key counts only while a question is open; leaving the turn answers an open question with no.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping

import msgspec

from turnwire.agent import Approval, ToolRequest
from turnwire.cli.chat.plain import spelled

__all__ = ["Asker", "argument_lines", "choices"]

_ANSWERS: Mapping[str, Approval] = {"y": "once", "a": "always", "n": "no", "v": "never"}
_SHOW = "s"
_LINE_CHARS = 400
_LINES = 12


class Asker:
    """Asks by `show` (None: the question is answered) and waits for a key. `whole` shows a call with all it holds."""

    def __init__(self, show: Callable[[ToolRequest | None], None], whole: Callable[[ToolRequest], None]) -> None:
        self._show = show
        self._whole = whole
        self._open: ToolRequest | None = None
        self._over = False
        self._answers: queue.SimpleQueue[Approval] = queue.SimpleQueue()
        self._changing = threading.Lock()

    def __call__(self, request: ToolRequest) -> Approval:
        """Ask; from a thread that may wait."""
        with self._changing:
            if self._over:
                return "no"
            self._open = request
        self._show(request)
        answer = self._answers.get()
        self._show(None)
        return answer

    @property
    def keys(self) -> dict[str, Callable[[], None]]:
        """What each key does."""

        def press(answer: Approval) -> Callable[[], None]:
            return lambda: self._answer(answer)

        return {_SHOW: self._show_whole} | {key: press(answer) for key, answer in _ANSWERS.items()}

    def close(self) -> None:
        """The turn is over."""
        with self._changing:
            self._over = True
        self._answer("no")

    def _answer(self, answer: Approval) -> None:
        with self._changing:
            asked, self._open = self._open, None
        if asked is not None:
            self._answers.put(answer)

    def _show_whole(self) -> None:
        if self._open is not None:
            self._whole(self._open)


def choices(name: str) -> str:
    """The keys, in words."""
    tool = spelled(name)
    return f"y once · a always {tool} · n no · v never {tool} · s show it whole"


def argument_lines(request: ToolRequest, *, whole: bool) -> list[str]:
    """The arguments, a line each, with everything visible that a terminal would act on; cut unless `whole`."""
    try:
        values = msgspec.json.decode(request.arguments or "{}")
    except msgspec.DecodeError:
        values = None
    if not isinstance(values, dict):
        lines = [spelled(request.arguments)]
    else:
        lines = [spelled(f"{name}: {msgspec.json.encode(value).decode()}") for name, value in values.items()]
    if whole:
        return lines
    cut = [
        line if len(line) <= _LINE_CHARS else f"{line[:_LINE_CHARS]}… {len(line) - _LINE_CHARS:,} more characters"
        for line in lines[:_LINES]
    ]
    return cut + ([f"… {len(lines) - _LINES:,} more arguments"] if len(lines) > _LINES else [])
