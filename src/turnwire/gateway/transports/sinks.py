"""Answers as HTTP bodies: straight to the connection where our own server runs the application, by ASGI elsewhere.

Promise: a write never waits; a client that falls behind pauses the turn, one that leaves ends it; the bytes are the
same whichever way they go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeAlias

from starlette.types import Message as ASGIMessage
from starlette.types import Receive, Scope, Send

from turnwire.gateway.door.exchange import DIRECT, Exchange
from turnwire.gateway.turns.sink import Reader

__all__ = ["ASGISink", "DirectSink", "Pump", "http_sink"]

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
Head: TypeAlias = Callable[[], Headers]

_HIGH_WATER = 64 * 1024
"""Bytes that may wait for a client before its turn is paused."""


class DirectSink:
    """Writes to the connection of our own server."""

    __slots__ = (
        "_exchange",
        "_headers",
        "_media_type",
        "attach",
        "write",
        "write_last",
    )

    def __init__(self, exchange: Exchange, media_type: str, headers: Head) -> None:
        self._exchange = exchange
        self._media_type = media_type
        self._headers = headers
        self.attach = exchange.listen
        self.write = exchange.write
        self.write_last = exchange.write_last

    @property
    def full(self) -> bool:
        return self._exchange.full

    def open(self) -> None:
        self._exchange.start([*_fixed(self._media_type), *self._headers()])

    async def close(self) -> None:
        """End the answer."""
        self._exchange.finish()

    def stop(self) -> None:
        """Nothing to stop."""


class Pump:
    """Sends messages by ASGI, in order, from a task that lives while there is something to send."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: list[tuple[ASGIMessage, int]] = []
        self._size = 0
        self._paused = False
        self._task: asyncio.Task[None] | None = None
        self.reader: Reader | None = None

    @property
    def full(self) -> bool:
        """Whether something has not been taken yet."""
        return bool(self._size)

    def put(self, message: ASGIMessage, size: int) -> None:
        """Send a message of so many bytes after all before it."""
        self._waiting.append((message, size))
        self._size += size
        if self._size > _HIGH_WATER and not self._paused and self.reader is not None:
            self._paused = True
            self.reader.pause()
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        while self._waiting:
            message, size = self._waiting.pop(0)
            await self._send(message)
            self._size -= size
        if self._paused:
            self._paused = False
            if self.reader is not None:
                self.reader.resume()

    async def emptied(self) -> None:
        """Wait until all has been sent."""
        if self._task is not None:
            await self._task

    def stop(self) -> None:
        """Send nothing more."""
        if self._task is not None:
            self._task.cancel()


class ASGISink:
    """Writes by ASGI messages, for any server."""

    def __init__(self, receive: Receive, send: Send, media_type: str, headers: Head) -> None:
        self._receive = receive
        self._pump = Pump(send)
        self._media_type = media_type
        self._headers = headers
        self._watcher: asyncio.Task[None] | None = None

    @property
    def full(self) -> bool:
        return self._pump.full

    def attach(self, reader: Reader) -> None:
        self._pump.reader = reader
        if self._watcher is None:
            self._watcher = asyncio.ensure_future(self._watch())

    def open(self) -> None:
        headers = [*_fixed(self._media_type), *self._headers()]
        self._pump.put({"type": "http.response.start", "status": 200, "headers": headers}, 0)

    def write(self, data: bytes) -> None:
        self._pump.put({"type": "http.response.body", "body": data, "more_body": True}, len(data))

    write_last = write

    async def close(self) -> None:
        """End the answer once all of it was taken."""
        self._pump.put({"type": "http.response.body", "body": b""}, 0)
        await self._pump.emptied()

    def stop(self) -> None:
        """Stop watching the client."""
        if self._watcher is not None:
            self._watcher.cancel()
        self._pump.stop()

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self._pump.reader is not None:
            self._pump.reader.gone()


def http_sink(scope: Scope, receive: Receive, send: Send, media_type: str, headers: Head) -> DirectSink | ASGISink:
    """The sink of a request's answer. `headers` are asked for when it opens: by then a turn may know more of itself."""
    direct = scope.get("extensions", {}).get(DIRECT)
    if isinstance(direct, Exchange):
        return DirectSink(direct, media_type, headers)
    return ASGISink(receive, send, media_type, headers)


@cache
def _fixed(media_type: str) -> Headers:
    """What the head of every answer of a type says."""
    return (
        (b"content-type", media_type.encode()),
        (b"cache-control", b"no-cache"),
        (b"x-accel-buffering", b"no"),
    )
