"""The journal of turns in Redis or Valkey, of all gateways that share it.

Promise: as every journal's; values are encrypted under the seal key and bound to their name. One command writes a
batch and drops what is over the bounds, whole or not at all.

| key | holds | lives |
|---|---|---|
| `turnwire:journal` | stream: a turn's summary, encrypted (`v`), who wrote it (`o`), bytes up to here (`t`) | its age |
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from turnwire.gateway.stores.journal import ENTRY_OVERHEAD, JournalEntry, UnknownPlace
from turnwire.gateway.stores.redis_client import threaded_redis
from turnwire.gateway.stores.store import StoreUnavailable
from turnwire.prompts.recall.seals import Sealer

__all__ = ["RedisJournal"]

T = TypeVar("T")

_NAME = "turnwire:journal"
_PLACE = re.compile(r"[0-9]{1,18}-[0-9]{1,18}")
# How many bytes lie between two entries is the difference of their `t`: no counter beside the stream can be lost.
_WRITE = """
local function field(entry, name)
  for at = 1, #entry[2], 2 do if entry[2][at] == name then return entry[2][at + 1] end end
end
local most, oldest, overhead = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[4])
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
local total = last and tonumber(field(last, 't')) or 0
for at = 6, #ARGV do
  total = total + #ARGV[at] + overhead
  redis.call('XADD', KEYS[1], '*', 't', string.format('%.0f', total), 'o', ARGV[5], 'v', ARGV[at])
end
while true do
  local first = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
  if not first then break end
  local before = tonumber(field(first, 't')) - #field(first, 'v') - overhead
  if total - before <= most and tonumber(string.match(first[1], '^%d+')) >= oldest then break end
  redis.call('XDEL', KEYS[1], first[1])
end
redis.call('EXPIRE', KEYS[1], ARGV[3])
"""


class RedisJournal:
    """The journal in one stream of Redis."""

    # How long an answer may take, in seconds.
    ANSWER_S = 2.0

    def __init__(
        self,
        url: str,
        sealer: Sealer | None,
        *,
        max_bytes: int,
        age: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._redis, self._failures = threaded_redis(url, self.ANSWER_S)
        self._write: Any = self._redis.register_script(_WRITE)
        self._sealer = sealer
        self._max_bytes, self._age, self._clock = max_bytes, age, clock

    def write(self, origin: str, values: Sequence[bytes]) -> None:
        oldest = int((self._clock() - self._age) * 1000)
        sealed = values if self._sealer is None else [self._sealer.encrypted(value, _NAME) for value in values]
        limits = (self._max_bytes, oldest, max(1, int(self._age)), ENTRY_OVERHEAD, origin)
        self._asked(lambda: self._write(keys=[_NAME], args=[*limits, *sealed]))

    def newest(self) -> str:
        rows = self._asked(lambda: self._redis.xrevrange(_NAME, "+", "-", 1))
        return rows[0][0].decode() if rows else ""

    def after(self, place: str, limit: int) -> list[JournalEntry]:
        first = f"({_known(place)}" if place else "-"
        return self._opened(self._asked(lambda: self._redis.xrange(_NAME, first, "+", limit)))

    def back(self, place: str | None, limit: int, *, inclusive: bool = True) -> list[JournalEntry]:
        last = "+" if place is None else _known(place) if inclusive else f"({_known(place)}"
        return self._opened(self._asked(lambda: self._redis.xrevrange(_NAME, last, "-", limit)))

    def _asked(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except self._failures as error:
            raise StoreUnavailable(error) from None

    def _opened(self, rows: list[tuple[bytes, dict[bytes, bytes]]]) -> list[JournalEntry]:
        """What is under other keys than ours has an empty value: its place counts all the same."""
        entries = []
        for place, fields in rows:
            value: bytes | None = fields[b"v"]
            if self._sealer is not None and value is not None:
                value = self._sealer.decrypted(value, _NAME)
            entries.append(JournalEntry(place.decode(), fields[b"o"].decode(), value or b""))
        return entries

    def close(self) -> None:
        self._redis.close()


def _known(place: str) -> str:
    if not _PLACE.fullmatch(place):
        raise UnknownPlace(place)
    return place
