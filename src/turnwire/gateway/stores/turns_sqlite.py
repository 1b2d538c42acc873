"""The turn store in one SQLite file, so that turns outlive the process.

Promise: `put` never waits for the disk and says when it is done, and `get` sees what was put; a turn is there whole or
not at all, whatever kills the process; what is over the limit leaves oldest first. A failing disk costs turns, not
requests. Processes that share the file find each other's turns, and the digests of each other's sessions.
"""

from __future__ import annotations

import logging
import os
import queue
import sqlite3
import sys
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from hashlib import blake2b
from pathlib import Path
from threading import Lock, Thread

from turnwire.prompts.recall.store import MemoryTurnStore, StoredTurn

__all__ = ["SQLiteTurnStore"]

log = logging.getLogger("turnwire.turnstore")

_SAME_KEY = 4
_WAITING = 4096
_SESSIONS = 100_000
_SCHEMA = """
CREATE TABLE IF NOT EXISTS turns (
  number INTEGER PRIMARY KEY AUTOINCREMENT, digest BLOB NOT NULL, ids BLOB NOT NULL, text BLOB NOT NULL,
  shape BLOB NOT NULL, tail TEXT, size INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS turn_keys (
  space TEXT NOT NULL, key TEXT NOT NULL, number INTEGER NOT NULL REFERENCES turns ON DELETE CASCADE,
  PRIMARY KEY (space, key, number)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS turn_keys_number ON turn_keys (number);
CREATE TABLE IF NOT EXISTS sessions (
  number INTEGER PRIMARY KEY AUTOINCREMENT, session BLOB NOT NULL, digests BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS sessions_session ON sessions (session);
"""
_KNOWN = "SELECT 1 FROM turn_keys JOIN turns USING (number) WHERE space = ? AND key = ? AND digest = ?"


