"""The socket on which an engine publishes what its cache holds, and the one it is asked for what was missed.

Promise: what arrives reaches the index in order, from the event loop, some messages at a time; a lost connection clears
what was known of that engine at once. An engine whose messages cannot be read is as one that publishes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import zmq

from turnwire.engines.kv_source import KVSource
from turnwire.engines.pool.kv_events import KVEvent, KVFeed
from turnwire.engines.pool.kv_index import KVIndex
from turnwire.unreadable import UNREADABLE

__all__ = ["KVSubscriber"]

log = logging.getLogger("turnwire.workers")

_AT_ONCE = 64
_REPLAY_SECONDS = 5.0
_END = b"\xff" * 8
_QUEUE = 100_000


class KVSubscriber:
    """The subscription to one engine's events, kept in `index` under `name`. `lost` is called when the connection
    breaks, which no engine that goes on running does."""

    def __init__(self, source: KVSource, index: KVIndex, name: str, lost: Callable[[], None] | None = None) -> None:
        self._source = source
        self._index = index
        self._lost = lost
        self.name = name
        self._feed = KVFeed(self, replays=source.replay is not None)
        self._context: zmq.SyncContext | None = None
        self._readers: dict[zmq.SyncSocket, int] = {}
        self._asking: zmq.SyncSocket | None = None
        self._asked = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._unread = False

    @property
    def complete(self) -> bool:
        """Whether what the index does not hold is not held."""
        return self._feed.complete and not self._unread

    def open(self) -> bool:
        """Subscribe; False where the address cannot be used, and the log says why."""
        self._loop = asyncio.get_running_loop()
        self._context = zmq.Context()
        self._context.setsockopt(zmq.LINGER, 0)
        self._index.join(self.name)
        socket = self._context.socket(zmq.SUB)
        socket.setsockopt(zmq.RCVHWM, _QUEUE)
        socket.setsockopt(zmq.SUBSCRIBE, self._source.topic.encode())
        monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._watch(socket, self._read)
        self._watch(monitor, self._read_monitor)
        try:
            if self._source.connects:
                socket.bind(self._source.endpoint)
            else:
                socket.connect(self._source.endpoint)
        except zmq.ZMQError as error:
            log.warning("%s: no KV events from %s (%s)", self.name, self._source.endpoint, error.strerror)
            return False
        self._ask()
        return True

    async def close(self) -> None:
        """Unsubscribe, and forget what was known."""
        context, self._context = self._context, None
        if context is None:
            return
        for socket in tuple(self._readers):
            self._drop(socket)
        if self._deadline is not None:
            self._deadline.cancel()
        self._index.leave(self.name)
        await asyncio.to_thread(context.term)

    # ---------------------------------------------------------------------------------------------------- the sink

    def apply(self, events: Sequence[KVEvent]) -> None:
        """Events in order, for the index."""
        self._index.apply(self.name, events)

    def clear(self) -> None:
        """Nothing is known any more."""
        self._index.clear(self.name)

    def gone(self) -> None:
        """The worker is gone, by whoever noticed it."""
        if self._context is not None:
            self._feed.lost()

    # ----------------------------------------------------------------------------------------------------- sockets

    def _watch(self, socket: zmq.SyncSocket, read: object) -> None:
        fd = int(socket.getsockopt(zmq.FD))
        self._readers[socket] = fd
        self._loop.add_reader(fd, read, socket)  # type: ignore[arg-type]
        # A socket gives notice only after it was once found empty.
        self._loop.call_soon(read, socket)  # type: ignore[arg-type]

    def _drop(self, socket: zmq.SyncSocket) -> None:
        self._loop.remove_reader(self._readers.pop(socket))
        socket.close()

    def _received(self, socket: zmq.SyncSocket) -> list[list[bytes]]:
        found: list[list[bytes]] = []
        if socket in self._readers:
            try:
                while len(found) < _AT_ONCE:
                    found.append(socket.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                pass
        return found

    def _read(self, socket: zmq.SyncSocket) -> None:
        messages = self._received(socket)
        if len(messages) == _AT_ONCE:
            self._loop.call_soon(self._read, socket)
        for frames in messages:
            if len(frames) == 3 and len(frames[1]) == 8:
                self._take(int.from_bytes(frames[1], "big"), frames[2], live=True)
        if messages:
            self._ask()

    def _read_monitor(self, monitor: zmq.SyncSocket) -> None:
        if self._received(monitor):
            self._unread = False
            self._feed.lost()
            if self._lost is not None:
                self._lost()
            self._ask()

    def _take(self, number: int, payload: bytes, *, live: bool) -> None:
        try:
            (self._feed.live if live else self._feed.replayed)(number, payload)
        except (*UNREADABLE, OverflowError, TypeError) as error:
            self._feed.lost()
            if not self._unread:
                self._unread = True
                log.warning("%s: its KV events cannot be read (%s); what it holds is estimated", self.name, error)

    # ------------------------------------------------------------------------------------------------------ replay

    def _ask(self) -> None:
        """Ask for what is missing, one question at a time."""
        start, place = self._feed.wanted, self._source.replay
        if start is None or place is None or self._context is None:
            return
        if self._asking is not None:
            if start >= self._asked:
                return
            # The engine began anew while it was asked.
            self._stop_asking()
        self._asked = start
        self._asking = self._context.socket(zmq.DEALER)
        self._asking.connect(place)
        self._asking.send_multipart((b"", start.to_bytes(8, "big")))
        self._watch(self._asking, self._read_replay)
        self._deadline = self._loop.call_later(_REPLAY_SECONDS, self._answered, False)

    def _read_replay(self, socket: zmq.SyncSocket) -> None:
        messages = self._received(socket)
        if len(messages) == _AT_ONCE:
            self._loop.call_soon(self._read_replay, socket)
        for frames in messages:
            if len(frames) != 4 or frames[2] == _END:
                self._answered()
                return
            self._take(int.from_bytes(frames[2], "big"), frames[3], live=False)

    def _stop_asking(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        if self._asking is not None:
            self._drop(self._asking)
            self._asking = None

    def _answered(self, came: bool = True) -> None:
        """The replay is over, or never came."""
        self._stop_asking()
        try:
            self._feed.replay_over(came=came)
        except (*UNREADABLE, OverflowError, TypeError):
            self._feed.lost()
            return
        self._ask()
