"""One request on a client's connection, and its answer.

Promise: an application is served as ASGI says, and may write an answer that streams by plain calls instead. The head
leaves with what is written in the same step. An answer that breaks off is cut, so that it does not look whole; where
nothing of it was sent, the client gets an error.
"""

from __future__ import annotations

import asyncio
import http
import logging
import re
from collections.abc import Iterable, Sequence
from typing import Protocol

from starlette.types import ASGIApp, Message, Scope

__all__ = ["DIRECT", "Connection", "Exchange", "Listener", "status_line"]

log = logging.getLogger("turnwire.gateway")

DIRECT = "turnwire.direct"
"""The ASGI extension under which an application finds the Exchange of its request."""

_HIGH_WATER = 64 * 1024
"""Bytes of a request that may wait for the application before no more is read."""

_COPIED = 32 * 1024
"""Up to this size, bytes are joined to be written; longer ones are not copied."""

_PHRASES = {status.value: status.phrase for status in http.HTTPStatus}
_BAD_NAME = re.compile(rb'[\x00-\x20\x7f()<>@,;:\[\]={}\\"]')
_BAD_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_WITHOUT_BODY = (204, 304)


def status_line(status: int) -> bytes:
    """The first line of an answer."""
    return f"HTTP/1.1 {status} {_PHRASES.get(status, '')}\r\n".encode()


_OK = status_line(200)


