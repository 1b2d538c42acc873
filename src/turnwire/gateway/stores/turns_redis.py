"""The turn store in Redis, so that replicas find the turns that another one served.

Promise: `put` never waits for the network, and `get` waits for it only where this process does not have the turn, and
never long. What Redis holds is encrypted under the seal key and bound to its place, its keys are digests, and it leaves
by age. A Redis that is gone costs turns, not requests, and is asked again after a pause.
"""

from __future__ import annotations

import logging
import queue
import sys
import time
import zlib
from array import array
from collections.abc import Callable, Sequence
from hashlib import blake2b
from threading import Thread
from typing import Any

import msgspec

from turnwire.gateway.stores.store import StoreError
from turnwire.prompts.recall.seals import Sealer
from turnwire.prompts.recall.store import MemoryTurnStore, StoredTurn

__all__ = ["RedisTurnStore"]

log = logging.getLogger("turnwire.turnstore")

_SAME_KEY = 4
_WAITING = 4096
_MOST_BYTES = 32 * 1024 * 1024


class _Record(msgspec.Struct, frozen=True, array_like=True):
    """A turn as Redis holds it; ids are little-endian, four bytes each."""

    ids: bytes
    text: bytes
    shape: bytes
    tail: str | None


_DECODER = msgspec.msgpack.Decoder(_Record)


class RedisTurnStore:
    """Turns shared by several gateways, with the newest of this one in memory before them. One thread writes; any
    thread reads."""

    # How long a read may take, and how long a Redis that failed is left alone, in seconds.
    READ_S = 0.2
    PAUSE_S = 5.0

    waits = True

    def __init__(
        self,
        url: str,
        sealer: Sealer,
        *,
        age: float = 7 * 24 * 3600,
        memory_bytes: int = 64 * 1024 * 1024,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        try:
            import redis
        except ImportError:
            raise StoreError("A Redis store needs the `redis` package: pip install 'turnwire[redis]'") from None
        self._failures: tuple[type[Exception], ...] = (redis.RedisError, OSError)
        self._redis: Any = redis.Redis.from_url(
            url, socket_timeout=self.READ_S, socket_connect_timeout=self.READ_S, decode_responses=False
        )
        self._sealer = sealer
        self._age = max(1, int(age))
        self._recent = MemoryTurnStore(max_bytes=memory_bytes)
        self._clock = clock
        self._paused_until = 0.0
        self._todo: queue.Queue[tuple[str, tuple[str, ...], StoredTurn] | None] = queue.Queue(_WAITING)
        self._writer = Thread(target=self._write_all, name="turnstore", daemon=True)
        self._writer.start()

    def put(self, space: str, keys: Sequence[str], turn: StoredTurn) -> None:
        if not keys or turn.size > _MOST_BYTES:
            return
        self._recent.put(space, keys, turn)
        try:
            self._todo.put_nowait((space, tuple(keys), turn))
        except queue.Full:
            log.warning("Redis is too slow for the turn store; a turn is kept in memory only")

    def get(self, space: str, key: str) -> tuple[StoredTurn, ...]:
        found = self._recent.get(space, key)
        if found or self._clock() < self._paused_until:
            return found
        try:
            held: list[bytes] = self._redis.lrange(_name(space, key), 0, _SAME_KEY - 1)
        except self._failures as error:
            self._pause(error)
            return ()
        turns = [self._turn(value, _name(space, key)) for value in held]
        return tuple(turn for turn in turns if turn is not None)

    def close(self) -> None:
        """Write what is waiting and close the connection."""
        if self._writer.is_alive():
            self._todo.put(None)
            self._writer.join()
        self._redis.close()

    def _pause(self, error: Exception) -> None:
        self._paused_until = self._clock() + self.PAUSE_S
        log.warning("the turn store's Redis does not answer, it is left alone for %g s: %s", self.PAUSE_S, error)

    def _write_all(self) -> None:
        while (item := self._todo.get()) is not None:
            if self._clock() < self._paused_until:
                continue
            try:
                self._write(*item)
            except self._failures as error:
                self._pause(error)

    def _write(self, space: str, keys: tuple[str, ...], turn: StoredTurn) -> None:
        record = _Record(_bytes(turn.ids), turn.text.encode("utf-8", "surrogatepass"), turn.shape, turn.tail)
        packed = zlib.compress(msgspec.msgpack.encode(record), 1)
        with self._redis.pipeline(transaction=False) as pipe:
            for key in keys:
                name = _name(space, key)
                pipe.lpush(name, self._sealer.encrypted(packed, name))
                pipe.ltrim(name, 0, _SAME_KEY - 1)
                pipe.expire(name, self._age)
            pipe.execute()

    def _turn(self, value: bytes, name: str) -> StoredTurn | None:
        packed = self._sealer.decrypted(value, name)
        if packed is None:
            return None
        try:
            stream = zlib.decompressobj()
            record = _DECODER.decode(stream.decompress(packed, _MOST_BYTES))
            ids: array[int] = array("I")
            ids.frombytes(record.ids)
            text = record.text.decode("utf-8", "surrogatepass")
        except (zlib.error, msgspec.MsgspecError, ValueError):
            return None
        if sys.byteorder == "big":
            ids.byteswap()
        return StoredTurn(ids=ids, text=text, shape=record.shape, tail=record.tail)


def _name(space: str, key: str) -> str:
    """The name in Redis: a digest, so that neither tenants nor ids can be read off it."""
    digest = blake2b(f"{len(space)}:{space}:{key}".encode("utf-8", "surrogatepass"), digest_size=20)
    return f"turnwire:turn:{digest.hexdigest()}"


def _bytes(ids: array[int]) -> bytes:
    if sys.byteorder == "little":
        return ids.tobytes()
    swapped = array("I", ids)
    swapped.byteswap()
    return swapped.tobytes()
