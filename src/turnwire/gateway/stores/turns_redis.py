"""The turn store in Redis, so that replicas find the turns that another one served.

Promise: `put` never waits for the network and says when it is done, and `get` waits for it only where this process does
not have the turn, and never long. What Redis holds is encrypted under the seal key and bound to its place, its keys are
digests, and it leaves by age. A Redis that is gone costs no request: it is asked again after a pause, and what was put
meanwhile is written then; whoever wants to wait for that sees in `outage` how long it makes sense.

| key | holds | lives |
|---|---|---|
| `turnwire:turn:DIGEST` | list: the last turns under a key, newest first, at most 4, encrypted | 7 days |
| `turnwire:session:DIGEST` | list: digests of a session's last prompts, newest first, at most 4, encrypted | 7 days |
"""

from __future__ import annotations

import logging
import queue
import sys
import time
import zlib
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from hashlib import blake2b
from threading import Event, Thread

import msgspec

from turnwire.gateway.stores.outage import Outage
from turnwire.gateway.stores.redis_client import threaded_redis
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

    # How long a read may take, and how long a Redis is left alone that did not answer, or that refused, in seconds.
    READ_S = 1.0
    PAUSE_S = 5.0
    REFUSED_S = 1.0

    waits = True

    distant = True

    def __init__(
        self,
        url: str,
        sealer: Sealer,
        *,
        age: float = 7 * 24 * 3600,
        memory_bytes: int = 64 * 1024 * 1024,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._redis, self._failures = threaded_redis(url, self.READ_S)
        from redis import TimeoutError as RedisTimeout

        self._silence = (RedisTimeout, TimeoutError)
        self._sealer = sealer
        self._age = max(1, int(age))
        self._recent = MemoryTurnStore(max_bytes=memory_bytes)
        self.outage = Outage(clock)
        self._closing = Event()
        self._todo: queue.Queue[tuple[Callable[[], None], Future[None]] | None] = queue.Queue(_WAITING)
        self._writer = Thread(target=self._write_all, name="turnstore", daemon=True)
        self._writer.start()

    def put(self, space: str, keys: Sequence[str], turn: StoredTurn) -> Future[None] | None:
        if not keys or turn.size > _MOST_BYTES:
            return None
        self._recent.put(space, keys, turn)
        names = [_name("turn", f"{len(space)}:{space}:{key}") for key in keys]
        return self._later(lambda: self._write(names, _packed(turn)))

    def put_session(self, session: str, digests: bytes) -> Future[None] | None:
        """Keep the digests of a session's newest turn."""
        return self._later(lambda: self._write([_name("session", session)], digests))

    def session(self, session: str) -> list[bytes]:
        """The digests of a session's last turns, newest first."""
        return self._held(_name("session", session))

    def _later(self, work: Callable[[], None]) -> Future[None] | None:
        done: Future[None] = Future()
        try:
            self._todo.put_nowait((work, done))
        except queue.Full:
            log.warning("Redis is too slow for the turn store; a turn is kept in memory only")
            return None
        # While Redis is away for long, nobody waits for it.
        return None if self.outage.known and not self.outage.left else done

    def get(self, space: str, key: str) -> tuple[StoredTurn, ...]:
        found = self._recent.get(space, key)
        if found:
            return found
        turns = [_turn(packed) for packed in self._held(_name("turn", f"{len(space)}:{space}:{key}"))]
        return tuple(turn for turn in turns if turn is not None)

    def _held(self, name: str) -> list[bytes]:
        """What is under a name and can be opened."""
        if self.outage.pause:
            return []
        try:
            held: list[bytes] = self._redis.lrange(name, 0, _SAME_KEY - 1)
        except self._failures as error:
            self._pause(error)
            return []
        self.outage.over()
        opened = [self._sealer.decrypted(value, name) for value in held]
        return [packed for packed in opened if packed is not None]

    def close(self) -> None:
        """Write what is waiting and close the connection."""
        if self._writer.is_alive():
            self._closing.set()
            self._todo.put(None)
            self._writer.join()
        self._redis.close()

    def _pause(self, error: Exception) -> None:
        pause = self.PAUSE_S if isinstance(error, self._silence) else self.REFUSED_S
        self.outage.seen(pause)
        log.warning("the turn store's Redis does not answer, it is left alone for %g s: %s", pause, error)

    def _write_all(self) -> None:
        while (item := self._todo.get()) is not None:
            work, done = item
            while True:
                away = self.outage.pause
                if away and not self._closing.wait(min(away, 0.5)):
                    continue
                try:
                    work()
                    self.outage.over()
                    break
                except self._failures as error:
                    self._pause(error)
                    if self._closing.is_set():
                        break
            done.set_result(None)

    def _write(self, names: Sequence[str], packed: bytes) -> None:
        with self._redis.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.lpush(name, self._sealer.encrypted(packed, name))
                pipe.ltrim(name, 0, _SAME_KEY - 1)
                pipe.expire(name, self._age)
            pipe.execute()


def _packed(turn: StoredTurn) -> bytes:
    record = _Record(_bytes(turn.ids), turn.text.encode("utf-8", "surrogatepass"), turn.shape, turn.tail)
    return zlib.compress(msgspec.msgpack.encode(record), 1)


def _turn(packed: bytes) -> StoredTurn | None:
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


def _name(kind: str, said: str) -> str:
    """The name in Redis: a digest, so that neither tenants nor ids can be read off it."""
    digest = blake2b(said.encode("utf-8", "surrogatepass"), digest_size=20)
    return f"turnwire:{kind}:{digest.hexdigest()}"


def _bytes(ids: array[int]) -> bytes:
    if sys.byteorder == "little":
        return ids.tobytes()
    swapped = array("I", ids)
    swapped.byteswap()
    return swapped.tobytes()