class Listener(Protocol):
    """Who is called when the client of a direct answer falls behind, catches up or leaves."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def gone(self) -> None: ...


class Connection(Protocol):
    """What an exchange needs of the connection it is on. `stuck`: the client does not take what is written."""

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    stuck: bool

    def pause_reading(self) -> None:
        """Read no more of the request for now."""
        ...

    def resume_reading(self) -> None:
        """Read on."""
        ...

    async def writable(self) -> None:
        """Wait until the client has taken what was written, or has left."""
        ...

    def answered(self, exchange: Exchange) -> None:
        """All of the answer is written."""
        ...

    def refuse(self, status: int, message: str) -> None:
        """Answer in place of the application, and close."""
        ...

    def close(self) -> None:
        """Close, once what was written is sent."""
        ...


class Exchange:
    """A request as it comes in and its answer as it goes out. `lasts`: the connection is kept after it; `begun`: the
    answer has a head; `complete`: and an end; `gone`: the client left before that."""

    __slots__ = (
        "_awaits_continue",
        "_bodiless",
        "_chunked",
        "_connection",
        "_ended",
        "_head",
        "_news",
        "_opening",
        "_owed",
        "_pieces",
        "_size",
        "_streams",
        "_told",
        "_whole",
        "_write",
        "begun",
        "complete",
        "gone",
        "lasts",
        "listener",
    )

    def __init__(
        self, connection: Connection, *, method: str, version: str, lasts: bool, awaits_continue: bool = False
    ) -> None:
        self._connection = connection
        self._write = connection.transport.write
        self._bodiless = method == "HEAD"
        # Before HTTP/1.1 a body of unknown length ends with its connection.
        self._streams = version == "1.1"
        self._awaits_continue = awaits_continue
        self._pieces: list[bytes] = []
        self._size = 0
        self._whole = False
        # Whether there is something that the application has not been told, and what it waits for that with.
        self._news = False
        self._told: asyncio.Event | None = None
        # What waits for the next write, or the end of this step: the head, and an opening that is long.
        self._head = b""
        self._opening: tuple[bytes, ...] = ()
        self._chunked = False
        self._owed: int | None = None
        self._ended = False
        self.lasts = lasts
        self.begun = False
        self.complete = False
        self.gone = False
        self.listener: Listener | None = None

    async def run(self, application: ASGIApp, scope: Scope) -> None:
        """Have the request answered."""
        try:
            await application(scope, self.receive, self.send)
        except Exception:
            log.exception("a defect while answering a request")
        finally:
            self.listener = None
            if not (self.complete or self.gone):
                self._break_off()

    def _break_off(self) -> None:
        if self.begun:
            self.send_head()
            self._connection.close()
        else:
            self._connection.refuse(500, "The gateway failed to answer this request.")

    # ------------------------------------------------------------------------------------------- what the client does

    def feed(self, data: bytes) -> None:
        """More of the request's body has come."""
        if self.complete:
            return
        self._pieces.append(data)
        self._size += len(data)
        if self._size > _HIGH_WATER:
            self._connection.pause_reading()
        self._tell()

    def end(self) -> None:
        """The whole request has come."""
        self._whole = True
        self._tell()

    def leave(self) -> None:
        """The client has left."""
        if self.complete:
            return
        self.gone = True
        self._tell()
        if self.listener is not None:
            self.listener.gone()

    def _tell(self) -> None:
        self._news = True
        if self._told is not None:
            self._told.set()

    # ----------------------------------------------------------------------------------------------------------- ASGI

    async def receive(self) -> Message:
        """More of the request, or that its client waits for nothing more."""
        if self._awaits_continue and not self.gone:
            self._awaits_continue = False
            self._write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while not self._news:
            if self._told is None:
                self._told = asyncio.Event()
            self._told.clear()
            await self._told.wait()
        if self.gone or self.complete:
            return {"type": "http.disconnect"}
        self._news = False
        body = b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        if not self._whole:
            self._connection.resume_reading()
        return {"type": "http.request", "body": body, "more_body": not self._whole}

    async def send(self, message: Message) -> None:
        """The head of the answer, or more of its body."""
        if self._connection.stuck and not self.gone:
            await self._connection.writable()
        if self.gone:
            return
        if self.complete or message["type"] != ("http.response.body" if self.begun else "http.response.start"):
            raise RuntimeError(f"{message['type']} does not follow here")
        if self.begun:
            self._send_body(message.get("body", b""), more=message.get("more_body", False))
        else:
            self._start(message["status"], message.get("headers", ()))

    def _start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        lines = []
        for name, value in headers:
            if _BAD_NAME.search(name) or _BAD_VALUE.search(value):
                raise RuntimeError(f"no header: {name!r}: {value!r}")
            name = name.lower()
            if name == b"content-length":
                self._owed = int(value)
            elif name == b"connection":
                self.lasts = self.lasts and b"close" not in value.lower()
                continue
            lines.append(b"%b: %b\r\n" % (name, value))
        self._bodiless = self._bodiless or status in _WITHOUT_BODY
        self._chunked = self._streams and self._owed is None and not self._bodiless
        self._begin(status_line(status), lines)

    def _send_body(self, data: bytes, *, more: bool) -> None:
        if self._bodiless:
            data = b""
        elif self._owed is not None:
            self._owed -= len(data)
            if self._owed < 0 or (self._owed and not more):
                raise RuntimeError("the body is not as long as its head says")
        if data:
            self.write(data)
        if not more:
            self.finish()

    # ---------------------------------------------------------------------------------------------- a direct answer

    @property
    def full(self) -> bool:
        """Whether the client has not taken what was written."""
        return self._connection.stuck and not self.gone

    def listen(self, listener: Listener) -> None:
        """Tell `listener` what the client does from now on."""
        self.listener = listener
        if self.gone:
            listener.gone()

    def start(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Begin an answer of unknown length with a status of 200 and these headers."""
        if self.gone:
            return
        self._chunked = self._streams
        self._begin(_OK, [b"%b: %b\r\n" % header for header in headers])

    def _begin(self, status: bytes, lines: list[bytes]) -> None:
        self.begun = True
        self._awaits_continue = False
        if self._chunked:
            lines.append(b"transfer-encoding: chunked\r\n")
        if not self.lasts:
            lines.append(b"connection: close\r\n")
        self._head = b"".join((status, *lines, b"\r\n"))
        # Together with what is written in the same step.
        self._connection.loop.call_soon(self.send_head)

    def send_head(self) -> None:
        """Send the head now, if it waits."""
        if self._head:
            self._put(b"")

    def write(self, data: bytes) -> None:
        """Send more of the body."""
        if len(data) > _COPIED:
            framed = self._framed(data, b"\r\n")
            if self._head and not self._opening and not self.gone:
                # A long opening leaves as the head does: alone it would go at once, and the words behind it only when
                # all that is to be done in this step is done.
                self._opening = framed
            else:
                self._put(*framed)
            return
        if self._chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        if self._head or self.gone:
            self._put(data)
            return
        # Held by the object, not by its class: from a local name it is called without a search.
        write = self._write
        write(data)

    def write_last(self, data: bytes) -> None:
        """Send the last of the body, and where it ends; the connection goes on once the answer is finished."""
        if len(data) > _COPIED:
            self._put(*self._framed(data, b"\r\n0\r\n\r\n"))
        else:
            self._put(b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data) if self._chunked else data)
        self._ended = True

    def finish(self) -> None:
        """End the answer."""
        if self.gone:
            return
        self.send_head()
        if self._chunked and not self._ended:
            self._put(b"0\r\n\r\n")
        self.complete = True
        self._tell()
        self._connection.answered(self)

    def _framed(self, data: bytes, end: bytes) -> tuple[bytes, ...]:
        """Data that is long, in pieces."""
        return (b"%x\r\n" % len(data), data, end) if self._chunked else (data,)

    def _put(self, *pieces: bytes) -> None:
        if self.gone:
            return
        if self._head:
            pieces = (self._head, *self._opening, *pieces)
            self._head, self._opening = b"", ()
        if sum(map(len, pieces)) > _COPIED:
            self._connection.transport.writelines(pieces)
        else:
            self._write(b"".join(pieces))
