"""A relay between client and gateway that keeps what went over the wire, and when.

Promise: bytes are passed on untouched and at once; what is kept is a copy, cut into HTTP exchanges.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

__all__ = ["Exchange", "Sent", "Wiretap"]


@dataclass(frozen=True)
class Sent:
    """One server-sent event as it reached the client."""

    at: float
    event: str
    data: Any


@dataclass
class Exchange:
    """One request and its answer. `pieces` are the decoded body's parts with the time each arrived."""

    method: str
    target: str
    headers: dict[str, str]
    at: float
    body: bytes = b""
    status: int = 0
    answer_headers: dict[str, str] = field(default_factory=dict)
    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    complete: bool = False

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def answer(self) -> bytes:
        return b"".join(piece for _, piece in self.pieces)

    @property
    def events(self) -> list[Sent]:
        """The server-sent events, each with the time its last byte came."""
        found: list[Sent] = []
        pending = b""
        for at, piece in self.pieces:
            pending += piece
            *whole, pending = pending.split(b"\n\n")
            for frame in whole:
                name, data = "", []
                for row in frame.split(b"\n"):
                    if row.startswith(b"event:"):
                        name = row[6:].strip().decode()
                    elif row.startswith(b"data:"):
                        data.append(row[5:].strip())
                if data:
                    text = b"\n".join(data)
                    found.append(Sent(at, name, text.decode() if text == b"[DONE]" else json.loads(text)))
        return found


class _Messages:
    """Cuts one direction of a connection into HTTP messages."""

    def __init__(self) -> None:
        self._pending = b""
        self._left: int | None = None  # bytes of body still to come; None while reading a head
        self._chunked = False
        self._until_close = False

    def feed(self, data: bytes, *, bodiless: bool = False) -> list[tuple[str, Any]]:
        """`("head", (first line, headers))`, `("body", bytes)` and `("end", None)`, in order."""
        self._pending += data
        out: list[tuple[str, Any]] = []
        while True:
            if self._until_close:
                if self._pending:
                    out.append(("body", self._pending))
                    self._pending = b""
                return out
            if self._left is None and not self._chunked:
                head, found, rest = self._pending.partition(b"\r\n\r\n")
                if not found:
                    return out
                self._pending = rest
                first, *rows = head.decode("latin-1").split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (row.partition(":") for row in rows)}
                out.append(("head", (first, headers)))
                answer = first.startswith("HTTP/")
                if answer and first.split(" ")[1].startswith("1"):
                    if first.split(" ")[1] == "101":
                        self._until_close = True
                    continue
                if headers.get("transfer-encoding", "").lower() == "chunked" and not bodiless:
                    self._chunked = True
                elif "content-length" in headers and not bodiless:
                    self._left = int(headers["content-length"])
                elif answer and not bodiless and first.split(" ")[1] not in ("204", "304"):
                    self._until_close = True
                    continue
                else:
                    self._left = 0
            if self._chunked and self._left is None:
                size, found, rest = self._pending.partition(b"\r\n")
                if not found:
                    return out
                length = int(size.split(b";")[0], 16)
                if length == 0:
                    if len(rest) < 2:
                        return out
                    self._pending, self._chunked = rest[2:], False
                    out.append(("end", None))
                    continue
                self._pending, self._left = rest, length + 2
            assert self._left is not None
            taken = self._pending[: self._left]
            self._pending = self._pending[len(taken) :]
            if self._chunked:
                keep = taken[: max(0, self._left - 2)]
                self._left -= len(taken)
                if keep:
                    out.append(("body", keep))
                if self._left:
                    return out
                self._left = None
                continue
            self._left -= len(taken)
            if taken:
                out.append(("body", taken))
            if self._left:
                return out
            self._left = None
            out.append(("end", None))


class Wiretap:
    """Listens on a free port of the loopback and relays to `upstream` ("127.0.0.1", port)."""

    def __init__(self, upstream: tuple[str, int]) -> None:
        self.upstream = upstream
        self.exchanges: list[Exchange] = []
        self.port = 0
        self._next: tuple[int, tuple[str, int]] | None = None
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        ready.wait(10)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def redirect(self, upstream: tuple[str, int], *, after: int) -> None:
        """Relay to `upstream` once `after` POSTs have been answered here (well or badly)."""
        self._next = (after, upstream)

    def _answered(self) -> bool:
        """Whether it was the answer after which another upstream takes over."""
        if self._next is None:
            return False
        after, upstream = self._next
        if sum(exchange.method == "POST" for exchange in self.exchanges) < after:
            return False
        self.upstream, self._next = upstream, None
        return True

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)

        async def start() -> None:
            server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 22)
            self.port = server.sockets[0].getsockname()[1]
            ready.set()

        self._loop.run_until_complete(start())
        self._loop.run_forever()
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_connection(*self.upstream, limit=1 << 22)
        except OSError:
            writer.transport.abort()
            return
        requests, answers = _Messages(), _Messages()
        open_exchanges: list[Exchange] = []
        handed_over: list[bool] = []

        def asked(data: bytes) -> None:
            for kind, value in requests.feed(data):
                if kind == "head":
                    first, headers = value
                    method, target, _ = first.split(" ", 2)
                    exchange = Exchange(method, target, headers, time.time())
                    open_exchanges.append(exchange)
                    self.exchanges.append(exchange)
                elif kind == "body":
                    open_exchanges[-1].body += value

        def answered(data: bytes) -> None:
            now = time.time()
            head_only = bool(open_exchanges) and open_exchanges[0].method == "HEAD"
            for kind, value in answers.feed(data, bodiless=head_only):
                if not open_exchanges:
                    continue
                exchange = open_exchanges[0]
                if kind == "head":
                    exchange.status = int(value[0].split(" ")[1])
                    exchange.answer_headers = value[1]
                elif kind == "body":
                    exchange.pieces.append((now, value))
                elif exchange.status >= 200:
                    exchange.complete = True
                    open_exchanges.pop(0)
                    if self._answered():
                        handed_over.append(True)

        await asyncio.gather(
            _pump(reader, up_writer, asked, handed_over),
            _pump(up_reader, writer, answered, handed_over),
            return_exceptions=True,
        )
        if open_exchanges:
            self._answered()
        writer.transport.abort()
        up_writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, note: Any, ended: list[bool]) -> None:
    try:
        while data := await reader.read(1 << 16):
            note(data)
            writer.write(data)
            await writer.drain()
            if ended:
                break
        writer.write_eof()
    except OSError:
        writer.transport.abort()  # a reset on one side is a reset on the other
