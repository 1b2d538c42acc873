"""A gateway as its own process, started by the real command line, with a relay in front that keeps the wire.

Promise: it is ready when `start` returns and gone when `stop` returns; what it saw can be read at any time.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from .outputs import write_script
from .wiretap import Exchange, Wiretap

__all__ = ["MODEL", "Record", "ServedGateway", "count_tokens", "prefix_held", "rate_limited_key"]

MODEL = "nvidia/nemotron-3-super"


@dataclass(frozen=True)
class Record:
    """One line of the gateway's own record of turns."""

    raw: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.raw[name]
        except KeyError:
            raise AttributeError(f"the record has no {name}; it has {', '.join(self.raw)}") from None


@lru_cache(maxsize=1)
def _tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(files("turnwire.prompts").joinpath("data/turnwire-tokenizer.json")))


def count_tokens(text: str) -> int:
    """How many tokens a prompt has, by the tokenizer itself and not by the gateway."""
    return len(_tokenizer().encode(text, add_special_tokens=False).ids)


def prefix_held(records: list[Record], *, restarted_before: int | None = None) -> None:
    """Every turn's prompt begins with the one before it and what the model then wrote, character for character; and
    the gateway's own continuity check says so too (a gateway that was restarted before a turn has nothing to compare
    it with)."""
    for number, (before, after) in enumerate(pairwise(records), 2):
        whole = before.prompt_text + before.output_text
        if not after.prompt_text.startswith(whole):
            same = (a == b for a, b in zip(whole, after.prompt_text, strict=False))
            at = next((i for i, equal in enumerate(same) if not equal), len(after.prompt_text))
            raise AssertionError(
                f"turn {number} broke the prefix at character {at} of {len(whole)} (the turn before it wrote from "
                f"{len(before.prompt_text)}):\n  was {whole[at - 60 : at + 60]!r}\n  is  "
                f"{after.prompt_text[at - 60 : at + 60]!r}"
            )
        expected = "first" if number == restarted_before else "held"
        assert after.prefix.startswith(expected), f"turn {number} held its prefix, but the gateway says: {after.prefix}"


def rate_limited_key(path: Path, secret: str) -> tuple[str, str]:
    """Flags for a gateway that lets `secret` ask thirty times a minute."""
    digest = hashlib.sha256(secret.encode()).hexdigest()
    path.write_text(f'[[key]]\nname = "test"\nhash = "sha256:{digest}"\nrequests_per_minute = 30\n')
    return ("--keys", str(path))


class ServedGateway:
    """`turnwire serve` on a script. `url` goes through the relay."""

    def __init__(self, folder: Path, lines: list[dict[str, Any]], flags: tuple[str, ...], env: dict[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.script = folder / "script.jsonl"
        self.tap: Wiretap | None = None
        self.port = 0
        self._flags = flags
        self._env = env
        self._log: list[str] = []
        self._process: subprocess.Popen[str] | None = None
        write_script(self.script, lines)

    @property
    def model(self) -> str:
        return MODEL

    @property
    def captures(self) -> Path:
        """Where everything is captured that its clients said and heard."""
        return self.folder / "captures"

    @property
    def url(self) -> str:
        assert self.tap is not None
        return self.tap.url

    @property
    def v1(self) -> str:
        return f"{self.url}/v1"

    @property
    def log(self) -> str:
        return "".join(self._log)

    @property
    def exchanges(self) -> list[Exchange]:
        assert self.tap is not None
        return self.tap.exchanges

    def turns(self, path: str = "") -> list[Exchange]:
        """The POSTs that asked for a turn, in order."""
        paths = (path,) if path else ("/v1/messages", "/v1/responses", "/v1/chat/completions")
        return [exchange for exchange in self.exchanges if exchange.method == "POST" and exchange.path in paths]

    def records(self, count: int | None = None) -> list[Record]:
        """The gateway's own records; waits a moment for `count` of them, since a turn is booked after its last byte."""
        path = self.folder / "record" / "turns.jsonl"
        deadline = time.monotonic() + 5
        while True:
            rows = path.read_text().split("\n")[:-1] if path.exists() else []  # what has no newline is being written
            found = [json.loads(row) for row in rows]
            if count is None or len(found) >= count or time.monotonic() > deadline:
                assert count is None or len(found) >= count, (
                    f"{len(found)} turns recorded, {count} expected\n{self.log}"
                )
                return [Record(row) for row in found]
            time.sleep(0.02)

    def start(self) -> ServedGateway:
        command = [
            str(Path(sys.executable).with_name("turnwire")),
            "serve",
            # A config file names its own models.
            *(() if "--config" in self._flags else ("--engine", f"scripted:{self.script}", "--model", MODEL)),
            "--port",
            "0",
            "--record",
            str(self.folder / "record"),
            "--capture",
            str(self.captures),
            *self._flags,
        ]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self._env, cwd=self.folder
        )
        ready = threading.Event()
        address: list[int] = []

        def read() -> None:
            assert self._process is not None
            assert self._process.stdout is not None
            for row in self._process.stdout:
                self._log.append(row)
                with (self.folder / "log.txt").open("a") as log:
                    log.write(row)
                if found := re.search(r"on http://127\.0\.0\.1:(\d+)", row):
                    address.append(int(found[1]))
                    ready.set()
            ready.set()

        threading.Thread(target=read, daemon=True).start()
        ready.wait(120)
        if not address:
            self.stop()
            raise RuntimeError(f"the gateway did not start:\n{self.log[-1500:]}")
        if self.tap is None:
            self.tap = Wiretap(("127.0.0.1", address[0]))
        else:
            self.tap.upstream = ("127.0.0.1", address[0])
        self.port = address[0]
        return self

    def stop(self) -> None:
        """Stop the process; a later `start` is a fresh one behind the same address."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        self._process = None

    def exhaust(self, secret: str) -> None:
        """Ask until the key has used up what it may ask."""
        for _ in range(100):
            request = urllib.request.Request(f"{self.v1}/models", headers={"authorization": f"Bearer {secret}"})
            try:
                urllib.request.urlopen(request, timeout=10).read()
            except urllib.error.HTTPError as refused:
                if refused.code == 429:
                    return
                raise
        raise AssertionError("the key was never refused")

    def hand_over(self, other: ServedGateway, *, after: int) -> None:
        """Once `after` turns were asked for here, clients of this address talk to another gateway."""
        assert self.tap is not None
        self.tap.redirect(("127.0.0.1", other.port), after=after)

    def close(self) -> None:
        self.stop()
        if self.tap is not None:
            self.tap.close()
