"""Where what must outlive a request is kept: responses, threads, background results.

Promise: a small key-value interface with three backings (memory, SQLite, Redis) that pass the same tests. A value is
there whole or not at all, whatever kills the process; what is over the limits leaves oldest first. A lease says who may
write an entry: of several gateways, one at a time. Gateways that share a store can send each other letters. A store
that does not answer is a StoreUnavailable.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from turnwire.gateway.stores.letters import Letters, Listeners
from turnwire.prompts.recall.seals import Sealer
from turnwire.protocols.wire import TurnFailure

__all__ = [
    "MemoryStore",
    "Retention",
    "SQLiteStore",
    "Store",
    "StoreError",
    "StoreUnavailable",
    "checked",
    "open_store",
]

T = TypeVar("T")

log = logging.getLogger("turnwire.store")


class StoreError(Exception):
    """A store that cannot be used; the message says what to change."""


class StoreUnavailable(StoreError, TurnFailure):
    """A store that does not answer now. A request that needs it is refused, and may be sent again."""

    def __init__(self, why: object) -> None:
        TurnFailure.__init__(
            self,
            "overloaded",
            "The store does not answer, so nothing can be kept or looked up; try again, or send what needs no store.",
            retry_after=2,
        )
        self.why = str(why)


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How much is kept: entries in all, bytes of all entries in memory, bytes of one entry, and seconds of age."""

    entries: int = 100_000
    memory_bytes: int = 256 * 1024 * 1024
    entry_bytes: int = 64 * 1024 * 1024
    age: float = 30 * 24 * 3600.0


class Store(Protocol):
    """`space` is a tenant and a kind; `key` an id within it. A put that is over the entry limit raises StoreError.
    `shared`: other processes may use it, too."""

    shared: bool

    async def get(self, space: str, key: str) -> bytes | None: ...

    async def put(self, space: str, key: str, value: bytes, *, holder: str | None = None) -> bool:
        """Keep a value, and say so; with `holder`, only if that one has the entry's lease."""
        ...

    async def delete(self, space: str, key: str) -> bool:
        """Whether there was something to delete."""
        ...

    async def lease(self, space: str, key: str, holder: str, seconds: float, *, seize: bool = False) -> str:
        """Take an entry's lease, or keep it for longer, where nobody else has it; `seize` takes it from anybody. Who
        has it now."""
        ...

    async def publish(self, topic: str, letter: bytes) -> None:
        """Send a letter to all who listen to the topic now, in this process and in others."""
        ...

    async def listen(self, topic: str) -> Letters:
        """The letters of a topic from now on."""
        ...

    async def healthy(self) -> bool:
        """Whether it could keep something now."""
        ...

    async def close(self) -> None: ...


def checked(value: bytes, retention: Retention) -> bytes:
    """The value; StoreError where it is too large to be kept."""
    if len(value) > retention.entry_bytes:
        raise StoreError(f"A stored value has {len(value)} bytes; the limit is {retention.entry_bytes}.")
    return value


