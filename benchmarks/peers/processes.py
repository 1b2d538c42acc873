"""Starts programs with their output in a log, waits until they answer, and ends them with their children.

Promise: what was started is ended, also when a start fails.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

START_SECONDS = 90


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def free_ports(count: int) -> int:
    """The first of `count` neighbouring ports that nobody listens on, below those that the system gives out."""
    while True:
        first = random.randrange(20_000, 30_000)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first


class Processes:
    """The programs of one gateway: itself and its engine."""

    def __init__(self, logs: Path) -> None:
        self.folder = logs
        self._started: list[tuple[subprocess.Popen[bytes], Path]] = []
        self._orderly: set[int] = set()
        self._after: list[Callable[[], object]] = []

    def after(self, work: Callable[[], object]) -> None:
        """Do this when all have ended."""
        self._after.append(work)

    def start(
        self,
        name: str,
        command: Sequence[str | Path],
        environment: Mapping[str, str] | None = None,
        *,
        orderly: bool = False,
    ) -> int:
        """Start a program in a process group of its own; its id. One that is `orderly` ends its children itself."""
        log = self.folder / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [str(part) for part in command],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )
        self._started.append((process, log))
        if orderly:
            self._orderly.add(process.pid)
        return process.pid

    def wait(self, ready: Callable[[], bool], seconds: float = START_SECONDS) -> None:
        """Wait until `ready`; a program that ended meanwhile is an error with the end of its log."""
        deadline = time.monotonic() + seconds
        while not ready():
            for process, log in self._started:
                if process.poll() is not None:
                    raise RuntimeError(f"{log.stem} ended with {process.returncode}: {log.read_text()[-2000:]}")
            if time.monotonic() > deadline:
                tails = "\n".join(f"{log.stem}: {log.read_text()[-1000:]}" for _, log in self._started)
                raise RuntimeError(f"not ready after {seconds:g} s\n{tails}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End all of them, the gateway first."""
        for process, _ in self._started:
            if process.poll() is None:
                (os.kill if process.pid in self._orderly else os.killpg)(process.pid, signal.SIGTERM)
        for process, _ in self._started:
            try:
                process.wait(60 if process.pid in self._orderly else 10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._started.clear()
        for work in self._after:
            work()
        self._after.clear()


def listens(port: int) -> Callable[[], bool]:
    """Whether a port takes connections."""

    def ready() -> bool:
        with socket.socket() as probe:
            probe.settimeout(0.5)
            return probe.connect_ex(("127.0.0.1", port)) == 0

    return ready


def serves(port: int, model: str) -> Callable[[], bool]:
    """Whether a gateway lists the model."""

    def ready() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=2) as answer:
                return model.encode() in answer.read()
        except (urllib.error.URLError, OSError):
            return False

    return ready
