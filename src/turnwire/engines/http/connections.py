"""Connections to one engine's address: dialled when needed, kept a little while, used again.

Promise: a connection carries one request at a time and is used again only after a complete answer; one that the engine
closed, or that says anything unasked, is dropped; idle ones are bounded in number and in time.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import Protocol, cast
from urllib.parse import urlsplit

__all__ = ["Address", "Connection", "Connections"]

log = logging.getLogger("turnwire.engines")

_CONNECT_SECONDS = 10.0
_KEEPALIVE_SECONDS = 2.0
"""Below the five seconds after which uvicorn drops an idle connection."""

_IDLE_LIMIT = 512

_PORTION = 64 * 1024
"""What is taken from one connection before the others have their turn."""


class Address:
    """Where an engine listens, from its base URL."""

    def __init__(self, base_url: str) -> None:
        parts = urlsplit(base_url)
        self.host = parts.hostname or ""
        self.tls = parts.scheme == "https"
        self.port = parts.port or (443 if self.tls else 80)
        self.authority = parts.netloc.rpartition("@")[2]
        self.prefix = parts.path.rstrip("/")


class Exchange(Protocol):
    """Whoever waits for an answer on a connection."""

    def connected(self, connection: Connection) -> None:
        """The connection that was dialled for this exchange."""
        ...

    def unreachable(self, error: OSError) -> None:
        """Nobody answers (time-outs and TLS errors among the reasons)."""
        ...

    def received(self, data: bytes) -> None:
        """Bytes came."""
        ...

    def ended(self) -> None:
        """The engine closes the connection in order."""
        ...

    def lost(self, error: Exception | None) -> None:
        """The connection is gone."""
        ...

    def closed(self) -> None:
        """The engine adapter was closed."""
        ...


class Connection(asyncio.Protocol):
    """One connection. `exchange` is set while a request is under way; `used` once it has carried one. A large read is
    handed on in portions, one in each turn of the event loop."""

    __slots__ = ("_owner", "_paused", "_rest", "exchange", "since", "transport", "used")

    transport: asyncio.Transport

    def __init__(self, owner: Connections) -> None:
        self._owner = owner
        self.exchange: Exchange | None = None
        self.since = 0.0
        self.used = False
        self._rest: bytes | memoryview = b""
        self._paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def send(self, request: bytes) -> None:
        """Send a request."""
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        exchange = self.exchange
        if exchange is None:
            self.drop()
        elif len(data) <= _PORTION:
            # Held by the object, not by its class: from a local name it is called without a search.
            received = exchange.received
            received(data)
        else:
            self._rest = memoryview(data)
            self.transport.pause_reading()
            self._portion()

    def _portion(self) -> None:
        """Hand the next portion of a large read on."""
        if self.exchange is None or self._paused or not self._rest:
            return
        portion, self._rest = bytes(self._rest[:_PORTION]), self._rest[_PORTION:]
        if self._rest:
            asyncio.get_running_loop().call_soon(self._portion)
        elif not self.transport.is_closing():
            self.transport.resume_reading()
        self._hand_on(portion)

    def pause(self) -> None:
        """Hand nothing on, and read no more than is there."""
        self._paused = True
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def resume(self) -> None:
        """Go on."""
        if not self._paused:
            return
        self._paused = False
        if self._rest:
            asyncio.get_running_loop().call_soon(self._portion)
        elif not self.transport.is_closing():
            self.transport.resume_reading()

    def eof_received(self) -> None:
        # TLS tells of the end also while it is not read from.
        self._hand_on_rest()
        if self.exchange is not None:
            self.exchange.ended()
        # What of a request was not sent yet, an engine that has ended its side may never take.
        asyncio.get_running_loop().call_soon(self.transport.abort)

    def connection_lost(self, error: Exception | None) -> None:
        self._owner.forget(self)
        self._hand_on_rest()
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.lost(error)

    def _hand_on_rest(self) -> None:
        """Nothing follows what was read and not handed on."""
        rest, self._rest = self._rest, b""
        if rest:
            self._hand_on(bytes(rest))

    def _hand_on(self, portion: bytes) -> None:
        """Hand a portion on; where it cannot be taken, neither can what follows."""
        if self.exchange is None:
            return
        try:
            self.exchange.received(portion)
        except Exception:
            # As the event loop does where it made the call itself.
            log.exception("a defect in whoever reads an answer")
            self._rest = b""
            self.transport.abort()

    def drop(self) -> None:
        """Close at once, whatever is under way; its exchange gets nothing more."""
        self.exchange = None
        self._rest = b""
        self.transport.abort()

    def give_back(self) -> None:
        """The answer is complete: the connection may carry another request."""
        self.exchange = None
        self.used = True
        if self._rest:
            self.drop()
            return
        if self._paused:
            self.resume()
        self._owner.keep(self)


class Connections:
    """The connections of one engine. With `reuse` off each carries one request only."""

    def __init__(self, address: Address, *, reuse: bool = True) -> None:
        # Asked once: to find the running loop takes a system call.
        self._loop = asyncio.get_running_loop()
        self._address = address
        self._reuse = reuse
        self._ssl = ssl.create_default_context() if address.tls else None
        self._open: set[Connection] = set()
        self._dialling: dict[asyncio.Task[None], Exchange] = {}
        self._idle: dict[Connection, None] = {}
        self._sweep: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def take(self) -> Connection | None:
        """The idle connection that was used last, if there is one."""
        while self._idle:
            connection, _ = self._idle.popitem()
            if not connection.transport.is_closing():
                return connection
        return None

    def dial(self, exchange: Exchange) -> asyncio.Task[None]:
        """Make a new connection and hand it to `exchange`, or say why there is none."""
        task = asyncio.ensure_future(self._dial(exchange))
        self._dialling[task] = exchange
        task.add_done_callback(self._dialling.pop)
        return task

    async def _dial(self, exchange: Exchange) -> None:
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                _, connection = await self._loop.create_connection(
                    lambda: Connection(self), self._address.host, self._address.port, ssl=self._ssl
                )
        except OSError as error:
            exchange.unreachable(error)
            return
        self._open.add(connection)
        exchange.connected(connection)

    def keep(self, connection: Connection) -> None:
        """Take an idle connection back."""
        if not self._reuse or len(self._idle) >= _IDLE_LIMIT or connection.transport.is_closing():
            connection.drop()
            return
        connection.since = self._loop.time()
        self._idle[connection] = None
        if self._sweep is None:
            self._sweep = self._loop.call_later(_KEEPALIVE_SECONDS, self._expire)

    def forget(self, connection: Connection) -> None:
        """A connection is gone."""
        self._open.discard(connection)
        self._idle.pop(connection, None)

    def close(self) -> None:
        """Close every connection; what is under way on them is lost."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        under_way = [connection.exchange for connection in self._open if connection.exchange is not None]
        for connection in self._open:
            connection.drop()
        for exchange in (*under_way, *self._dialling.values()):
            exchange.closed()
        self._open.clear()
        self._idle.clear()

    def _expire(self) -> None:
        oldest = self._loop.time() - _KEEPALIVE_SECONDS
        for connection in [connection for connection in self._idle if connection.since <= oldest]:
            del self._idle[connection]
            connection.drop()
        self._sweep = self._loop.call_later(_KEEPALIVE_SECONDS / 2, self._expire) if self._idle else None
