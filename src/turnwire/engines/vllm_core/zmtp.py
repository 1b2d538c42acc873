"""ZMTP, the protocol of ZeroMQ's sockets, as one that listens speaks it: version 3, without security (NULL).

Promise: in whatever pieces the bytes come, the messages are the same, and all that one read completes are handed over
in one call; a large read is handed over in portions, with other work between them. A peer has said what it is within
a time and few bytes, or is sent away; a message, what waits to be written and the number of connections are bounded;
whatever breaks the protocol ends its own connection, with a word in the log, and no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias, cast

__all__ = ["WAITING", "Listener", "Peer", "Piece"]

log = logging.getLogger("turnwire.engines")

WAITING = 1 << 26
"""Bytes that may wait for a peer that does not read, before it is `full`."""
_INTRODUCTION_SECONDS = 10.0
"""How long a peer has to say what it is."""
_STRANGERS = 256
"""Connections that have not said yet what they are; the oldest makes room for another."""
_PEERS = 4096
_PORTION = 64 * 1024
"""What is taken from one connection before the others have their turn."""
_JOINED = 16 * 1024
"""Up to this size, bytes are joined to be written; longer ones are not copied."""

_MORE, _LONG, _COMMAND = 1, 2, 4
_FLAGS = frozenset({0, _MORE, _LONG, _LONG | _MORE, _COMMAND, _COMMAND | _LONG})
_FRAME_COST = 64
"""What a frame counts in a message's size besides its bytes, so that empty ones are bounded too."""
_COMMAND_MOST = 4096
_CONTEXT = slice(7, 23)
"""Where a PING has what its PONG repeats: behind the name and a time."""

_SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
_MECHANISM = b"NULL".ljust(20, b"\0")
_GREETING = (_SIGNATURE + b"\x03\x01" + _MECHANISM).ljust(64, b"\0")
_CONNECTS = {"ROUTER": b"DEALER", "PULL": b"PUSH"}
"""What may connect to a socket, as far as it is spoken here."""


Piece: TypeAlias = bytes | memoryview
"""Of a frame that is sent."""


class _ProtocolError(Exception):
    """What a peer said cannot be, or is not spoken here."""


class Listener:
    """A socket that peers connect to. `most` bounds a message's bytes; where `identity` is given, a peer's has so many.
    `joined` hears of each peer that has said what it is, `received` gets what it says, `left` is called once it is
    gone, unless the socket was closed before."""

    def __init__(
        self,
        kind: Literal["ROUTER", "PULL"],
        received: Callable[[Peer, list[list[bytes]]], None],
        *,
        most: int,
        identity: int | None = None,
        joined: Callable[[Peer], None] | None = None,
        left: Callable[[Peer], None] | None = None,
    ) -> None:
        self.peer_kind = _CONNECTS[kind]
        self.most = most
        self.identity = identity
        self.received = received
        ready = _property(b"Socket-Type", kind.encode())
        self.introduction = _GREETING + _framed(_COMMAND, b"\x05READY" + ready)
        self._joined = joined
        self._left = left
        self._place = ""
        self._server: asyncio.Server | None = None
        self._strangers: dict[_Stranger, None] = {}
        self._peers: set[Peer] = set()
        self._empty = asyncio.Event()
        self._closed = False
        self._complaint = ""

    async def open(self, host: str, port: int) -> None:
        """Bind and listen, or OSError."""
        self._place = f"{host}:{port}"
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self.meet, host, port)

    async def close(self, seconds: float) -> None:
        """Release the port. What was sent goes out first, as far as it does within the time."""
        if self._server is not None:
            self._server.close()
        self._closed = True
        self._left = None
        for stranger in tuple(self._strangers):
            stranger.drop()
        for peer in self._peers:
            peer.close()
        if self._peers:
            try:
                async with asyncio.timeout(seconds):
                    await self._empty.wait()
            except TimeoutError:
                for peer in self._peers:
                    peer.drop()

    def meet(self) -> asyncio.Protocol:
        """The protocol of a new connection."""
        return _Stranger(self)

    def met(self, stranger: _Stranger) -> None:
        """A connection begins."""
        if self._closed:
            stranger.drop()
            return
        if len(self._strangers) >= _STRANGERS:
            next(iter(self._strangers)).drop()
        self._strangers[stranger] = None

    def parted(self, stranger: _Stranger) -> None:
        """A connection is gone, or no stranger any more."""
        self._strangers.pop(stranger, None)

    def join(self, peer: Peer) -> None:
        """A peer has said what it is."""
        if len(self._peers) >= _PEERS:
            peer.drop("there are too many already")
            return
        self._peers.add(peer)
        self._empty.clear()
        self._complaint = ""
        if self._joined is not None:
            self._joined(peer)

    def leave(self, peer: Peer) -> None:
        """A peer is gone."""
        if peer not in self._peers:
            return
        self._peers.remove(peer)
        if not self._peers:
            self._empty.set()
        if self._left is not None:
            self._left(peer)

    def complain(self, words: str) -> None:
        """Say why a connection was ended; once only, where one comes again and again."""
        if words != self._complaint:
            self._complaint = words
            log.warning("%s: a connection was ended: %s", self._place, words)


