"""A client's connection: HTTP/1.1 as uvicorn's server speaks it here, within bounds.

Promise: a head over its limits is answered 431, a request that does not arrive whole in time 408, and what is no HTTP
400, all before the application sees them. An answer reaches a client that is still sending, or that reads slowly (over
TLS, what it has not taken half a minute after the end is lost); a connection whose peer takes nothing more for a while
is gone, also while it is being closed. Requests that are sent ahead are answered in their order. Of uvicorn's settings
it knows those that the gateway makes. This leans on parts of uvicorn that are not its public interface, so its version
is pinned.
"""

from __future__ import annotations

import asyncio
import logging
import urllib.parse
from collections.abc import Sequence
from typing import Any, ClassVar

import httptools
import msgspec
from starlette.types import Scope
from uvicorn.config import Config
from uvicorn.server import ServerState
from websockets.exceptions import HeaderLineTooLong, RequestLineTooLong, TooManyHeaders

from turnwire.gateway.door.bounds import HttpBounds, see_off
from turnwire.gateway.door.exchange import DIRECT, Exchange, status_line

__all__ = ["bounded_http"]

log = logging.getLogger("turnwire.gateway")

_AHEAD = 100
"""Requests that may wait behind the one that is answered; they are read in pieces, of which each may hold thousands."""

_ASGI = {"version": "3.0", "spec_version": "2.3"}


class _OverBounds(Exception):
    """Raised inside the parser, which then stops."""


