"""The limits of a key over all gateways that share a Redis.

Promise: one question to Redis for each request of a key that has limits, none for others. A gateway that dies gives its
places back within a minute; while Redis does not answer, each gateway holds the limits for itself.

| key | holds | lives |
|---|---|---|
| `turnwire:{DIGEST}:rate` | how many requests the key may still make, and when that was so | 2 minutes |
| `turnwire:{DIGEST}:running` | its running requests, each with the time at which it counts no more | 1 minute |
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from hashlib import blake2b

from turnwire.gateway.door.keys import Key
from turnwire.gateway.stores.redis_client import async_redis
from turnwire.protocols.wire import TurnFailure

__all__ = ["SharedLimits"]

log = logging.getLogger("turnwire.limits")

_ENTER = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local most, rate = tonumber(ARGV[2]), tonumber(ARGV[1])
if most >= 0 then
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
  if redis.call('ZCARD', KEYS[2]) >= most then return {'concurrency', 1000} end
end
if rate > 0 then
  local held = redis.call('HMGET', KEYS[1], 'left', 'at')
  local left, at = tonumber(held[1]) or rate, tonumber(held[2]) or now
  left = math.min(rate, left + (now - at) * rate / 60000)
  if left < 1 then return {'rate', math.ceil((1 - left) * 60000 / rate)} end
  redis.call('HSET', KEYS[1], 'left', tostring(left - 1), 'at', now)
  redis.call('PEXPIRE', KEYS[1], 120000)
end
if most >= 0 then
  redis.call('ZADD', KEYS[2], now + ARGV[4], ARGV[3])
  redis.call('PEXPIRE', KEYS[2], ARGV[4])
end
return {'', 0}
"""
_STAY = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for at = 2, #ARGV do redis.call('ZADD', KEYS[1], 'XX', now + ARGV[1], ARGV[at]) end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
"""


class SharedLimits:
    """Requests a minute and requests at a time, counted in Redis."""

    # How long a place counts without being renewed, how often it is, and how long an answer may take, in seconds.
    PLACE_S = 60.0
    STAY_S = 20.0
    ANSWER_S = 0.5

    def __init__(self, url: str) -> None:
        self._redis, self._failures = async_redis(url, self.ANSWER_S)
        self._places: dict[str, set[str]] = {}
        self._staying: asyncio.Task[None] | None = None

    async def enter(self, key: Key) -> str | None:
        """Count a request of a key, or raise TurnFailure with the time to wait; the place to leave at its end."""
        if key.requests_per_minute is None and key.concurrency is None:
            return None
        place, most = secrets.token_hex(8), -1 if key.concurrency is None else key.concurrency
        rate = key.requests_per_minute or 0
        names = (_name(key.name, "rate"), _name(key.name, "running"))
        try:
            answer = await self._redis.eval(_ENTER, 2, *names, rate, most, place, int(self.PLACE_S * 1000))
        except self._failures as error:
            log.warning("the limits of keys are held by each gateway alone, Redis does not answer: %s", error)
            return None
        why, wait = answer[0].decode(), max(answer[1] / 1000, 0.1)
        if why == "rate":
            told = f"This key may ask {rate} times a minute; try again in {wait:.1f}s."
            raise TurnFailure("rate_limited", told, retry_after=wait)
        if why == "concurrency":
            told = f"This key may run {most} requests at a time; try again in 1s."
            raise TurnFailure("rate_limited", told, retry_after=wait)
        if key.concurrency is None:
            return None
        self._places.setdefault(key.name, set()).add(place)
        if self._staying is None or self._staying.done():
            self._staying = asyncio.create_task(self._stay())
        return place

    async def leave(self, key: Key, place: str) -> None:
        """Give a place back; one that cannot be given back now counts no more after a minute."""
        self._places.get(key.name, set()).discard(place)
        try:
            await self._redis.zrem(_name(key.name, "running"), place)
        except self._failures:
            return

    async def _stay(self) -> None:
        while any(self._places.values()):
            await asyncio.sleep(self.STAY_S)
            for name, places in self._places.items():
                try:
                    if places:
                        held = (int(self.PLACE_S * 1000), *places)
                        await self._redis.eval(_STAY, 1, _name(name, "running"), *held)
                except self._failures:
                    continue

    async def close(self) -> None:
        """Close the connection."""
        if self._staying is not None:
            self._staying.cancel()
        await self._redis.aclose()


def _name(key: str, kind: str) -> str:
    digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()
    return f"turnwire:{{{digest}}}:{kind}"
