"""The store in Redis or Valkey, shared by any number of gateways.

Promise: names are digests and values are encrypted under the seal key, bound to their name; age is Redis' own expiry. A
Redis that does not answer is waited out for as long as an `Outage` says, then it is a StoreUnavailable at once; it is
asked again every second.

| key | holds | lives |
|---|---|---|
| `turnwire:{DIGEST}:entry` | a stored response or a thread, encrypted | 30 days |
| `turnwire:{DIGEST}:lease` | the name of the gateway that may write the entry | seconds |

| channel | carries |
|---|---|
| `turnwire:letters:DIGEST` | letters between gateways, encrypted |

The braces are a hash tag: an entry and its lease are on the same shard of a cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from typing import Any, TypeVar

from turnwire.gateway.stores.letters import Letters, Listeners
from turnwire.gateway.stores.outage import Outage
from turnwire.gateway.stores.redis_client import async_redis
from turnwire.gateway.stores.store import Retention, StoreUnavailable, checked
from turnwire.prompts.recall.seals import Sealer

__all__ = ["RedisStore"]

log = logging.getLogger("turnwire.store")

T = TypeVar("T")

_LEASE = """
local known = redis.call('GET', KEYS[1])
if known and known ~= ARGV[1] and ARGV[3] ~= '1' then return known end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]
"""
_PUT_AS_HOLDER = """
if redis.call('GET', KEYS[2]) ~= ARGV[3] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
return 1
"""


class RedisStore:
    """Entries in Redis; its `maxmemory` policy bounds what expiry does not."""

    shared = True

    # How long an answer may take, and how long a Redis that failed is left alone, in seconds.
    ANSWER_S = 2.0
    PAUSE_S = 1.0

    def __init__(
        self,
        url: str,
        retention: Retention,
        sealer: Sealer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._retention = retention
        self._sealer = sealer
        self._clock = clock
        self._redis, self._failures = async_redis(url, self.ANSWER_S)
        self._outage = Outage(clock)
        self._listeners = Listeners(self._deserted)
        self._deserting: set[str] = set()
        self._subscriptions: Any = self._redis.pubsub()
        self._hearing: asyncio.Task[None] | None = None
        self._seen: tuple[float, bool] = (-1e9, True)

    @staticmethod
    def _name(space: str, key: str, kind: str) -> str:
        digest = blake2b(f"{len(space)}:{space}:{key}".encode("utf-8", "surrogatepass"), digest_size=20)
        return f"turnwire:{{{digest.hexdigest()}}}:{kind}"

    async def _asked(self, work: Callable[[], Awaitable[T]]) -> T:
        while True:
            why: object = "Redis did not answer a moment ago"
            if not self._outage.pause:
                try:
                    answer = await work()
                    self._outage.over()
                    return answer
                except self._failures as error:
                    why = error
                    if not self._outage.known:
                        log.error("the store's Redis does not answer: %s", error)
                    self._outage.seen(self.PAUSE_S)
            if not self._outage.left:
                raise StoreUnavailable(why)
            await asyncio.sleep(self.PAUSE_S / 4)

    async def get(self, space: str, key: str) -> bytes | None:
        name = self._name(space, key, "entry")
        value: bytes | None = await self._asked(lambda: self._redis.get(name))
        return value if value is None or self._sealer is None else self._sealer.decrypted(value, name)

    async def put(self, space: str, key: str, value: bytes, *, holder: str | None = None) -> bool:
        checked(value, self._retention)
        name, age = self._name(space, key, "entry"), max(1, int(self._retention.age))
        sealed = value if self._sealer is None else self._sealer.encrypted(value, name)
        if holder is None:
            await self._asked(lambda: self._redis.set(name, sealed, ex=age))
            return True
        lease = self._name(space, key, "lease")
        return bool(await self._asked(lambda: self._redis.eval(_PUT_AS_HOLDER, 2, name, lease, sealed, age, holder)))

    async def delete(self, space: str, key: str) -> bool:
        return bool(await self._asked(lambda: self._redis.delete(self._name(space, key, "entry"))))

    async def lease(self, space: str, key: str, holder: str, seconds: float, *, seize: bool = False) -> str:
        name, milliseconds = self._name(space, key, "lease"), int(seconds * 1000)
        known: bytes = await self._asked(
            lambda: self._redis.eval(_LEASE, 1, name, holder, milliseconds, "1" if seize else "0")
        )
        return known.decode()

    async def publish(self, topic: str, letter: bytes) -> None:
        channel = _channel(topic)
        sealed = letter if self._sealer is None else self._sealer.encrypted(letter, channel)
        await self._asked(lambda: self._redis.publish(channel, sealed))

    async def listen(self, topic: str) -> Letters:
        letters = self._listeners.add(topic)
        try:
            await self._asked(lambda: self._subscriptions.subscribe(_channel(topic)))
        except BaseException:
            letters.close()
            raise
        if self._hearing is None or self._hearing.done():
            self._hearing = asyncio.create_task(self._hear())
        return letters

    def _deserted(self, topic: str) -> None:
        self._deserting.add(topic)

    async def _hear(self) -> None:
        """Deliver letters while somebody listens; after a failure, subscribe again."""
        while len(self._listeners):
            try:
                while self._deserting:
                    topic = self._deserting.pop()
                    if topic not in self._listeners.topics:
                        await self._subscriptions.unsubscribe(_channel(topic))
                message = await self._subscriptions.get_message(ignore_subscribe_messages=True, timeout=0.5)
                if message is not None:
                    self._deliver(message["channel"].decode(), message["data"])
            except self._failures as error:
                log.warning("letters of other gateways do not arrive: %s", error)
                await asyncio.sleep(self.PAUSE_S)
                with contextlib.suppress(*self._failures):
                    await self._subscriptions.reset()
                    await self._subscriptions.subscribe(*map(_channel, self._listeners.topics))

    def _deliver(self, channel: str, sealed: bytes) -> None:
        letter = sealed if self._sealer is None else self._sealer.decrypted(sealed, channel)
        for topic in self._listeners.topics:
            if letter is not None and _channel(topic) == channel:
                self._listeners.deliver(topic, letter)

    async def healthy(self) -> bool:
        at, well = self._seen
        if self._clock() - at < self.PAUSE_S:
            return well
        try:
            await self._redis.ping()
            well = True
        except self._failures:
            well = False
        self._seen = (self._clock(), well)
        return well

    async def close(self) -> None:
        if self._hearing is not None:
            self._hearing.cancel()
        await self._subscriptions.aclose()
        await self._redis.aclose()


def _channel(topic: str) -> str:
    digest = blake2b(topic.encode("utf-8", "surrogatepass"), digest_size=20)
    return f"turnwire:letters:{digest.hexdigest()}"