class _Stranger(asyncio.Protocol):
    """A connection that has not said yet what it is."""

    _transport: asyncio.Transport

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._said = bytearray()
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        loop = asyncio.get_running_loop()
        self._late = loop.call_later(_INTRODUCTION_SECONDS, self.drop, "it did not say in time what it is")
        # Greeting and READY at once: nothing in them depends on what the other side says.
        self._transport.write(self._listener.introduction)
        self._listener.met(self)

    def data_received(self, data: bytes) -> None:
        self._said += data
        try:
            introduced = _introduced(self._said, self._listener.peer_kind, self._listener.identity)
        except _ProtocolError as error:
            self.drop(str(error))
            return
        if introduced is not None:
            identity, end = introduced
            self._part()
            peer = Peer(self._listener, self._transport, identity)
            self._transport.set_protocol(peer)
            self._listener.join(peer)
            if (rest := bytes(self._said[end:])) and not self._transport.is_closing():
                peer.data_received(rest)

    def connection_lost(self, error: Exception | None) -> None:
        self._part()

    def drop(self, words: str = "") -> None:
        """End the connection."""
        self._part()
        if words:
            self._listener.complain(words)
        self._transport.abort()

    def _part(self) -> None:
        self._listener.parted(self)
        if self._late is not None:
            self._late.cancel()