class MemoryStore:
    """Kept while the process lives."""

    shared = False

    def __init__(self, retention: Retention, clock: Callable[[], float] = time.time) -> None:
        self._retention = retention
        self._clock = clock
        self._entries: OrderedDict[tuple[str, str], tuple[float, bytes]] = OrderedDict()
        self._leases: dict[tuple[str, str], tuple[str, float]] = {}
        self._bytes = 0
        self._listeners = Listeners()

    async def get(self, space: str, key: str) -> bytes | None:
        entry = self._entries.get((space, key))
        if entry is None or self._clock() - entry[0] > self._retention.age:
            return None
        return entry[1]

    async def put(self, space: str, key: str, value: bytes, *, holder: str | None = None) -> bool:
        checked(value, self._retention)
        if holder is not None and self._holder(space, key) != holder:
            return False
        self._drop((space, key))
        self._entries[space, key] = (self._clock(), value)
        self._bytes += len(value)
        while len(self._entries) > self._retention.entries or (
            self._bytes > self._retention.memory_bytes and len(self._entries) > 1
        ):
            self._drop(next(iter(self._entries)))
        return True

    def _drop(self, place: tuple[str, str]) -> bool:
        entry = self._entries.pop(place, None)
        if entry is None:
            return False
        self._bytes -= len(entry[1])
        return True

    async def delete(self, space: str, key: str) -> bool:
        return self._drop((space, key))

    async def lease(self, space: str, key: str, holder: str, seconds: float, *, seize: bool = False) -> str:
        now = self._clock()
        known = self._holder(space, key)
        if known is not None and known != holder and not seize:
            return known
        if len(self._leases) >= self._retention.entries:
            self._leases = {place: lease for place, lease in self._leases.items() if lease[1] > now}
        self._leases[space, key] = (holder, now + seconds)
        return holder

    def _holder(self, space: str, key: str) -> str | None:
        holder, until = self._leases.get((space, key), ("", 0.0))
        return holder if until > self._clock() else None

    async def publish(self, topic: str, letter: bytes) -> None:
        self._listeners.deliver(topic, letter)

    async def listen(self, topic: str) -> Letters:
        return self._listeners.add(topic)

    async def healthy(self) -> bool:
        return True

    async def close(self) -> None:
        self._entries.clear()
        self._bytes = 0


_PROBE, _LARGEST_PROBE = 1 << 16, 1 << 20
"""What must find room again, at least and at most, before a store that failed is healthy."""


