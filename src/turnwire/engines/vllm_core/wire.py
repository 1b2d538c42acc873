"""The sockets of a frontend of engine cores: handshake, requests out, outputs in, and who is still there.

Promise: three ports from the given one on are bound and stay bound, so engines may come before us, after us, and again.
Every output that one wake-up finds is handed over in one call. No heartbeat runs on this wire: a lost connection is
noticed by the sockets themselves, and a request to an engine that is gone is refused instead of queued.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol
from urllib.parse import urlsplit

import msgspec
import zmq

from turnwire.engines.interface import EngineError
from turnwire.engines.vllm_core.layouts import ABORT, Hello, Ready

__all__ = ["CoreWire", "Owner", "identity"]

log = logging.getLogger("turnwire.engines")

_AT_ONCE = 64
"""Messages read in one wake-up, before other work gets its turn."""
_QUEUE = 4096
"""Requests that may wait for an engine that does not read."""
_LINGER = 200
"""Milliseconds that a closed socket takes at most to send what is left."""
_SECOND_LOOKS = (0.05, 0.3)
"""Seconds after which a lost connection is looked at again: the sockets learn of it a little later."""

_encode = msgspec.msgpack.Encoder().encode
_HELLO = msgspec.msgpack.Decoder(Hello)
_READY = msgspec.msgpack.Decoder(Ready)
_NOTHING = _encode([])


class Owner(Protocol):
    """Who uses the wire. All calls come from the event loop."""

    def greeted(self, rank: int) -> None:
        """An engine process began: an earlier one of this rank is gone."""
        ...

    def ready(self, rank: int, told: Ready) -> None:
        """An engine has loaded its model."""
        ...

    def refused(self, error: EngineError) -> None:
        """An engine cannot be used."""
        ...

    def messages(self, messages: Sequence[list[bytes]]) -> None:
        """All messages of a wake-up, each as its frames."""
        ...

    def broken(self, ranks: Sequence[int] | None) -> None:
        """Connections to these engines are gone; None: to one of them, and all can be reached again."""
        ...


def identity(rank: int) -> bytes:
    """By what name the engine of a rank connects."""
    return rank.to_bytes(2, "little")


class CoreWire:
    """The three sockets at `address` (tcp://HOST:PORT): PORT is the handshake, then requests, then outputs."""

    def __init__(self, address: str, owner: Owner) -> None:
        parts = urlsplit(address)
        host, port = parts.hostname or "127.0.0.1", parts.port or 0
        shown = f"[{host}]" if ":" in host else host
        self._places = [f"tcp://{shown}:{port + step}" for step in range(3)]
        self._owner = owner
        self._context = zmq.Context()
        self._context.setsockopt(zmq.LINGER, _LINGER)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._readers: list[tuple[int, zmq.SyncSocket]] = []
        self._ranks: set[int] = set()
        self._look_again: asyncio.TimerHandle | None = None
        self._unexplained = 0

    # ----------------------------------------------------------------------------------------------- life

    def open(self) -> None:
        """Bind and listen, or EngineError."""
        self._loop = asyncio.get_running_loop()
        self._socket(zmq.ROUTER, self._places[0], self._read_handshake)
        self._requests = self._socket(zmq.ROUTER, self._places[1], self._read_ready)
        outputs = self._socket(zmq.PULL, self._places[2], self._read_outputs)
        self._monitor(self._requests)
        self._monitor(outputs)

    async def close(self) -> None:
        """Release the ports; what was sent goes out first."""
        self._shut()
        await asyncio.to_thread(self._context.term)

    def _shut(self) -> None:
        loop, self._loop = self._loop, None
        if self._look_again is not None:
            self._look_again.cancel()
        for fd, socket in self._readers:
            if loop is not None:
                loop.remove_reader(fd)
            socket.close()
        self._readers.clear()

    @property
    def is_open(self) -> bool:
        return self._loop is not None

    def _socket(self, kind: int, place: str, read: Callable[[zmq.SyncSocket], None]) -> zmq.SyncSocket:
        socket = self._context.socket(kind)
        self._watch(socket, partial(read, socket))
        socket.setsockopt(zmq.SNDHWM, _QUEUE)
        socket.setsockopt(zmq.IPV6, "[" in place)
        if kind == zmq.ROUTER:
            socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
            # An engine that comes back does so under the name it had.
            socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        try:
            socket.bind(place)
        except zmq.ZMQError as error:
            self._shut()
            raise EngineError(
                "unreachable", f"{place} cannot be bound ({error.strerror}); choose another port"
            ) from error
        return socket

    def _monitor(self, socket: zmq.SyncSocket) -> None:
        monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._watch(monitor, partial(self._read_monitor, monitor))

    def _watch(self, socket: zmq.SyncSocket, read: Callable[[], None]) -> None:
        assert self._loop is not None
        fd = socket.getsockopt(zmq.FD)
        assert isinstance(fd, int)
        self._readers.append((fd, socket))
        self._loop.add_reader(fd, read)
        # A socket gives notice only after it was once found empty.
        self._loop.call_soon(read)

    # -------------------------------------------------------------------------------------------- sending

    def send(self, rank: int, kind: bytes, message: object) -> None:
        """Send a request to an engine, or EngineError where it is gone or does not read."""
        if self._loop is None:
            raise EngineError("unreachable", "the engine is not running")
        try:
            self._requests.send_multipart((identity(rank), kind, _encode(message)), zmq.NOBLOCK, copy=True)
        except zmq.Again:
            raise EngineError("overloaded", f"{_QUEUE} requests wait for vLLM to read them", retry_after=2) from None
        except zmq.ZMQError as error:
            raise EngineError("unreachable", f"the engine core is gone ({error.strerror})") from error
        # Sending may swallow the notice that something came in.
        self._again(self._requests, self._read_ready)

    def reaches(self, rank: int) -> bool:
        """Whether a connection to this engine is open; asked by a request that changes nothing."""
        try:
            self.send(rank, ABORT, [])
        except EngineError as error:
            return error.kind == "overloaded"
        return True

    def expect(self, rank: int) -> None:
        """Watch this engine's connection from now on."""
        self._ranks.add(rank)

    # ------------------------------------------------------------------------------------------- reading

    def _again(self, socket: zmq.SyncSocket, read: Callable[[zmq.SyncSocket], None]) -> None:
        if self._loop is not None and int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            self._loop.call_soon(read, socket)

    def _received(self, socket: zmq.SyncSocket) -> list[list[bytes]]:
        """What is there, up to a bound; more is asked for again soon."""
        found: list[list[bytes]] = []
        if self._loop is None:
            return found
        try:
            while len(found) < _AT_ONCE:
                found.append(socket.recv_multipart(zmq.NOBLOCK))
        except zmq.Again:
            pass
        return found

    def _read_handshake(self, hands: zmq.SyncSocket) -> None:
        for sender, *rest in self._received(hands):
            try:
                told = _HELLO.decode(rest[-1] if rest else b"")
            except msgspec.DecodeError:
                log.warning("a message on %s that is not an engine core's was passed over", self._places[0])
                continue
            if told.parallel_config_hash:
                self._owner.refused(
                    EngineError(
                        "invalid_request",
                        "the engine cores want a data-parallel coordinator, which is not offered here; "
                        "start each as a core of its own, or use vllm:http://HOST:PORT",
                    )
                )
            elif told.status == "HELLO":
                self._greet(hands, sender)
        self._again(hands, self._read_handshake)

    def _greet(self, hands: zmq.SyncSocket, sender: bytes) -> None:
        self._owner.greeted(int.from_bytes(sender, "little"))
        addresses = {"inputs": [self._places[1]], "outputs": [self._places[2]]}
        try:
            hands.send_multipart((sender, _encode({"addresses": addresses, "parallel_config": {}})), zmq.NOBLOCK)
        except zmq.ZMQError as error:
            log.warning("an engine core left during the handshake (%s)", error.strerror)

    def _read_ready(self, requests: zmq.SyncSocket) -> None:
        for sender, *rest in self._received(requests):
            try:
                told = _READY.decode(rest[-1] if rest else b"")
            except msgspec.DecodeError as error:
                self._owner.refused(
                    EngineError("invalid_request", f"an engine core's start message cannot be read: {error}")
                )
                continue
            self._owner.ready(int.from_bytes(sender, "little"), told)
        self._again(requests, self._read_ready)

    def _read_outputs(self, outputs: zmq.SyncSocket) -> None:
        messages = self._received(outputs)
        if messages:
            if len(messages) == _AT_ONCE and self._loop is not None:
                self._loop.call_soon(self._read_outputs, outputs)
            self._owner.messages(messages)

    def _read_monitor(self, monitor: zmq.SyncSocket) -> None:
        events = self._received(monitor)
        if events:
            self._unexplained += len(events)
            self._look(_SECOND_LOOKS)

    def _look(self, again: Sequence[float]) -> None:
        """Say which engines are gone, as soon as the sockets know. Each had two connections."""
        if self._loop is None:
            return
        if self._look_again is not None:
            self._look_again.cancel()
            self._look_again = None
        gone = [rank for rank in self._ranks if not self.reaches(rank)]
        if gone:
            self._ranks.difference_update(gone)
            self._unexplained -= 2 * len(gone)
            self._owner.broken(gone)
        if not self._ranks:
            self._unexplained = 0
        elif again:
            self._look_again = self._loop.call_later(again[0], self._look, again[1:])
        else:
            lost, self._unexplained = self._unexplained > 0, 0
            if lost:
                self._owner.broken(None)
