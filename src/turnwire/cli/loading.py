"""A sign of life on a terminal while a command loads what it needs.

Promise: a line every three seconds until `stop`; none where standard error is no terminal.
"""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType

import click

__all__ = ["Loading"]


class Loading:
    """A sign of life on a terminal every few seconds, until there is something better to show."""

    _EVERY_S = 3.0

    def __init__(self, what: str = "loading") -> None:
        self._what = what
        self._over = threading.Event()
        self._since = time.monotonic()
        self._begin()

    def _begin(self) -> None:
        if sys.stderr.isatty():
            threading.Thread(target=self._tell, args=(self._over,), daemon=True, name="loading").start()

    def _tell(self, over: threading.Event) -> None:
        while not over.wait(self._EVERY_S):
            click.echo(f"  ... {self._what} ({time.monotonic() - self._since:.0f} s)", err=True)

    def resume(self, what: str) -> None:
        """Something else is waited for: say it at once, and again every few seconds."""
        self._what, self._over, self._since = what, threading.Event(), time.monotonic()
        if sys.stderr.isatty():
            click.echo(f"  {what}", err=True)
        self._begin()

    def stop(self) -> None:
        """Say no more."""
        self._over.set()

    def ready(self, line: str) -> None:
        """The gateway answers."""
        self.stop()
        print(line, flush=True)

    def __enter__(self) -> Loading:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
