"""Where what must outlive a request is kept: responses, threads, background results.

Promise: a small key-value interface with three backings (memory, SQLite, Redis) that pass the same tests. A value is
there whole or not at all, whatever kills the process; what is over the limits leaves oldest first.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

__all__ = ["MemoryStore", "RedisStore", "Retention", "SQLiteStore", "Store", "StoreError", "open_store"]

T = TypeVar("T")


class StoreError(Exception):
    """A store that cannot be used; the message says what to change."""


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How much is kept: entries in all, bytes of one entry, and seconds of age."""

    entries: int = 100_000
    entry_bytes: int = 64 * 1024 * 1024
    age: float = 30 * 24 * 3600.0


class Store(Protocol):
    """`space` is a tenant and a kind; `key` an id within it. A put that is over the entry limit raises StoreError."""

    async def get(self, space: str, key: str) -> bytes | None: ...

    async def put(self, space: str, key: str, value: bytes) -> None: ...

    async def delete(self, space: str, key: str) -> bool:
        """Whether there was something to delete."""
        ...

    async def close(self) -> None: ...


def _checked(value: bytes, retention: Retention) -> bytes:
    if len(value) > retention.entry_bytes:
        raise StoreError(f"A stored value has {len(value)} bytes; the limit is {retention.entry_bytes}.")
    return value


class MemoryStore:
    """Kept while the process lives."""

    def __init__(self, retention: Retention, clock: Callable[[], float] = time.time) -> None:
        self._retention = retention
        self._clock = clock
        self._entries: OrderedDict[tuple[str, str], tuple[float, bytes]] = OrderedDict()

    async def get(self, space: str, key: str) -> bytes | None:
        entry = self._entries.get((space, key))
        if entry is None or self._clock() - entry[0] > self._retention.age:
            return None
        return entry[1]

    async def put(self, space: str, key: str, value: bytes) -> None:
        self._entries.pop((space, key), None)
        self._entries[space, key] = (self._clock(), _checked(value, self._retention))
        while len(self._entries) > self._retention.entries:
            self._entries.popitem(last=False)

    async def delete(self, space: str, key: str) -> bool:
        return self._entries.pop((space, key), None) is not None

    async def close(self) -> None:
        self._entries.clear()


class SQLiteStore:
    """One file, write-ahead logged. All access goes through one thread: the event loop never waits on a disk."""

    _PRUNE_EVERY = 256

    def __init__(self, path: str, retention: Retention, clock: Callable[[], float] = time.time) -> None:
        self._retention = retention
        self._clock = clock
        self._puts = 0
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
        return database

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def get(self, space: str, key: str) -> bytes | None:
        def work() -> bytes | None:
            row = self._database.execute(
                "SELECT value FROM entries WHERE space = ? AND key = ? AND at >= ?",
                (space, key, self._clock() - self._retention.age),
            ).fetchone()
            return None if row is None else bytes(row[0])

        return await self._run(work)

    async def put(self, space: str, key: str, value: bytes) -> None:
        _checked(value, self._retention)

        def work() -> None:
            self._database.execute(
                "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)", (space, key, self._clock(), value)
            )
            self._puts += 1
            if self._puts % self._PRUNE_EVERY == 0:
                self._prune()

        await self._run(work)

    def _prune(self) -> None:
        self._database.execute("DELETE FROM entries WHERE at < ?", (self._clock() - self._retention.age,))
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
        await self._run(self._database.close)
        self._thread.shutdown()


class RedisStore:
    """Shared by several gateways; age is Redis' own expiry and its `maxmemory` policy bounds the rest."""

    def __init__(self, url: str, retention: Retention) -> None:
        try:
            from redis import asyncio as redis
        except ImportError:
            raise StoreError("A Redis store needs the `redis` package: pip install 'turnwire[redis]'") from None
        self._retention = retention
        self._redis = redis.from_url(url)

    @staticmethod
    def _name(space: str, key: str) -> str:
        return f"turnwire:{len(space)}:{space}:{key}"

    async def get(self, space: str, key: str) -> bytes | None:
        value = await self._redis.get(self._name(space, key))
        return value.encode() if isinstance(value, str) else value

    async def put(self, space: str, key: str, value: bytes) -> None:
        _checked(value, self._retention)
        await self._redis.set(self._name(space, key), value, ex=max(1, int(self._retention.age)))

    async def delete(self, space: str, key: str) -> bool:
        return bool(await self._redis.delete(self._name(space, key)))

    async def close(self) -> None:
        await self._redis.aclose()


def open_store(spec: str | None, retention: Retention) -> Store:
    """The store of a spec: `memory`, `sqlite:FILE`, `redis://…`."""
    if spec is None or spec == "memory":
        return MemoryStore(retention)
    kind, _, rest = spec.partition(":")
    if kind == "sqlite" and rest:
        return SQLiteStore(rest, retention)
    if kind in ("redis", "rediss", "unix"):
        return RedisStore(spec, retention)
    raise StoreError(f"'{spec}' is not a store; write memory, sqlite:FILE or redis://HOST:PORT/0.")