class _BoundedHttp(asyncio.Protocol):
    """What uvicorn's server makes for each connection. `stuck`: the client does not take what is written."""

    bounds: ClassVar[HttpBounds]

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._config = config
        self._server = server_state
        self._app_state = app_state
        self.loop = _loop or asyncio.get_running_loop()
        self.transport: asyncio.Transport
        self.stuck = False
        self._unstuck: asyncio.Event | None = None
        self._stalls: asyncio.TimerHandle | None = None
        self._reads = True
        self._parser: httptools.HttpRequestParser
        # The head that is being read: what is known of it and how large that is.
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._size = 0
        self._awaits_continue = False
        self._in_head = True
        # How much was received since the last that was of use: of a head that does not end, or of what follows a body.
        self._received = 0
        # A request that has begun and is not here to its end; its exchange, once its head is complete.
        self._arriving = False
        # All is said, but the client is still sending: what it sends is thrown away.
        self._leaving = False
        self._incoming: Exchange | None = None
        self._answering: Exchange | None = None
        self._ahead: list[tuple[Exchange, Scope]] = []
        # One timer for whatever is waited for: what is due later than it rings is looked at again then.
        self._due: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    # -------------------------------------------------------------------------------------------- the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self._server.connections.add(self)  # type: ignore[arg-type]
        self._parser = self._new_parser()
        self._expect(self.bounds.request_s)

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # A client may announce that it closes and send more all the same: its request is answered.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        self._stop_clock()
        self._ahead.clear()
        if self._answering is not None:
            self._answering.leave()
        if self.stuck:
            self._set_stuck(False)
        # They know the connection, as the connection knows them.
        self._answering = self._incoming = None
        del self._parser

    def eof_received(self) -> None:
        """The client says nothing more, for which the loop closes the connection."""
        see_off(self.transport, self.loop, self.bounds.linger_s)

    def shutdown(self) -> None:
        """The server ends: close now, or after the answer that is on its way."""
        if self._answering is None:
            self.close()
        else:
            self._answering.lasts = False

    def close(self) -> None:
        """Close, once what was written is sent."""
        self.transport.close()
        see_off(self.transport, self.loop, self.bounds.linger_s)

    def _close_politely(self) -> None:
        """Close, but not in the face of a client that is still sending: the system would throw away, on the client's
        side, what was written and not yet read."""
        if not self._arriving:
            self.close()
            return
        self._leaving = True
        self.resume_reading()
        if not self.transport.can_write_eof():
            # TLS: what it sends is not looked into any more, so that neither is where it ends.
            self._expect(min(self.bounds.linger_s, self.bounds.request_s))
        else:
            try:
                self.transport.write_eof()
            except OSError:
                # The client is gone, which nobody has told us yet.
                self.close()

    def refuse(self, status: int, message: str) -> None:
        """Answer in place of the application, and close. An answer that has begun is cut."""
        if self.transport.is_closing():
            return
        answering, self._answering = self._answering, None
        self._ahead.clear()
        if answering is not None:
            answering.leave()
            if answering.begun:
                self.transport.abort()
                return
        body = msgspec.json.encode({"error": {"message": message, "type": "invalid_request_error", "code": None}})
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(status_line(status) + head + body)
        self._close_politely()

    # -------------------------------------------------------------------------------------------------- the flow

    def pause_writing(self) -> None:
        self._set_stuck(True)
        self._watch(self.transport.get_write_buffer_size())
        if self._answering is not None and self._answering.listener is not None:
            self._answering.listener.pause()

    def resume_writing(self) -> None:
        self._set_stuck(False)
        if self._answering is not None and self._answering.listener is not None:
            self._answering.listener.resume()

    def _watch(self, left: int) -> None:
        self._stalls = self.loop.call_later(self.bounds.stall_s, self._stalled, left)

    def _stalled(self, left: int) -> None:
        """Cut the answer of a client that takes nothing of it; whoever listens has a clock of its own for that."""
        self._stalls = None
        if self.transport.is_closing():
            return
        size = self.transport.get_write_buffer_size()
        if size == left and (self._answering is None or self._answering.listener is None):
            self.transport.abort()
        else:
            self._watch(size)

    def _set_stuck(self, stuck: bool) -> None:
        self.stuck = stuck
        if self._stalls is not None:
            self._stalls.cancel()
            self._stalls = None
        if not stuck and self._unstuck is not None:
            self._unstuck.set()

    async def writable(self) -> None:
        """Wait until the client has taken what was written, or has left."""
        while self.stuck:
            if self._unstuck is None:
                self._unstuck = asyncio.Event()
            self._unstuck.clear()
            await self._unstuck.wait()

    def pause_reading(self) -> None:
        """Read no more for now."""
        if self._reads:
            self._reads = False
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        if not self._reads and not self.transport.is_closing():
            self._reads = True
            self.transport.resume_reading()

    # --------------------------------------------------------------------------------------------------- reading

    def data_received(self, data: bytes) -> None:
        if self._leaving:
            return
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._upgrade(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError:
            if self._size > self.bounds.head_bytes or len(self._headers) > self.bounds.headers:
                self.refuse(431, "The request's head is too large.")
            else:
                log.info("a client sent what is no HTTP request")
                self.refuse(400, "This is not a valid HTTP request.")
            return
        if self._received > self.bounds.head_bytes:
            self.refuse(431, "The request's head is too large.")

    def on_message_begin(self) -> None:
        self._url, self._headers, self._size = b"", [], 0
        self._awaits_continue = False
        self._in_head = self._arriving = True
        self._expect(self.bounds.request_s)

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._size += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            # A trailer: it comes too late to say anything of the request.
            return
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self._awaits_continue = True
        self._headers.append((name, value))
        self._size += len(name) + len(value) + 4

    def on_headers_complete(self) -> None:
        self._in_head, self._received = False, 0
        if self._size > self.bounds.head_bytes or len(self._headers) > self.bounds.headers:
            raise _OverBounds
        parser = self._parser
        self._incoming = None
        if parser.should_upgrade():
            return
        method, version = parser.get_method().decode("ascii"), parser.get_http_version()
        exchange = Exchange(
            self,
            method=method,
            version=version,
            lasts=version == "1.1" and parser.should_keep_alive(),
            awaits_continue=self._awaits_continue and version == "1.1",
        )
        scope = self._scope(method, version)
        scope["extensions"] = {DIRECT: exchange}
        self._incoming = exchange
        if self._answering is None:
            self._answer(exchange, scope)
        elif len(self._ahead) == _AHEAD:
            raise _OverBounds
        else:
            self.pause_reading()
            self._ahead.append((exchange, scope))

    def on_body(self, body: bytes) -> None:
        self._received = 0
        if self._incoming is not None:
            self._incoming.feed(body)

    def on_message_complete(self) -> None:
        self._arriving, self._received, self._due = False, 0, None
        if self._incoming is not None:
            self._incoming.end()
            self._incoming = None
        if self._answering is None:
            # It was answered before it was here.
            self._expect(self._config.timeout_keep_alive)

    def _scope(self, method: str, version: str) -> Scope:
        """The request as ASGI describes it; whom it comes from is not asked for, since nothing is decided by it."""
        target = httptools.parse_url(self._url)
        path = target.path.decode("ascii")
        return {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "scheme": "https" if self._config.ssl else "http",
            "method": method,
            "root_path": "",
            "path": urllib.parse.unquote(path) if "%" in path else path,
            "raw_path": target.path,
            "query_string": target.query or b"",
            "headers": self._headers,
            "state": self._app_state.copy(),
        }

    # ------------------------------------------------------------------------------------------------- answering

    def _answer(self, exchange: Exchange, scope: Scope) -> None:
        self._answering = exchange
        task = self.loop.create_task(exchange.run(self._config.loaded_app, scope))
        self._server.tasks.add(task)
        task.add_done_callback(self._server.tasks.discard)

    def answered(self, exchange: Exchange) -> None:
        """All of the answer is written: what comes next on this connection may."""
        self._answering = None
        if self.transport.is_closing():
            return
        if not exchange.lasts:
            self._close_politely()
            return
        self.resume_reading()
        if self._ahead:
            self._answer(*self._ahead.pop(0))
        elif not self._arriving:
            self._expect(self._config.timeout_keep_alive)

    def _upgrade(self, rest: bytes) -> None:
        """Hand the connection over to a WebSocket. Other protocols are not spoken: such a request, of which `rest` has
        come too, is read again as if it asked for none."""
        asked = dict(self._headers).get(b"upgrade", b"").lower()
        socket: Any = self._config.ws_protocol_class if asked == b"websocket" else None
        if socket is None:
            others = [header for header in self._headers if header[0] != b"upgrade"]
            if len(others) == len(self._headers):
                self.refuse(400, "This server is no proxy.")
            else:
                head, self._parser = self._head(others), self._new_parser()
                self.data_received(head + rest)
            return
        if self._answering is not None:
            self.refuse(400, "A connection is upgraded once all before is answered.")
            return
        protocol = socket(config=self._config, server_state=self._server, app_state=self._app_state)
        protocol.connection_made(self.transport)
        protocol.data_received(self._head(self._headers) + rest)
        if not protocol.handshake_initiated:
            # It has bounds of its own, and would wait for ever.
            self._server.connections.discard(protocol)
            if isinstance(protocol.conn.handshake_exc, (HeaderLineTooLong, RequestLineTooLong, TooManyHeaders)):
                self.refuse(431, "The head of a WebSocket's handshake is too large.")
            else:
                self.refuse(400, "This is not a valid WebSocket handshake.")
            return
        self._stop_clock()
        self._server.connections.discard(self)
        self.transport.set_protocol(protocol)
        del self._parser

    def _head(self, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        """The head of the request that was read last, with these headers."""
        lines = [b"%b: %b\r\n" % header for header in headers]
        version = self._parser.get_http_version().encode()
        return b"".join((self._parser.get_method(), b" ", self._url, b" HTTP/", version, b"\r\n", *lines, b"\r\n"))

    # ------------------------------------------------------------------------------------------------- the clock

    def _expect(self, seconds: float) -> None:
        """Give the client so long from now."""
        self._due = self.loop.time() + seconds
        if self._timer is not None and self._timer.when() > self._due:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self.loop.call_at(self._due, self._rings)

    def _stop_clock(self) -> None:
        self._due = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _rings(self) -> None:
        self._timer = None
        if self._due is None:
            return
        if self._due > self.loop.time():
            self._timer = self.loop.call_at(self._due, self._rings)
        elif not self._reads:
            # We have stopped reading: the client waits for us, not we for it.
            self._expect(self.bounds.request_s)
        elif self._arriving and not self._leaving:
            self._arriving = False
            self.refuse(408, "The request did not arrive in time.")
        else:
            # Nothing was asked, so nothing is answered.
            self.close()


def bounded_http(bounds: HttpBounds) -> type[asyncio.Protocol]:
    """A protocol for uvicorn that keeps these bounds."""
    return type("BoundedHttp", (_BoundedHttp,), {"bounds": bounds})
