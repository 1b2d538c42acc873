"""One request and its answer, read within limits.

Promise: a server that never ends, sends without measure or sends nonsense costs a bounded time and a bounded number of
bytes; what happened is in the exchange, and nothing is raised but `Unreachable`, where no connection can be made.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

import aiohttp
import msgspec

from turnwire.conformance.values import parsed

__all__ = ["Exchange", "Frame", "Limits", "Unreachable", "Wire", "frames_of"]


class Limits(msgspec.Struct, frozen=True):
    """What one answer may cost."""

    seconds: float = 60.0
    size: int = 16 * 1024 * 1024
    frames: int = 50_000


class Frame(msgspec.Struct, frozen=True):
    """A server-sent event: when it came, the name of its `event:` line, and its data."""

    at: float
    name: str | None
    data: str


class Exchange(msgspec.Struct, kw_only=True):
    """A request and all that came back. `fault` says what went wrong below the API."""

    path: str
    sent: object
    status: int = 0
    kind: str = ""
    frames: list[Frame] = []
    body: bytes = b""
    fault: str | None = None
    began: float = 0.0
    ended: float = 0.0

    @property
    def document(self) -> object | None:
        """The body as JSON."""
        return parsed(self.body)

    @property
    def streamed(self) -> bool:
        return self.kind == "text/event-stream"


class Unreachable(Exception):
    """No server answers at the address."""


class Wire:
    """A client of one server."""

    def __init__(self, url: str, key: str | None, limits: Limits | None = None) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self.key = key
        self._headers = {"authorization": f"Bearer {key}", "x-api-key": key} if key else {}
        self._limits = limits or Limits()
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Wire:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        # A connection of its own for each request: whether one was closed meanwhile is not a rule of the table.
        connector = aiohttp.TCPConnector(force_close=True)
        self._session = aiohttp.ClientSession(
            timeout=timeout, connector=connector, max_line_size=65536, max_field_size=65536
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str) -> Exchange:
        """Ask for a document."""
        return await self._exchange("GET", path, None, {}, None)

    async def post(
        self, path: str, body: object, headers: Mapping[str, str] | None = None, leave_after: int | None = None
    ) -> Exchange:
        """Send a body (bytes as they are, anything else as JSON). `leave_after` closes the connection after so many
        events, as a harness does that is interrupted."""
        return await self._exchange("POST", path, body, headers or {}, leave_after)

    async def _exchange(
        self, method: str, path: str, body: object, headers: Mapping[str, str], leave_after: int | None
    ) -> Exchange:
        if self._session is None:
            raise RuntimeError("the wire is not open")
        made = Exchange(path=path, sent=body, frames=[], began=time.monotonic())
        data = body if isinstance(body, bytes) or body is None else msgspec.json.encode(body)
        sent = {**self._headers, **({"content-type": "application/json"} if data is not None else {}), **headers}
        try:
            async with asyncio.timeout(self._limits.seconds):
                async with self._session.request(
                    method, self.url + path, data=data, headers=sent, allow_redirects=False
                ) as answer:
                    made.status, made.kind = answer.status, answer.content_type
                    await self._read(answer, made, leave_after)
        except TimeoutError:
            made.fault = f"no end within {self._limits.seconds:g} s"
        except aiohttp.ClientConnectorError as error:
            raise Unreachable(f"no server answers at {self.url}: {error}") from None
        except (aiohttp.ClientError, ConnectionError, ValueError) as error:
            made.fault = f"the connection failed: {type(error).__name__}: {error}"
        made.ended = time.monotonic()
        return made

    async def _read(self, answer: aiohttp.ClientResponse, made: Exchange, leave_after: int | None) -> None:
        size = 0
        kept = bytearray()
        lines = _Lines(made.frames)
        async for piece in answer.content.iter_any():
            size += len(piece)
            if size > self._limits.size:
                made.fault = f"more than {self._limits.size} bytes"
                break
            if not made.streamed:
                kept += piece
                continue
            lines.feed(piece)
            if len(made.frames) > self._limits.frames:
                made.fault = f"more than {self._limits.frames} events"
                break
            if leave_after is not None and len(made.frames) >= leave_after:
                answer.close()
                break
        made.body = bytes(kept)


def frames_of(body: bytes) -> list[Frame]:
    """The events of a stream that was kept whole; their times mean nothing."""
    frames: list[Frame] = []
    _Lines(frames).feed(body)
    return frames


class _Lines:
    """Cuts bytes into server-sent events, each with the time of its last byte."""

    def __init__(self, frames: list[Frame]) -> None:
        self._frames = frames
        self._parts: list[bytes] = []
        self._name: str | None = None
        self._data: list[str] = []

    def feed(self, piece: bytes) -> None:
        *whole, rest = piece.split(b"\n")
        for part in whole:
            self._parts.append(part)
            self._line(b"".join(self._parts).removesuffix(b"\r"))
            self._parts.clear()
        if rest:
            self._parts.append(rest)

    def _line(self, raw: bytes) -> None:
        if not raw:
            if self._data:
                self._frames.append(Frame(time.monotonic(), self._name, "\n".join(self._data)))
            self._name, self._data = None, []
            return
        field, _, value = raw.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            self._name = value
        elif field == "data":
            self._data.append(value)
