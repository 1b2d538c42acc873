"""A sign of life on standard error while a command waits for something.

Promise: a line every three seconds until `stop`, on a terminal and in a pipe alike. A download has a bar on a terminal,
and its bytes in those lines elsewhere; each is shown once.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

import click

__all__ = ["DownloadProgress", "Loading"]


class Loading:
    """A line every few seconds, until there is something better to show."""

    _EVERY_S = 3.0

    def __init__(self, what: str | Callable[[], str] = "loading") -> None:
        self._what = what
        self.say: Callable[[str], object] = _on_standard_error
        """Gets each line; a log whose lines are read by machines puts its own method here."""
        self.answers = False
        """Whether `ready` was called: from now on nobody waits for the start."""
        self._begin()

    def _begin(self) -> None:
        self._over, self._since = threading.Event(), time.monotonic()
        threading.Thread(target=self._beat, args=(self._over,), daemon=True, name="loading").start()

    def _beat(self, over: threading.Event) -> None:
        while not over.wait(self._EVERY_S):
            what = self._what if isinstance(self._what, str) else self._what()
            self.say(f"... {what} ({time.monotonic() - self._since:.0f} s)")

    def now(self, what: str) -> None:
        """Something else is waited for: say it at once, and again every few seconds."""
        self.stop()
        self._what = what
        self.say(what)
        self._begin()

    def reword(self, what: str) -> None:
        """The same wait, further on: the next line says it so."""
        self._what = what

    def stop(self) -> None:
        """Say no more."""
        self._over.set()

    def ready(self, line: str) -> None:
        """The gateway answers."""
        self.stop()
        self.answers = True
        print(line, flush=True)

    def __enter__(self) -> Loading:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _on_standard_error(line: str) -> None:
    click.echo(f"  {line}", err=True)


class DownloadProgress:
    """Shows how far a download is: called with its label, the bytes that are here, and all of them. `after` is what is
    waited for next."""

    def __init__(self, loading: Loading, after: str) -> None:
        self._loading = loading
        self._after = after
        self._label: str | None = None
        self._fetched: set[str] = set()
        self._bars: Any = None
        self._task: Any = None

    def __call__(self, label: str, done: int, total: int) -> None:
        if label in self._fetched:
            return
        if label != self._label:
            self._begin(label, done, total)
        if done < total:
            self._show(label, done, total)
        else:
            self._fetched.add(label)
            self.stop()
            if self._loading.answers:
                self._loading.stop()
            else:
                self._loading.now(self._after)

    def _begin(self, label: str, done: int, total: int) -> None:
        self.stop()
        self._label = label
        if not sys.stderr.isatty():
            self._loading.now(f"fetching {label}, {total / 1e6:,.0f} MB")
            return
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        self._loading.stop()
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self._bars = Progress(*columns, console=Console(stderr=True), transient=True)
        self._bars.start()
        # What is here already came at no speed.
        self._task = self._bars.add_task(label, completed=done, total=total)

    def _show(self, label: str, done: int, total: int) -> None:
        if self._bars is not None:
            self._bars.update(self._task, completed=done)
        else:
            self._loading.reword(f"fetching {label}: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB")

    def stop(self) -> None:
        """Leave the terminal as it was."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None