class Peer(asyncio.Protocol):
    """A connection to a peer that has said what it is. `full`: too much waits for it to read."""

    __slots__ = ("_frames", "_listener", "_most", "_received", "_rest", "_size", "_transport", "_wanted", "full",
                 "identity")  # fmt: skip

    def __init__(self, listener: Listener, transport: asyncio.Transport, identity: bytes) -> None:
        self.identity = identity
        self.full = False
        self._listener = listener
        self._received = listener.received
        self._most = listener.most
        self._transport = transport
        # The frame that has begun, and how many bytes are needed to go on with it.
        self._rest = bytearray()
        self._wanted = 0
        # The message that has begun.
        self._frames: list[bytes] = []
        self._size = 0
        transport.set_write_buffer_limits(WAITING)

    def send(self, *frames: Sequence[Piece]) -> None:
        """Write a message, of which each frame may be in pieces. Whoever sends looks first whether the peer is
        `full`."""
        written: list[Piece] = []
        more, total = len(frames), 0
        for pieces in frames:
            more -= 1
            size = sum(map(len, pieces))
            total += size
            written.append(_head(_MORE if more else 0, size))
            written += pieces
        if total <= _JOINED:
            self._transport.write(b"".join(written))
        else:
            self._transport.writelines(written)

    def drop(self, words: str = "") -> None:
        """End the connection at once."""
        if words:
            self._listener.complain(words)
        self._transport.abort()

    def close(self) -> None:
        """End the connection once everything is written."""
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        if len(data) > _PORTION:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._go_on, data[_PORTION:])
            data = data[:_PORTION]
        if self._rest:
            self._rest += data
            if len(self._rest) < self._wanted:
                return
            data = bytes(self._rest)
            self._rest.clear()
        messages: list[list[bytes]] = []
        try:
            self._read(data, messages)
        except _ProtocolError as error:
            self.drop(str(error))
        if messages:
            # Held by the object, not by its class: from a local name it is called without a search.
            received = self._received
            received(self, messages)

    def _go_on(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()
            try:
                self.data_received(data)
            except Exception:
                # As the event loop does where it made the call itself: what was not taken is lost.
                log.exception("a defect in whoever receives messages")
                self.drop()

    def _read(self, data: bytes, messages: list[list[bytes]]) -> None:
        """Take the frames apart; those of a message that is complete go to `messages`."""
        at, end = 0, len(data)
        while at < end:
            # As _frame says it, without a call.
            flags, start = data[at], at + 2
            if flags & _LONG:
                start = at + 9
                stop = start + int.from_bytes(data[at + 1 : start], "big") if start <= end else start
            else:
                stop = start + data[at + 1] if start <= end else start
            size = self._size + _FRAME_COST + stop - start
            if flags not in _FLAGS:
                raise _ProtocolError(f"a frame has the flags {flags:#x}")
            if size > self._most or (flags & _COMMAND and stop - start > _COMMAND_MOST):
                raise _ProtocolError("a message is too large")
            if stop > end:
                self._rest += data[at:]
                self._wanted = stop - at
                return
            body = data[start:stop]
            at = stop
            if flags & _COMMAND:
                self._obey(body)
                continue
            if flags & _MORE:
                self._frames.append(body)
                self._size = size
            elif self._frames:
                self._frames.append(body)
                messages.append(self._frames)
                self._frames = []
                self._size = 0
            else:
                messages.append([body])

    def _obey(self, command: bytes) -> None:
        name = _name(command)
        if name == b"ERROR":
            raise _ProtocolError(f"it says {command[7:263]!r}")
        if name == b"PING" and not self.full:
            self._transport.write(_framed(_COMMAND, b"\x04PONG" + command[_CONTEXT]))

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False

    def connection_lost(self, error: Exception | None) -> None:
        self._listener.leave(self)


def _head(flags: int, size: int) -> bytes:
    if size < 256:
        return bytes((flags, size))
    return bytes((flags | _LONG,)) + size.to_bytes(8, "big")


def _framed(flags: int, body: bytes) -> bytes:
    return _head(flags, len(body)) + body


def _frame(data: bytes | bytearray, at: int, end: int) -> tuple[int, int, int]:
    """The flags of the frame at a place, and where its body begins and ends: behind `end` where not all is there."""
    if end - at < 2:
        return 0, at, at + 2
    flags = data[at]
    if not flags & _LONG:
        return flags, at + 2, at + 2 + data[at + 1]
    start = at + 9
    if end < start:
        return flags, start, start
    return flags, start, start + int.from_bytes(data[at + 1 : start], "big")


def _name(command: bytes) -> bytes:
    """What a command is called."""
    size = command[0] if command else 0
    if not 0 < size < len(command):
        raise _ProtocolError("a command has no name")
    return command[1 : 1 + size]


def _property(name: bytes, value: bytes) -> bytes:
    return bytes((len(name),)) + name + len(value).to_bytes(4, "big") + value


def _introduced(said: bytearray, kind: bytes, size: int | None) -> tuple[bytes, int] | None:
    """The identity of a peer of this kind, of `size` bytes where one is wanted, and where its introduction ends; None
    while it is not complete."""
    if said[0] != 0xFF or (len(said) > 9 and not said[9] & 1):
        raise _ProtocolError("it does not speak ZMTP")
    if len(said) > 10 and said[10] < 3:
        raise _ProtocolError("it speaks an old version of ZMTP; 3.0 and later are understood")
    if len(said) < 64:
        return None
    if said[12:32] != _MECHANISM:
        raise _ProtocolError(f"it wants the mechanism {bytes(said[12:32]).rstrip(bytes(1))!r}; NULL is offered")
    flags, start, stop = _frame(said, 64, len(said))
    if flags not in (_COMMAND, _COMMAND | _LONG) and len(said) > 65:
        raise _ProtocolError("it does not say what it is")
    if stop - start > _COMMAND_MOST:
        raise _ProtocolError("a command is too large")
    if stop > len(said):
        return None
    command = bytes(said[start:stop])
    if _name(command) != b"READY":
        raise _ProtocolError(f"it begins with {_name(command)!r}")
    properties = _properties(command[6:])
    if (told := properties.get(b"socket-type")) != kind:
        raise _ProtocolError(f"it is a socket of type {told!r}; {kind!r} is expected")
    identity = properties.get(b"identity", b"")
    if size is not None and len(identity) != size:
        raise _ProtocolError(f"its identity has {len(identity)} bytes; {size} are expected")
    return identity, stop


def _properties(told: bytes) -> Mapping[bytes, bytes]:
    """What a READY says, by names in lower case."""
    found = {}
    at = 0
    while at < len(told):
        middle = at + 1 + told[at]
        end = middle + 4 + int.from_bytes(told[middle : middle + 4], "big")
        if end > len(told):
            raise _ProtocolError("its properties cannot be read")
        found[told[at + 1 : middle].lower()] = told[middle + 4 : end]
        at = end
    return found