class SQLiteStore:
    """One file, write-ahead logged. All access goes through one thread: the event loop never waits on a disk."""

    shared = True

    _PRUNE_EVERY = 256
    # How often letters are looked for while somebody listens, and how long they are there, in seconds.
    LOOK_S = 0.1
    LETTERS_S = 60.0

    def __init__(self, path: str, retention: Retention, clock: Callable[[], float] = time.time) -> None:
        self._retention = retention
        self._clock = clock
        self._puts = 0
        self._failing = False
        # What has to find room again: smaller values may find some while others do not.
        self._too_large = 0
        self._listeners = Listeners()
        self._looking: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._database = self._thread.submit(self._open, path).result()
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"The store {path} cannot be opened: {error}") from None

    def _open(self, path: str) -> sqlite3.Connection:
        database = sqlite3.connect(path, timeout=10, isolation_level=None)
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        database.execute(
            "CREATE TABLE IF NOT EXISTS entries (space TEXT, key TEXT, at REAL NOT NULL, value BLOB NOT NULL,"
            " PRIMARY KEY (space, key)) WITHOUT ROWID"
        )
        database.execute("CREATE INDEX IF NOT EXISTS entries_at ON entries (at)")
        database.execute(
            "CREATE TABLE IF NOT EXISTS leases (space TEXT, key TEXT, holder TEXT NOT NULL, until REAL NOT NULL,"
            " PRIMARY KEY (space, key)) WITHOUT ROWID"
        )
        database.execute(
            "CREATE TABLE IF NOT EXISTS letters (number INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT NOT NULL,"
            " at REAL NOT NULL, letter BLOB NOT NULL)"
        )
        return database

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            done = await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except sqlite3.Error as error:
            if not self._failing:
                log.error("the store's file cannot be used: %s", error)
            self._failing, self._too_large = True, max(self._too_large, _PROBE)
            raise StoreUnavailable(error) from None
        return done

    async def get(self, space: str, key: str) -> bytes | None:
        def work() -> bytes | None:
            row = self._database.execute(
                "SELECT value FROM entries WHERE space = ? AND key = ? AND at >= ?",
                (space, key, self._clock() - self._retention.age),
            ).fetchone()
            return None if row is None else bytes(row[0])

        return await self._run(work)

    async def put(self, space: str, key: str, value: bytes, *, holder: str | None = None) -> bool:
        checked(value, self._retention)

        def work() -> bool:
            with self._database as database:
                database.execute("BEGIN IMMEDIATE")
                if holder is not None and self._holder(space, key) != holder:
                    return False
                database.execute(
                    "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)", (space, key, self._clock(), value)
                )
            self._puts += 1
            if self._puts % self._PRUNE_EVERY == 0:
                self._prune()
            if len(value) >= self._too_large:
                self._failing, self._too_large = False, 0
            return True

        try:
            return await self._run(work)
        except StoreUnavailable:
            self._too_large = max(self._too_large, min(len(value), _LARGEST_PROBE))
            raise

    async def lease(self, space: str, key: str, holder: str, seconds: float, *, seize: bool = False) -> str:
        def work() -> str:
            with self._database as database:
                database.execute("BEGIN IMMEDIATE")
                known = self._holder(space, key)
                if known is not None and known != holder and not seize:
                    return known
                until = self._clock() + seconds
                database.execute("INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?)", (space, key, holder, until))
            return holder

        return await self._run(work)

    def _holder(self, space: str, key: str) -> str | None:
        row = self._database.execute(
            "SELECT holder FROM leases WHERE space = ? AND key = ? AND until > ?", (space, key, self._clock())
        ).fetchone()
        return None if row is None else str(row[0])

    async def publish(self, topic: str, letter: bytes) -> None:
        def work() -> None:
            now = self._clock()
            self._database.execute("INSERT INTO letters (topic, at, letter) VALUES (?, ?, ?)", (topic, now, letter))
            self._database.execute("DELETE FROM letters WHERE at < ?", (now - self.LETTERS_S,))

        await self._run(work)

    async def listen(self, topic: str) -> Letters:
        letters = self._listeners.add(topic)
        if self._looking is None or self._looking.done():
            last = await self._run(lambda: self._database.execute("SELECT MAX(number) FROM letters").fetchone()[0])
            if self._looking is None or self._looking.done():
                self._looking = asyncio.create_task(self._look(last or 0))
        return letters

    async def _look(self, last: int) -> None:
        """Other processes write into the same file and cannot wake us."""
        while len(self._listeners):
            with contextlib.suppress(StoreUnavailable):
                for number, topic, letter in await self._run(partial(self._letters, last)):
                    last = number
                    self._listeners.deliver(topic, bytes(letter))
            await asyncio.sleep(self.LOOK_S)

    def _letters(self, last: int) -> list[tuple[int, str, bytes]]:
        return self._database.execute(
            "SELECT number, topic, letter FROM letters WHERE number > ? ORDER BY number LIMIT 1000", (last,)
        ).fetchall()

    async def healthy(self) -> bool:
        if not self._failing:
            return True
        try:
            await self.put("", "probe", bytes(self._too_large))
            await self.delete("", "probe")
        except StoreUnavailable:
            return False
        return True

    def _prune(self) -> None:
        self._database.execute("DELETE FROM entries WHERE at < ?", (self._clock() - self._retention.age,))
        self._database.execute("DELETE FROM leases WHERE until < ?", (self._clock(),))
        count = self._database.execute("SELECT COUNT(*) FROM entries").fetchone()[0]
        if count > self._retention.entries:
            self._database.execute(
                "DELETE FROM entries WHERE (space, key) IN (SELECT space, key FROM entries ORDER BY at LIMIT ?)",
                (count - self._retention.entries,),
            )

    async def delete(self, space: str, key: str) -> bool:
        def work() -> bool:
            cursor = self._database.execute("DELETE FROM entries WHERE space = ? AND key = ?", (space, key))
            return cursor.rowcount > 0

        return await self._run(work)

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        await self._run(self._database.close)
        self._thread.shutdown()


def open_store(spec: str | None, retention: Retention, sealer: Sealer | None = None) -> Store:
    """The store of a spec: `memory`, `sqlite:FILE`, `redis://…`. What Redis holds is encrypted where there is a
    `sealer`."""
    if spec is None or spec == "memory":
        return MemoryStore(retention)
    kind, _, rest = spec.partition(":")
    if kind == "sqlite" and rest:
        return SQLiteStore(rest, retention)
    if kind in ("redis", "rediss", "unix"):
        from turnwire.gateway.stores.store_redis import RedisStore

        return RedisStore(spec, retention, sealer)
    raise StoreError(f"'{spec}' is not a store; write memory, sqlite:FILE or redis://HOST:PORT/0.")
