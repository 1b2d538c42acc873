"""The sockets of a frontend of engine cores: handshake, requests out, outputs in, and who is still there.

Promise: three ports from the given one on are bound and stay bound, so engines may come before us, after us, and again.
All outputs that one read completes are handed over in one call. No heartbeat runs on this wire: a lost connection is
said at once, and a request to an engine that is gone, or that does not read, is refused instead of queued.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from turnwire.engines.interface import EngineError
from turnwire.engines.vllm_core.layouts import Hello, Ready
from turnwire.engines.vllm_core.zmtp import WAITING, Listener, Peer, Piece
from turnwire.unreadable import UNREADABLE

__all__ = ["CoreWire", "Owner"]

log = logging.getLogger("turnwire.engines")

_LINGER = 0.2
"""Seconds that closing takes at most to send what is left."""
_TOLD = 1 << 20
"""Bytes of a message about an engine itself."""
_OUTPUTS = 1 << 26
"""Bytes of a step's outputs. The log probabilities of a whole vocabulary are a few million."""
_RANK_BYTES = 2
"""An engine connects under its rank in so many bytes, the low one first."""

_encode = msgspec.msgpack.Encoder().encode
_HELLO = msgspec.msgpack.Decoder(Hello)
_READY = msgspec.msgpack.Decoder(Ready)


class Owner(Protocol):
    """Who uses the wire. All calls come from the event loop."""

    def greeted(self, rank: int) -> None:
        """An engine process began: an earlier one of this rank is gone."""
        ...

    def connected(self, rank: int) -> None:
        """Requests reach this engine from now on; on a connection that it had before, some may have been lost."""
        ...

    def ready(self, rank: int, told: Ready) -> None:
        """An engine has loaded its model."""
        ...

    def refused(self, error: EngineError) -> None:
        """An engine cannot be used."""
        ...

    def messages(self, link: Peer, messages: Sequence[list[bytes]]) -> None:
        """Messages that came together on the connection of an engine's outputs, each as its frames."""
        ...

    def gone(self, rank: int) -> None:
        """Requests do not reach this engine any more."""
        ...

    def unlinked(self, link: Peer) -> None:
        """A connection of outputs is gone."""
        ...


class CoreWire:
    """The three sockets at `address` (tcp://HOST:PORT): PORT is the handshake, then requests, then outputs."""

    def __init__(self, address: str, owner: Owner) -> None:
        parts = urlsplit(address)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 0
        shown = f"[{self._host}]" if ":" in self._host else self._host
        self._places = [f"tcp://{shown}:{self._port + step}" for step in range(3)]
        self._owner = owner
        self._listeners: tuple[Listener, ...] = ()
        self._engines: dict[int, Peer] = {}

    # ----------------------------------------------------------------------------------------------- life

    async def open(self) -> None:
        """Bind and listen, or EngineError."""
        self._listeners = (
            Listener("ROUTER", self._read_handshake, most=_TOLD, identity=_RANK_BYTES),
            Listener(
                "ROUTER", self._read_ready, most=_TOLD, identity=_RANK_BYTES, joined=self._joined, left=self._left
            ),
            Listener("PULL", self._owner.messages, most=_OUTPUTS, left=self._owner.unlinked),
        )
        for step, listener in enumerate(self._listeners):
            try:
                await listener.open(self._host, self._port + step)
            except OSError as error:
                await self.close()
                raise EngineError(
                    "unreachable", f"{self._places[step]} cannot be bound ({error.strerror}); choose another port"
                ) from error

    async def close(self) -> None:
        """Release the ports; what was sent goes out first."""
        listeners, self._listeners = self._listeners, ()
        self._engines.clear()
        await asyncio.gather(*(listener.close(_LINGER) for listener in listeners))

    @property
    def is_open(self) -> bool:
        return bool(self._listeners)

    # -------------------------------------------------------------------------------------------- requests

    def send(self, rank: int, kind: bytes, pieces: Sequence[Piece], *, owed: bool = False) -> None:
        """Send a request, packed and in pieces, to an engine, or EngineError where it is gone or does not read. What is
        `owed`, the abort of a request that was sent, waits for one that does not: there are no more of them than
        requests."""
        peer = self._engines.get(rank)
        if peer is None:
            raise EngineError("unreachable", "the engine core is not connected")
        if peer.full and not owed:
            raise EngineError("overloaded", f"{WAITING >> 20} MiB of requests wait for vLLM to read", retry_after=2)
        peer.send((kind,), pieces)

    def _joined(self, peer: Peer) -> None:
        rank = _rank(peer)
        before = self._engines.get(rank)
        self._engines[rank] = peer
        if before is not None:
            before.drop()
        self._owner.connected(rank)

    def _left(self, peer: Peer) -> None:
        rank = _rank(peer)
        if self._engines.get(rank) is peer:
            del self._engines[rank]
            self._owner.gone(rank)

    def _read_ready(self, peer: Peer, messages: Sequence[list[bytes]]) -> None:
        for message in messages:
            try:
                told = _READY.decode(message[-1])
            except UNREADABLE as error:
                self._owner.refused(
                    EngineError("invalid_request", f"an engine core's start message cannot be read: {error}")
                )
                continue
            self._owner.ready(_rank(peer), told)

    # ------------------------------------------------------------------------------------------- handshake

    def _read_handshake(self, peer: Peer, messages: Sequence[list[bytes]]) -> None:
        for message in messages:
            try:
                told = _HELLO.decode(message[-1])
            except UNREADABLE:
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
                self._owner.greeted(_rank(peer))
                addresses = {"inputs": [self._places[1]], "outputs": [self._places[2]]}
                peer.send((_encode({"addresses": addresses, "parallel_config": {}}),))


def _rank(peer: Peer) -> int:
    return int.from_bytes(peer.identity, "little")
