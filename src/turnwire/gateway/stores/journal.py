"""The journal of a store: summaries of finished turns that outlive the process, of all gateways that share the store.

Promise: two backings (SQLite, Redis) that pass the same tests. An entry is there whole or not at all; what is over the
bound of bytes or of age leaves oldest first. Places are in the order of writing, and stay valid for as long as the
store lives. A store that does not answer is a StoreUnavailable. Whoever calls this waits for a disk or a network, so
nobody does on the event loop.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Protocol

import msgspec

from turnwire.gateway.stores.store import StoreError, StoreUnavailable
from turnwire.prompts.recall.seals import Sealer

__all__ = ["ENTRY_OVERHEAD", "JournalEntry", "JournalStore", "SQLiteJournal", "UnknownPlace", "open_journal"]

ENTRY_OVERHEAD = 64
"""What an entry counts for beside its value, in bytes."""


class UnknownPlace(ValueError):
    """A place that no store ever gave."""


class JournalEntry(msgspec.Struct, frozen=True):
    """A value, where it is, and which process wrote it."""

    place: str
    origin: str
    value: bytes


class JournalStore(Protocol):
    """Entries in the order in which they were written. May be used by any thread."""

    def write(self, origin: str, values: Sequence[bytes]) -> None:
        """Keep these, all or none."""
        ...

    def newest(self) -> str:
        """The place of the newest entry; "" where there is none."""
        ...

    def after(self, place: str, limit: int) -> list[JournalEntry]:
        """The entries after a place, oldest first."""
        ...

    def back(self, place: str | None, limit: int, *, inclusive: bool = True) -> list[JournalEntry]:
        """The entries from a place, or from the newest, back: newest first."""
        ...

    def close(self) -> None: ...


_SCHEMA = """
CREATE TABLE IF NOT EXISTS journal (
  number INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, origin TEXT NOT NULL, total INTEGER NOT NULL,
  value BLOB NOT NULL)
"""
_DROPPED_AT_ONCE = 64


class SQLiteJournal:
    """The journal in a file of its own beside the store's, write-ahead logged. `total` is how many bytes were ever
    written up to an entry: the difference of two is what lies between them."""

    def __init__(self, path: str, *, max_bytes: int, age: float, clock: Callable[[], float] = time.time) -> None:
        self._max_bytes, self._age, self._clock = max_bytes, age, clock
        self._writing, self._reading = Lock(), Lock()
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._database = self._opened(path)
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=NORMAL")
            self._database.execute(_SCHEMA)
            # Readers have a connection of their own, so that they never wait for the writer.
            self._reader = self._opened(path)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"The journal of turns {path} cannot be opened: {error}") from None

    @staticmethod
    def _opened(path: str) -> sqlite3.Connection:
        return sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)

    def write(self, origin: str, values: Sequence[bytes]) -> None:
        now = self._clock()
        try:
            with self._writing, self._database as database:
                database.execute("BEGIN IMMEDIATE")
                last = database.execute("SELECT total FROM journal ORDER BY number DESC LIMIT 1").fetchone()
                total: int = last[0] if last is not None else 0
                for value in values:
                    total += len(value) + ENTRY_OVERHEAD
                    database.execute(
                        "INSERT INTO journal (at, origin, total, value) VALUES (?, ?, ?, ?)",
                        (now, origin, total, value),
                    )
                self._drop(database, total, now - self._age)
        except sqlite3.Error as error:
            raise StoreUnavailable(error) from None

    def _drop(self, database: sqlite3.Connection, total: int, oldest: float) -> None:
        """Drop what is over the bounds. The totals are those before the entries that may stay."""
        while True:
            rows = database.execute(
                "SELECT number, at, total, LENGTH(value) FROM journal ORDER BY number LIMIT ?", (_DROPPED_AT_ONCE,)
            ).fetchall()
            gone = [
                number
                for number, at, upto, size in rows
                if at < oldest or total - (upto - size - ENTRY_OVERHEAD) > self._max_bytes
            ]
            if gone:
                database.execute("DELETE FROM journal WHERE number <= ?", (gone[-1],))
            if len(gone) < _DROPPED_AT_ONCE:
                return

    def newest(self) -> str:
        rows = self._read("SELECT number, '', x'' FROM journal ORDER BY number DESC LIMIT ?", (1,))
        return rows[0].place if rows else ""

    def after(self, place: str, limit: int) -> list[JournalEntry]:
        return self._read(
            "SELECT number, origin, value FROM journal WHERE number > ? AND at >= ? ORDER BY number LIMIT ?",
            (_number(place), self._clock() - self._age, limit),
        )

    def back(self, place: str | None, limit: int, *, inclusive: bool = True) -> list[JournalEntry]:
        last = (1 << 63) - 1 if place is None else _number(place) - (not inclusive)
        return self._read(
            "SELECT number, origin, value FROM journal WHERE number <= ? AND at >= ? ORDER BY number DESC LIMIT ?",
            (last, self._clock() - self._age, limit),
        )

    def _read(self, query: str, values: tuple[float, ...]) -> list[JournalEntry]:
        try:
            with self._reading:
                rows = self._reader.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise StoreUnavailable(error) from None
        return [JournalEntry(str(number), origin, bytes(value)) for number, origin, value in rows]

    def close(self) -> None:
        with self._writing, self._reading:
            self._database.close()
            self._reader.close()


def _number(place: str) -> int:
    if place == "":
        return 0
    if not place.isascii() or not place.isdigit() or len(place) > 18:
        raise UnknownPlace(place)
    return int(place)


def open_journal(spec: str | None, sealer: Sealer | None, *, max_bytes: int, age: float) -> JournalStore | None:
    """The journal of a store's spec; None where the store ends with the process, or where no bytes are to be kept. What
    Redis holds is encrypted with the `sealer`."""
    kind, _, path = (spec or "memory").partition(":")
    if kind == "memory" or not max_bytes:
        return None
    if kind == "sqlite":
        return SQLiteJournal(f"{path}.journal", max_bytes=max_bytes, age=age)
    from turnwire.gateway.stores.journal_redis import RedisJournal

    return RedisJournal(spec or "", sealer, max_bytes=max_bytes, age=age)