class SQLiteTurnStore:
    """Turns in a file, with the newest in memory before it. One thread writes; any thread reads."""

    distant = False

    waits = True

    def __init__(
        self, path: str | os.PathLike[str], *, max_bytes: int = 2 * 1024**3, memory_bytes: int = 64 * 1024 * 1024
    ) -> None:
        if max_bytes <= 0:
            raise ValueError("max_bytes must be positive")
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._max_bytes = max_bytes
        self._recent = MemoryTurnStore(max_bytes=min(memory_bytes, max_bytes))
        self._database = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=NORMAL")
        self._database.execute("PRAGMA foreign_keys=ON")
        self._database.executescript(_SCHEMA)
        # Readers have a connection of their own, so that they never wait for the writer.
        self._reader = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
        self._reading = Lock()
        self._size: int = self._database.execute("SELECT COALESCE(SUM(size), 0) FROM turns").fetchone()[0]
        self._todo: queue.Queue[tuple[Callable[[], None], Future[None]] | None] = queue.Queue(_WAITING)
        self._writer = Thread(target=self._write_all, name="turnstore", daemon=True)
        self._writer.start()

    def put(self, space: str, keys: Sequence[str], turn: StoredTurn) -> Future[None] | None:
        if not keys or turn.size > self._max_bytes:
            return None
        self._recent.put(space, keys, turn)
        return self._later(lambda: self._write(space, tuple(keys), turn))

    def put_session(self, session: str, digests: bytes) -> Future[None] | None:
        """Keep the digests of a session's newest turn."""
        return self._later(lambda: self._write_session(_digest(session), digests))

    def session(self, session: str) -> list[bytes]:
        """The digests of a session's last turns, newest first."""
        try:
            with self._reading:
                rows = self._reader.execute(
                    "SELECT digests FROM sessions WHERE session = ? ORDER BY number DESC LIMIT ?",
                    (_digest(session), _SAME_KEY),
                ).fetchall()
        except sqlite3.Error as error:
            log.warning("the turn store cannot be read: %s", error)
            return []
        return [bytes(row[0]) for row in rows]

    def _later(self, work: Callable[[], None]) -> Future[None] | None:
        done: Future[None] = Future()
        try:
            self._todo.put_nowait((work, done))
        except queue.Full:
            log.warning("the turn store's disk is too slow; a turn is kept in memory only")
            return None
        return done

    def get(self, space: str, key: str) -> tuple[StoredTurn, ...]:
        found = self._recent.get(space, key)
        if found:
            return found
        try:
            with self._reading:
                rows = self._reader.execute(
                    "SELECT ids, text, shape, tail FROM turn_keys JOIN turns USING (number)"
                    " WHERE space = ? AND key = ? ORDER BY number DESC LIMIT ?",
                    (space, key, _SAME_KEY),
                ).fetchall()
        except sqlite3.Error as error:
            log.warning("the turn store cannot be read: %s", error)
            return ()
        return tuple(_turn(*row) for row in rows)

    def close(self) -> None:
        """Write what is waiting and close the file."""
        if self._writer.is_alive():
            self._todo.put(None)
            self._writer.join()
        self._database.close()
        self._reader.close()

    def _write_all(self) -> None:
        while (item := self._todo.get()) is not None:
            work, done = item
            try:
                work()
            except sqlite3.Error as error:
                log.warning("a turn was not written to the turn store: %s", error)
            finally:
                done.set_result(None)

    def _write_session(self, session: bytes, digests: bytes) -> None:
        with self._database as database:
            database.execute("BEGIN IMMEDIATE")
            number = database.execute(
                "INSERT INTO sessions (session, digests) VALUES (?, ?)", (session, digests)
            ).lastrowid
            database.execute(
                "DELETE FROM sessions WHERE session = ? AND number NOT IN"
                " (SELECT number FROM sessions WHERE session = ? ORDER BY number DESC LIMIT ?)",
                (session, session, _SAME_KEY),
            )
            database.execute("DELETE FROM sessions WHERE number <= ?", ((number or 0) - _SESSIONS,))

    def _write(self, space: str, keys: tuple[str, ...], turn: StoredTurn) -> None:
        ids, text = _bytes(turn.ids), turn.text.encode("utf-8", "surrogatepass")
        digest = blake2b(ids + turn.shape, digest_size=16).digest()
        with self._database as database:
            database.execute("BEGIN IMMEDIATE")
            missing = [key for key in keys if database.execute(_KNOWN, (space, key, digest)).fetchone() is None]
            if not missing:
                return
            number = database.execute(
                "INSERT INTO turns (digest, ids, text, shape, tail, size) VALUES (?, ?, ?, ?, ?, ?)",
                (digest, ids, text, turn.shape, turn.tail, turn.size),
            ).lastrowid
            database.executemany(
                "INSERT OR IGNORE INTO turn_keys VALUES (?, ?, ?)", [(space, key, number) for key in missing]
            )
            self._size += turn.size
            while self._size > self._max_bytes:
                oldest = database.execute("SELECT number, size FROM turns ORDER BY number LIMIT 1").fetchone()
                if oldest is None:  # another process has been dropping turns too
                    self._size = 0
                    break
                database.execute("DELETE FROM turns WHERE number = ?", (oldest[0],))
                self._size -= oldest[1]


def _digest(session: str) -> bytes:
    return blake2b(session.encode("utf-8", "surrogatepass"), digest_size=20).digest()


def _turn(ids: bytes, text: bytes, shape: bytes, tail: str | None) -> StoredTurn:
    found: array[int] = array("I")
    found.frombytes(ids)
    if sys.byteorder == "big":
        found.byteswap()
    return StoredTurn(ids=found, text=text.decode("utf-8", "surrogatepass"), shape=shape, tail=tail)


def _bytes(ids: array[int]) -> bytes:
    if sys.byteorder == "little":
        return ids.tobytes()
    swapped = array("I", ids)
    swapped.byteswap()
    return swapped.tobytes()
