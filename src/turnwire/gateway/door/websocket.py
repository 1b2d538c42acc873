"""A client's WebSocket, as uvicorn's server speaks it, within bounds.

Promise: what a peer that does not read is owed for its pings, and the pieces of one message, are bounded; a peer that
takes nothing more is gone a while after its connection closed. This leans on parts of uvicorn that are not its public
interface, so its version is pinned.
"""

from __future__ import annotations

from typing import ClassVar

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from turnwire.gateway.door.bounds import HttpBounds, see_off

__all__ = ["bounded_socket"]

_FRAGMENTS = 65_536
"""Pieces that a WebSocket's message may come in; each of them takes memory, also an empty one."""


class _BoundedSocket(WebSocketsSansIOProtocol):
    bounds: ClassVar[HttpBounds]
    # What a peer that does not read is still owed for its pings.
    _pong = b""

    def eof_received(self) -> None:
        super().eof_received()
        see_off(self.transport, self.loop, self.bounds.linger_s)

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

    def handle_cont(self, event: Frame) -> None:
        if self.close_sent:
            return
        if len(self.frames) < _FRAGMENTS:
            super().handle_cont(event)
        else:
            self.frames = []
            self.conn.fail(1009, "too many fragments")
            self.handle_parser_exception()

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

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self._closes()

    def shutdown(self) -> None:
        super().shutdown()
        self._closes()

    def _closes(self) -> None:
        """The application may still wait until the peer reads."""
        if self.transport.is_closing():
            see_off(self.transport, self.loop, self.bounds.linger_s)

    async def run_asgi(self) -> None:
        try:
            await super().run_asgi()
        finally:
            see_off(self.transport, self.loop, self.bounds.linger_s)


def bounded_socket(bounds: HttpBounds) -> type[WebSocketsSansIOProtocol]:
    """A WebSocket protocol for uvicorn that keeps these bounds."""
    return type("BoundedSocket", (_BoundedSocket,), {"bounds": bounds})
