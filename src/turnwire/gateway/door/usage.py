"""What each key has used, by day: turns and tokens, for its budget, the operator and the bill.

Promise: counted once per turn, when it is over, cancelled and failed ones included. In a file, counts outlive the
process and add up over all processes that share it; the event loop never waits for the disk.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import msgspec

from turnwire.gateway.door.keys import Key
from turnwire.gateway.stores.store import StoreError
from turnwire.protocols.wire import TurnFailure

__all__ = ["UsageLedger", "UsageRow", "UsedTokens"]

log = logging.getLogger("turnwire.usage")

_KEPT_DAYS = 400
_DAY_S = 86_400
_FIRST_DAY = date(1970, 1, 1).toordinal()


class UsedTokens(msgspec.Struct):
    """Turns and tokens. `cached` are those of `prompt` that the engine did not have to read."""

    turns: int = 0
    prompt: int = 0
    cached: int = 0
    output: int = 0

    @property
    def worked(self) -> int:
        """The tokens that engines worked for; budgets count these."""
        return self.prompt - self.cached + self.output

    def add(self, other: UsedTokens) -> None:
        """Count these too."""
        self.turns += other.turns
        self.prompt += other.prompt
        self.cached += other.cached
        self.output += other.output


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """One key's day (UTC)."""

    day: str
    key: str
    turns: int
    prompt: int
    cached: int
    output: int


class UsageLedger:
    """Counts by key and day, kept in the file `path` or, without one, while the process lives. `clock` gives seconds
    since 1970."""

    def __init__(self, path: str | None = None, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        # The day that turns were counted for last, by its number and by its name.
        self._day = (-1, "")
        self._days: dict[tuple[str, str], UsedTokens] = {}
        self._pending: dict[tuple[str, str], UsedTokens] = {}
        self._writing: asyncio.Future[dict[tuple[str, str], UsedTokens]] | None = None
        self._thread: ThreadPoolExecutor | None = None
        if path is not None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="usage")
            try:
                self._database = self._thread.submit(self._open, path).result()
                self._days = self._thread.submit(self._read).result()
            except (OSError, sqlite3.Error) as error:
                raise StoreError(f"The usage file {path} cannot be opened: {error}") from None

    def count(self, key: str, *, prompt: int, cached: int, output: int) -> None:
        """A turn of a key is over."""
        used = UsedTokens(1, prompt, cached, output)
        number = int(self._clock() // _DAY_S)
        if number != self._day[0]:
            self._day = number, date.fromordinal(_FIRST_DAY + number).isoformat()
        slot = (self._day[1], key)
        before = self._days.get(slot)
        if before is not None:
            before.add(used)
        else:
            self._days[slot] = msgspec.structs.replace(used)
            if self._thread is None:
                self._forget_old(self._days)
        if self._thread is not None:
            self._pending.setdefault(slot, UsedTokens()).add(used)
            self._write()

    def check(self, key: Key) -> None:
        """Raise TurnFailure if a key's budget is used up. A turn that began within it may end beyond it."""
        if key.tokens_per_day is None and key.tokens_per_month is None:
            return
        now = self._now()
        midnight = datetime(now.year, now.month, now.day, tzinfo=UTC) + timedelta(days=1)
        month_end = (now.replace(day=1) + timedelta(days=32)).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        for limit, prefix, end, span in (
            (key.tokens_per_day, now.date().isoformat(), midnight, "day"),
            (key.tokens_per_month, f"{now:%Y-%m}", month_end, "month"),
        ):
            if limit is not None and (used := self._spent(key.name, prefix)) >= limit:
                raise TurnFailure(
                    "rate_limited",
                    f"The key '{key.name}' has used its budget of {limit:,} tokens a {span} ({used:,} used); "
                    f"there is more from {end:%Y-%m-%d %H:%M} UTC.",
                    retry_after=max(1.0, (end - now).total_seconds()),
                )

    def rows(self, days: int = 31) -> list[UsageRow]:
        """The last days, newest first."""
        first = (self._now() - timedelta(days=days - 1)).date().isoformat()
        return [
            UsageRow(day=day, key=key, **msgspec.structs.asdict(used))
            for (day, key), used in sorted(self._days.items(), reverse=True)
            if day >= first
        ]

    async def close(self) -> None:
        """Write what is not written yet."""
        if self._thread is None:
            return
        while self._writing is not None or self._pending:
            if self._writing is None:
                self._write()
            else:
                await asyncio.wait([self._writing])
                await asyncio.sleep(0)
        await asyncio.get_running_loop().run_in_executor(self._thread, self._database.close)
        self._thread.shutdown()

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)

    def _spent(self, key: str, prefix: str) -> int:
        return sum(used.worked for (day, name), used in self._days.items() if name == key and day.startswith(prefix))

    def _forget_old(self, days: dict[tuple[str, str], UsedTokens]) -> None:
        first = (self._now() - timedelta(days=_KEPT_DAYS)).date().isoformat()
        for slot in [slot for slot in days if slot[0] < first]:
            del days[slot]

    # ------------------------------------------------------------------------------------------------------ the file

    @staticmethod
    def _open(path: str) -> sqlite3.Connection:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        database = sqlite3.connect(path, timeout=10, isolation_level=None)
        database.execute("PRAGMA journal_mode=WAL")
        database.execute(
            "CREATE TABLE IF NOT EXISTS usage (day TEXT, key TEXT, turns INTEGER, prompt INTEGER, cached INTEGER,"
            " output INTEGER, PRIMARY KEY (day, key)) WITHOUT ROWID"
        )
        return database

    def _write(self) -> None:
        """Hand what is pending to the thread, once at a time: turns that end meanwhile are written together."""
        if self._writing is not None or not self._pending:
            return
        pending, self._pending = self._pending, {}
        self._writing = asyncio.get_running_loop().run_in_executor(self._thread, self._put, pending)
        self._writing.add_done_callback(self._written)

    def _written(self, writing: asyncio.Future[dict[tuple[str, str], UsedTokens]]) -> None:
        self._writing = None
        if writing.cancelled():
            return
        if (error := writing.exception()) is not None:
            log.error("usage could not be written: %s", error)
        else:
            # Other processes count in the same file: what they wrote counts here from now on.
            self._days = writing.result()
            for slot, used in self._pending.items():
                self._days.setdefault(slot, UsedTokens()).add(used)
        self._write()

    def _put(self, pending: dict[tuple[str, str], UsedTokens]) -> dict[tuple[str, str], UsedTokens]:
        """Add what is pending; what the file holds then."""
        self._database.executemany(
            "INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (day, key) DO UPDATE SET"
            " turns = turns + excluded.turns, prompt = prompt + excluded.prompt,"
            " cached = cached + excluded.cached, output = output + excluded.output",
            [(*slot, *msgspec.structs.astuple(used)) for slot, used in pending.items()],
        )
        return self._read()

    def _read(self) -> dict[tuple[str, str], UsedTokens]:
        first = (self._now() - timedelta(days=_KEPT_DAYS)).date().isoformat()
        self._database.execute("DELETE FROM usage WHERE day < ?", (first,))
        found = self._database.execute("SELECT day, key, turns, prompt, cached, output FROM usage")
        return {(day, key): UsedTokens(*numbers) for day, key, *numbers in found}
