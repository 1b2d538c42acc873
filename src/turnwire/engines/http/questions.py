"""Short questions to a server, each with its whole answer.

Promise: one request and one answer on a connection of its own, bounded in time and, where it is said, in size; whatever
goes wrong on the way is an OSError. A redirect is an answer like any other.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping

import msgspec

from turnwire.engines.http.answer import Answer, MalformedAnswer
from turnwire.engines.http.connections import Address

__all__ = ["Questions", "Reply"]

_CONNECT_SECONDS = 10.0
_READ = 64 * 1024


class Reply(msgspec.Struct, frozen=True):
    """What was answered; of a body that is larger than was wanted, the beginning. Names of headers are in lower
    case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Questions:
    """Whoever asks one server; every question carries `headers`."""

    def __init__(self, address: Address, headers: Mapping[str, str]) -> None:
        self._address = address
        self._ssl = ssl.create_default_context() if address.tls else None
        always = {"Host": address.authority, "Accept": "*/*", "Accept-Encoding": "identity", "Connection": "close"}
        self._head = "".join([f"{name}: {value}\r\n" for name, value in (always | dict(headers)).items()])

    async def ask(self, path: str, body: bytes | None = None, *, seconds: float, most: int | None = None) -> Reply:
        """GET a path, or POST a JSON `body` to it, and read the answer, or about `most` bytes of its body."""
        asked = f"{'GET' if body is None else 'POST'} {self._address.prefix}{path} HTTP/1.1\r\n{self._head}"
        if body is not None:
            asked += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        try:
            async with asyncio.timeout(seconds):
                return await self._answered(f"{asked}\r\n".encode("latin-1", "replace") + (body or b""), most)
        except (MalformedAnswer, UnicodeError) as error:
            raise ConnectionError(str(error)) from error

    async def _answered(self, request: bytes, most: int | None) -> Reply:
        async with asyncio.timeout(_CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(self._address.host, self._address.port, ssl=self._ssl)
        try:
            writer.write(request)
            answer, said = Answer(), bytearray()
            while not answer.over and (most is None or len(said) < most):
                data = await reader.read(_READ)
                if not data:
                    answer.close()
                said += answer.feed(data)
            return Reply(answer.status, answer.headers, bytes(said))
        finally:
            writer.transport.abort()
