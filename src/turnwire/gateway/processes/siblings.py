"""What the processes of one gateway ask of each other, over sockets in a folder that is theirs alone.

Promise: whichever process an operator reaches answers for all. A sibling that does not answer in time is left out, and
what a process counted before it ended stays counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp

from turnwire.gateway.processes.merging import MetricsPage

__all__ = ["Siblings"]

log = logging.getLogger("turnwire.processes")

_ANSWER_S = 2.0
_ENDED = "ended.page"


class Siblings:
    """The other processes of this gateway. Each answers on `FOLDER/NAME.sock`; `name` is our own."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name

    @property
    def socket(self) -> str:
        """Where we answer the others."""
        return str(self._folder / f"{self._name}.sock")

    def names(self) -> list[str]:
        """The others that are there."""
        return sorted(path.stem for path in self._folder.glob("*.sock") if path.stem != self._name)

    async def ask(self, path: str, *, method: str = "GET") -> dict[str, tuple[int, bytes]]:
        """Every sibling's status and body, by name."""
        names = self.names()
        answers = await asyncio.gather(*(self._asked(name, path, method) for name in names))
        return {name: answer for name, answer in zip(names, answers, strict=True) if answer is not None}

    async def _asked(self, name: str, path: str, method: str) -> tuple[int, bytes] | None:
        try:
            async with self._session(name, _ANSWER_S) as session, session.request(method, f"http://x{path}") as answer:
                return answer.status, await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            log.warning("gateway process %s does not answer %s: %r", name, path, error)
            return None

    async def listen(self, name: str, path: str) -> AsyncIterator[bytes]:
        """The server-sent events of one sibling until it ends, each with its blank line."""
        with contextlib.suppress(aiohttp.ClientError, OSError):
            async with self._session(name, None) as session, session.get(f"http://x{path}") as answer:
                event = b""
                async for line in answer.content:
                    event += line
                    if line == b"\n":
                        yield event
                        event = b""

    def _session(self, name: str, seconds: float | None) -> aiohttp.ClientSession:
        connector = aiohttp.UnixConnector(str(self._folder / f"{name}.sock"))
        return aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=seconds))

    # --------------------------------------------------------------------------------------------------- metrics

    async def metrics(self, own: bytes) -> bytes:
        """The page of all processes, those that have ended included."""
        answers = await self.ask("/metrics")
        pages = {name: body.decode() for name, (status, body) in answers.items() if status == 200}
        pages[self._name] = own.decode()
        return (await asyncio.to_thread(self._summed, pages)).encode()

    def keep(self, page: bytes) -> None:
        """Leave our counters to the others; called last."""
        with self._locked():
            self._write(f"{self._name}.page", page.decode())

    def _summed(self, pages: dict[str, str]) -> str:
        total = MetricsPage()
        with self._locked():
            for name, text in pages.items():
                total.add(text)
                self._write(f"{name}.page", text)
            ended = MetricsPage(self._read(_ENDED))
            for path in self._folder.glob("*.page"):
                if path.name == _ENDED or path.stem in pages:
                    continue
                text = self._read(path.name)
                if (self._folder / f"{path.stem}.sock").exists():
                    # It lives, and was only too slow this time.
                    total.add(text, ended=True)
                    continue
                ended.add(text, ended=True)
                self._write(_ENDED, ended.text())
                path.unlink()
            total.add(ended.text(), ended=True)
        return total.text()

    def _read(self, name: str) -> str:
        try:
            return (self._folder / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    def _write(self, name: str, text: str) -> None:
        """Whole or not at all, whatever kills us."""
        fresh = self._folder / f"{name}.{self._name}"
        fresh.write_text(text, encoding="utf-8")
        os.replace(fresh, self._folder / name)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with (self._folder / "pages.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
