"""A raw HTTP/1.1 and WebSocket client: any bytes may be sent, and a hang, a cut or a broken frame is seen.

Promise: what comes back is read as it was sent; nothing is retried here.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re

import msgspec

LONGEST = 64 << 20
OPENING = (
    "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
)
TEXT, BINARY, CLOSE, PING = 1, 2, 8, 9


class Answer(msgspec.Struct):
    """A status, the kind of content and the body; `cut` where a stream ended without its last chunk."""

    status: int
    kind: str
    body: bytes
    cut: bool = False


class Connection:
    """Requests one after the other, on a connection that is made anew where the server closes it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the next request goes where the last one went."""
        return self._streams is not None

    async def ask(
        self, method: str, path: str, headers: tuple[tuple[str, str], ...], data: bytes, leave: bytes | None = None
    ) -> Answer:
        """One exchange. With `leave`, the connection is closed once that has come."""
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nContent-Length: {len(data)}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in headers) + "\r\n"
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)
        reader, writer = self._streams
        writer.write(head.encode("latin-1", "replace") + data)
        try:
            answer, keep = await self._answer(reader, method, leave)
        except (ConnectionError, asyncio.IncompleteReadError):
            # A kept connection may have been closed between two requests; a new one tells.
            self.close()
            raise
        if not keep:
            self.close()
        return answer

    async def _answer(self, reader: asyncio.StreamReader, method: str, leave: bytes | None) -> tuple[Answer, bool]:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            status = int(head.split()[1])
            if status != 100:
                break
        lower = head.lower()
        kind = found[1] if (found := re.search(r"content-type: ([^;\r]*)", lower)) else ""
        keep = "connection: close" not in lower
        if method == "HEAD" or status in (204, 304):
            return Answer(status, kind, b""), keep
        length = re.search(r"content-length: (\d+)", lower)
        if length:
            return Answer(status, kind, await reader.readexactly(int(length[1]))), keep
        if "chunked" not in lower:
            return Answer(status, kind, await reader.read(LONGEST)), False
        parts: list[bytes] = []
        while True:
            line = await reader.readline()
            if not line:
                return Answer(status, kind, b"".join(parts), cut=True), False
            size = int(line, 16)
            parts.append((await reader.readexactly(size + 2))[:-2])
            if not size:
                return Answer(status, kind, b"".join(parts)), keep
            if leave is not None and leave in parts[-1]:
                return Answer(status, kind, b"".join(parts)), False

    def close(self) -> None:
        """Close it, if it is open."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class Socket:
    """A WebSocket whose frames may be anything."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def opened(cls, port: int, path: str) -> Socket:
        """Connect and upgrade."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        key = base64.b64encode(os.urandom(16)).decode()
        writer.write(OPENING.format(path=path, port=port, key=key).encode("latin-1"))
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 101 " not in head:
            writer.close()
            raise ConnectionRefusedError(head.split(b"\r\n")[0].decode("latin-1"))
        return cls(reader, writer)

    def send(self, data: bytes, opcode: int = TEXT) -> None:
        """One whole frame, masked with zeros."""
        size = len(data)
        head = bytes((0x80 | opcode,))
        if size < 126:
            head += bytes((0x80 | size,))
        elif size < 1 << 16:
            head += bytes((0x80 | 126,)) + size.to_bytes(2, "big")
        else:
            head += bytes((0x80 | 127,)) + size.to_bytes(8, "big")
        self._writer.write(head + bytes(4) + data)

    def raw(self, data: bytes) -> None:
        """Bytes that need not be a frame."""
        self._writer.write(data)

    async def receive(self) -> tuple[int, bytes]:
        """The next frame: its opcode and what it holds."""
        first, second = await self._reader.readexactly(2)
        size = second & 0x7F
        if size == 126:
            size = int.from_bytes(await self._reader.readexactly(2), "big")
        elif size == 127:
            size = int.from_bytes(await self._reader.readexactly(8), "big")
        return first & 0x0F, await self._reader.readexactly(size)

    def close(self) -> None:
        """Leave without a word."""
        self._writer.close()
