"""Single keys while an answer streams: pressed, not typed and entered.

Promise: the terminal is as it was when the watch is over, however it ends. Without a terminal to read from (a pipe,
Windows) there are simply no keys.
"""

from __future__ import annotations

import os
import re
import select
import sys
import threading
from collections.abc import Callable, Mapping
from types import TracebackType

__all__ = ["ESCAPE", "KeyWatch"]

ESCAPE = "\x1b"
_SEQUENCE_SECONDS = 0.03
_KEYS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1bO.|.", re.DOTALL)
_BEGUN = re.compile(r"\x1b(?:\[[0-?]*|O)?\Z")


class KeyWatch:
    """Calls the action of each key, from a thread of its own. An arrow or function key begins with Escape too, but does
    not count as one."""

    def __init__(self, actions: Mapping[str, Callable[[], None]]) -> None:
        self._actions = actions
        self._thread: threading.Thread | None = None
        self._restore: Callable[[], None] = lambda: None
        self._wake = -1

    def __enter__(self) -> KeyWatch:
        if not sys.stdin.isatty():
            return self
        try:
            import termios
            import tty
        except ImportError:
            return self
        keyboard = sys.stdin.fileno()
        before = termios.tcgetattr(keyboard)
        tty.setcbreak(keyboard, termios.TCSANOW)
        self._restore = lambda: termios.tcsetattr(keyboard, termios.TCSANOW, before)
        stopped, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._watch, args=(keyboard, stopped), daemon=True, name="keys")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None:
            os.close(self._wake)
            self._thread.join()
        self._restore()

    def _watch(self, keyboard: int, stopped: int) -> None:
        pressed = ""
        try:
            while True:
                ready, _, _ = select.select([keyboard, stopped], [], [])
                if stopped in ready:
                    return
                read = os.read(keyboard, 64)
                if not read:
                    return
                pressed += read.decode("utf-8", "replace")
                if _BEGUN.search(pressed) and select.select([keyboard], [], [], _SEQUENCE_SECONDS)[0]:
                    continue
                # A busy machine hands over several keys at once.
                for key in _KEYS.findall(pressed):
                    action = self._actions.get(key)
                    if action is not None:
                        action()
                pressed = ""
        finally:
            os.close(stopped)
