"""A client's WebSocket, as uvicorn's server speaks it, within bounds.

Promise: what a peer that does not read is owed for its pings, and the pieces of one message, are bounded; a peer that
takes nothing more is gone a while after its connection closed. Nothing is read, or unpacked, beyond the message that
the application has not asked for; that a peer leaves meanwhile is noticed all the same, and one that stays is not cut
off as dead. This leans on parts of uvicorn that are not its public interface, so its version is pinned.
"""

from __future__ import annotations

import asyncio
import select
from collections import deque
from typing import Any, ClassVar

from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from turnwire.gateway.door.bounds import HttpBounds, see_off

__all__ = ["LEFT", "bounded_socket"]

LEFT = "turnwire.left"
"""The scope's extension that tells, by an event, that the client is gone: also while nothing is asked of it."""

_FRAGMENTS = 65_536
"""Pieces that a WebSocket's message may come in; each of them takes memory, also an empty one."""

_PIECE = 4096
"""How much is looked at in one step: packed, it may be a thousand times as large."""

_LOOK_S = 1.0
"""How often a peer that is not read is looked for."""


def _has_left(transport: asyncio.Transport) -> bool:
    """Whether the peer's end of the connection is closed, whatever lies unread before that end."""
    peer = transport.get_extra_info("socket")
    if peer is None or not hasattr(select, "poll"):
        return False
    poll = select.poll()
    # Elsewhere than on Linux only a connection that is closed in both directions is told of.
    poll.register(peer.fileno(), getattr(select, "POLLRDHUP", 0))
    return bool(poll.poll(0))


class _BoundedSocket(WebSocketsSansIOProtocol):
    bounds: ClassVar[HttpBounds]
    # What a peer that does not read is still owed for its pings.
    _pong = b""
    # Whether anything came since the last ping, and what was still to be sent then.
    _heard = False
    _owed = 0
    _looks: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._left = asyncio.Event()
        # What was received behind the message that the application has not asked for.
        self._unread: deque[bytes] = deque()
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unread.clear()
        if self._looks is not None:
            self._looks.cancel()
        self._left.set()

    # --------------------------------------------------------------------------------------------------- reading

    def data_received(self, data: bytes) -> None:
        self._heard = True
        self._unread.extend(data[start : start + _PIECE] for start in range(0, len(data), _PIECE))
        self._read_on()

    def _read_on(self) -> None:
        while self._unread and not self.read_paused and not self.transport.is_closing():
            super().data_received(self._unread.popleft())

    async def receive(self) -> ASGIReceiveEvent:
        if self.read_paused and self.queue.empty():
            self.read_paused, self._heard = False, True
            self._read_on()
            if not self.read_paused and not self.transport.is_closing():
                self.transport.resume_reading()
        return await self.queue.get()

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if self.close_sent:
            # Nothing is asked for any more, and the peer's answer to that may be here.
            self._read_on()

    def send_receive_event_to_app(self) -> None:
        super().send_receive_event_to_app()
        if self.read_paused and self._looks is None:
            self._looks = self.loop.call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        """The end of what a peer sends is not seen while nothing is read."""
        self._looks = None
        if not self.read_paused or self.transport.is_closing():
            return
        if _has_left(self.transport):
            # Over TLS it may take a while until it is closed.
            self._left.set()
            self.transport.close()
            self._closes()
        else:
            self._looks = self.loop.call_later(_LOOK_S, self._look)

    def handle_text(self, event: Frame) -> None:
        super().handle_text(event)
        # The parser keeps the last frame until there is another.
        event.data = b""

    def handle_bytes(self, event: Frame) -> None:
        super().handle_bytes(event)
        event.data = b""

    def handle_cont(self, event: Frame) -> None:
        if self.close_sent:
            return
        if len(self.frames) < _FRAGMENTS:
            super().handle_cont(event)
            event.data = b""
        else:
            self.frames = []
            self.conn.fail(1009, "too many fragments")
            self.handle_parser_exception()

    # ----------------------------------------------------------------------------------------------------- pings

    def send_keepalive_ping(self) -> None:
        super().send_keepalive_ping()
        self._heard = False
        self._owed = self.transport.get_write_buffer_size()

    def keepalive_timeout(self) -> None:
        takes = self.writable.is_set() or self.transport.get_write_buffer_size() != self._owed
        if takes and (self.read_paused or self._heard):
            # The answer may lie behind what is not read yet.
            self.pong_timer = None
            self.schedule_ping()
            return
        super().keepalive_timeout()
        self._closes()

    def handle_ping(self) -> None:
        if self.writable.is_set():
            super().handle_ping()
        elif answer := b"".join(self.conn.data_to_send()):
            # Of the pings without an answer only the last one needs any.
            self._pong = answer

    def resume_writing(self) -> None:
        super().resume_writing()
        pong, self._pong = self._pong, b""
        if pong:
            self.transport.write(pong)

    # --------------------------------------------------------------------------------------------------- the end

    def eof_received(self) -> None:
        super().eof_received()
        see_off(self.transport, self.loop, self.bounds.linger_s)

    def handle_parser_exception(self) -> None:
        if self.conn.close_sent is not None:
            super().handle_parser_exception()
            self._closes()
        elif self.handshake_initiated:
            # There is no frame to say it in before the handshake is answered.
            self.transport.close()

    def handle_close(self, event: Frame) -> None:
        super().handle_close(event)
        self._closes()

    def shutdown(self) -> None:
        super().shutdown()
        self._closes()

    def _closes(self) -> None:
        """The application may still wait until the peer reads."""
        if self.transport.is_closing():
            see_off(self.transport, self.loop, self.bounds.linger_s)

    async def run_asgi(self) -> None:
        scope: Any = self.scope
        scope["extensions"][LEFT] = self._left
        try:
            await super().run_asgi()
        finally:
            see_off(self.transport, self.loop, self.bounds.linger_s)


def bounded_socket(bounds: HttpBounds) -> type[WebSocketsSansIOProtocol]:
    """A WebSocket protocol for uvicorn that keeps these bounds."""
    return type("BoundedSocket", (_BoundedSocket,), {"bounds": bounds})
