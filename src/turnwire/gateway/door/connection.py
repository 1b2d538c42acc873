"""Bounds on the HTTP connection itself, below any API: the size of a request's head and how long it may take.

Promise: a head over its limits is answered 431 and a request that does not arrive whole in time 408, both before the
application sees them; a connection that is being closed is gone within a bound, whether its peer reads or not. An
answer that streams can be written straight to the connection. This leans on parts of uvicorn that are not its public
interface, so its version is pinned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import msgspec
from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

__all__ = ["DIRECT", "DirectAnswer", "HttpBounds", "Listener", "bounded_http", "bounded_socket"]

DIRECT = "turnwire.direct"
"""The ASGI extension under which an application finds the DirectAnswer of its request."""


class HttpBounds(msgspec.Struct, frozen=True, kw_only=True):
    """`head_bytes` counts the request line and all headers, `headers` their number; `request_s` is the time from a
    request's first byte (or from connecting) to its last; `linger_s` the time to take what was still to be sent."""

    head_bytes: int
    headers: int
    request_s: float
    linger_s: float = 5.0


class Listener(Protocol):
    """Who is called when the client of a direct answer falls behind, catches up or leaves."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def gone(self) -> None: ...


class DirectAnswer:
    """The streamed answer to one request, written by plain calls. It is begun here and ended by ASGI's own last
    message, so that uvicorn goes on with the connection as always."""

    __slots__ = ("_chunked", "_cycle", "_head", "_protocol", "_write", "listener")

    def __init__(self, protocol: _BoundedHttp, cycle: RequestResponseCycle) -> None:
        self._protocol = protocol
        self._cycle = cycle
        self._chunked = True
        self._head = b""
        self._write = cycle.transport.write
        self.listener: Listener | None = None

    @property
    def full(self) -> bool:
        """Whether the client has not taken what was written."""
        return self._cycle.flow.write_paused and not self._cycle.disconnected

    def listen(self, listener: Listener) -> None:
        """Tell `listener` what the client does from now on."""
        self.listener = listener
        self._protocol.direct = self
        if self._cycle.disconnected:
            listener.gone()

    def start(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Send a status of 200 and the headers, together with what is written in the same step."""
        cycle = self._cycle
        if cycle.disconnected:
            return
        # Before HTTP/1.1 a body of unknown length ends with its connection.
        self._chunked = cycle.chunked_encoding = cycle.scope["http_version"] == "1.1"
        cycle.keep_alive = cycle.keep_alive and self._chunked
        cycle.response_started = True
        cycle.waiting_for_100_continue = False
        framing = b"transfer-encoding: chunked\r\n" if self._chunked else b""
        closing = b"" if cycle.keep_alive else b"connection: close\r\n"
        lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        self._head = STATUS_LINE[200] + lines + framing + closing + b"\r\n"
        self._protocol.loop.call_soon(self.send_head)

    def send_head(self) -> None:
        """Send the head now, if it waits."""
        head, self._head = self._head, b""
        if head and not self._cycle.disconnected:
            self._write(head)

    def write(self, data: bytes) -> None:
        """Send more of the body."""
        if self._cycle.disconnected:
            return
        if self._chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        if self._head:
            data, self._head = self._head + data, b""
        # Held by the object, not by its class: from a local name it is called without a search.
        write = self._write
        write(data)


class _HeadTooLarge(Exception):
    """Raised inside the parser, which then stops."""


class _BoundedHttp(HttpToolsProtocol):
    bounds: ClassVar[HttpBounds]

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._application = self.app
        self.app = self._served
        self._in_head = True
        self._head = 0
        self._deadline: asyncio.TimerHandle | None = None
        self.direct: DirectAnswer | None = None

    async def _served(self, scope: Scope, receive: Receive, send: Send) -> None:
        cycle = getattr(send, "__self__", None)
        if isinstance(cycle, RequestResponseCycle):
            scope.setdefault("extensions", {})[DIRECT] = DirectAnswer(self, cycle)
        try:
            await self._application(scope, receive, send)
        finally:
            if self.direct is not None:
                self.direct.listener = None
                self.direct = None
            self._leave_soon()

    # ------------------------------------------------------------------------------------------- a direct answer

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.direct is not None and self.direct.listener is not None:
            self.direct.listener.pause()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.direct is not None and self.direct.listener is not None:
            self.direct.listener.resume()

    # ------------------------------------------------------------------------------------------------- the head

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head += len(data)
        super().data_received(data)
        # Only a head that is still incomplete is counted here: a whole one may have its body in the same piece.
        if self._in_head and self._head > self.bounds.head_bytes:
            self._refuse(431, "The request's head is too large.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._await_request()

    def on_headers_complete(self) -> None:
        self._in_head, self._head = False, 0
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self.bounds.head_bytes or len(self.headers) > self.bounds.headers:
            raise _HeadTooLarge
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        size = len(self.url) if self.headers is not None else 0
        size += sum(len(name) + len(value) + 4 for name, value in self.headers or ())
        if size > self.bounds.head_bytes or len(self.headers or ()) > self.bounds.headers:
            self._refuse(431, "The request's head is too large.")
        else:
            self._refuse(400, "This is not a valid HTTP request.")

    def _refuse(self, status: int, message: str) -> None:
        if self.transport.is_closing():
            return
        body = msgspec.json.encode({"error": {"message": message, "type": "invalid_request_error", "code": None}})
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()
        self._leave_soon()

    # ------------------------------------------------------------------------------------------------- the clock

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_request()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._stop_clock()

    def handle_websocket_upgrade(self) -> None:
        self._stop_clock()
        super().handle_websocket_upgrade()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_clock()
        super().connection_lost(exc)
        if self.direct is not None and self.direct.listener is not None:
            self.direct.listener.gone()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._leave_soon()

    def _await_request(self) -> None:
        self._stop_clock()
        self._deadline = self.loop.call_later(self.bounds.request_s, self._too_slow)

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        if self._in_head and not self._head:
            # Nothing was asked, so nothing is answered.
            self.transport.close()
        elif self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.abort()
        else:
            self._refuse(408, "The request did not arrive in time.")

    def _leave_soon(self) -> None:
        if self.transport.get_write_buffer_size():
            self.loop.call_later(self.bounds.linger_s, self._leave)

    def _leave(self) -> None:
        # Closing waits for the peer to read; one that never does would keep its connection for ever.
        if self.transport.is_closing():
            self.transport.abort()


class _BoundedSocket(WebSocketsSansIOProtocol):
    bounds: ClassVar[HttpBounds]

    async def run_asgi(self) -> None:
        try:
            await super().run_asgi()
        finally:
            if self.transport.get_write_buffer_size():
                self.loop.call_later(self.bounds.linger_s, self.transport.abort)


def bounded_socket(bounds: HttpBounds) -> type[WebSocketsSansIOProtocol]:
    """The same for WebSockets."""
    return type("BoundedSocket", (_BoundedSocket,), {"bounds": bounds})


def bounded_http(bounds: HttpBounds) -> type[HttpToolsProtocol]:
    """A protocol for uvicorn that keeps these bounds."""
    return type("BoundedHttp", (_BoundedHttp,), {"bounds": bounds})
