"""What scripted engines share: the scripts, the one that is played now, the clock, and a counter of tokens.

Promise: nothing but the standard library is imported, so that each engine runs in its peer's own environment.

A playbook is a folder. `NAME.json` holds a script's token ids, `NAME.sse` the same as vLLM's completions wire says it;
`now` holds "NAME PERIOD" and is read at each request: a period in seconds, or 0 for as fast as the engine can. Where
the folder has a file `heard`, prompts and cancelled requests are appended to it, for `turnwire conformance`.
"""

from __future__ import annotations

import json
import mmap
import struct
import time
from collections.abc import Sequence
from pathlib import Path


class Playbook:
    """A folder of scripts, as an engine reads it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._scripts: dict[str, list[int]] = {}
        self.listens = (folder / "heard").exists()

    def now(self) -> tuple[list[int], float]:
        """The token ids that a request is answered with, and the seconds between two of them."""
        name, period = (self.folder / "now").read_text().split()
        script = self._scripts.get(name)
        if script is None:
            script = self._scripts[name] = json.loads((self.folder / f"{name}.json").read_text())
        return script, float(period)

    def play(self, name: str, period: float) -> None:
        """Choose what the next requests are answered with."""
        new = self.folder / "now.new"
        new.write_text(f"{name} {period}\n")
        new.replace(self.folder / "now")

    def hear(self, prompt: Sequence[int]) -> None:
        """Keep a prompt."""
        if self.listens:
            self._note(list(prompt))

    def left(self) -> None:
        """Keep that a request was cancelled before its end."""
        if self.listens:
            self._note("left")

    def _note(self, line: object) -> None:
        with (self.folder / "heard").open("a") as file:
            file.write(json.dumps(line) + "\n")

    def tokens(self, name: str) -> int:
        """The number of tokens of a script, the last one included."""
        return len(json.loads((self.folder / f"{name}.json").read_text()))


class Counter:
    """The tokens an engine has sent, in a file that other processes read."""

    def __init__(self, file: Path) -> None:
        if not file.exists():
            file.write_bytes(bytes(8))
        with file.open("r+b") as opened:
            self._memory = mmap.mmap(opened.fileno(), 8)

    @property
    def value(self) -> int:
        return int(struct.unpack("<Q", self._memory[:8])[0])

    def add(self, tokens: int) -> None:
        self._memory[:8] = struct.pack("<Q", self.value + tokens)


class Counters:
    """The sum of several engines' counters."""

    def __init__(self, counters: Sequence[Counter]) -> None:
        self._counters = counters

    @property
    def value(self) -> int:
        return sum(counter.value for counter in self._counters)


def next_step(period: float) -> float:
    """The next moment of the monotonic clock that is a multiple of the period."""
    return (time.monotonic() // period + 1) * period
