"""Summaries of turns on their way into a store's journal and back.

Promise: a turn that ends costs the event loop one put into a queue. A thread writes what came in a quarter of a second
together; while the store is away it waits, and what is over the bound is dropped and said in the log. Whoever reads
never fails because of the store: what cannot be had is left out. An entry that this version cannot read is passed over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import secrets
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from threading import Event, Lock, Thread
from typing import TypeVar

import msgspec

from turnwire.gateway.stores.journal import JournalEntry, JournalStore
from turnwire.gateway.stores.store import StoreUnavailable
from turnwire.gateway.telemetry.journal import TurnFilter, TurnSummary

__all__ = ["FoundTurn", "KeptTurns", "joined"]

log = logging.getLogger("turnwire.journal")

T = TypeVar("T")

_BATCH = 500
_CHUNK = 200
_LARGEST = 1 << 20


class _Named(msgspec.Struct):
    """As much of a summary as says whether it is wanted."""

    turn_id: str = ""
    session: str | None = None
    model: str = ""


_SUMMARY = msgspec.json.Decoder(TurnSummary)
_NAMED = msgspec.json.Decoder(_Named)
_ALL = TurnFilter()


class FoundTurn(msgspec.Struct, frozen=True):
    """A turn of the journal, and its place there."""

    place: str
    summary: TurnSummary


class KeptTurns:
    """The summaries that a store keeps, of this process (`origin`) and of others."""

    # How long turns are gathered, and how long a store that does not answer is left alone, in seconds; how many turns
    # wait for it.
    GATHER_S = 0.25
    PAUSE_S = 1.0
    WAITING = 5_000
    # Between two chunks of a search, so that running turns have the processor.
    YIELD_S = 0.001

    def __init__(self, store: JournalStore) -> None:
        self._store = store
        self.origin = secrets.token_hex(4)
        self._waiting: queue.Queue[TurnSummary | None] = queue.Queue(self.WAITING)
        self._closing = Event()
        self._starting = Lock()
        self._writer: Thread | None = None
        self._dropped = 0
        self._away = False

    # ------------------------------------------------------------------------------------------------------ writing

    def add(self, summary: TurnSummary) -> None:
        """Keep a turn, some time soon."""
        try:
            self._waiting.put_nowait(summary)
        except queue.Full:
            self._dropped += 1
            return
        if self._writer is None:
            with self._starting:
                if self._writer is None and not self._closing.is_set():
                    self._writer = Thread(target=self._write_all, name="journal", daemon=True)
                    self._writer.start()

    def _write_all(self) -> None:
        while (first := self._waiting.get()) is not None:
            self._closing.wait(self.GATHER_S)
            batch = [first, *self._gathered()]
            if not self._written([zlib.compress(msgspec.json.encode(summary), 1) for summary in batch]):
                self._dropped += len(batch) + len(self._gathered(self.WAITING))
            if self._dropped:
                log.warning("the summaries of %d turns were not kept: the store was away, or too slow", self._dropped)
                self._dropped = 0
            if self._closing.is_set() and self._waiting.empty():
                return

    def _gathered(self, most: int = _BATCH - 1) -> list[TurnSummary]:
        """What waits now."""
        found: list[TurnSummary] = []
        while len(found) < most:
            try:
                item = self._waiting.get_nowait()
            except queue.Empty:
                break
            if item is not None:
                found.append(item)
        return found

    def _written(self, values: Sequence[bytes]) -> bool:
        """Write these as soon as the store takes them; False if the gateway ends before that."""
        while True:
            last = self._closing.is_set()
            try:
                self._store.write(self.origin, values)
            except StoreUnavailable as error:
                self._missed(error)
                if last:
                    return False
                self._closing.wait(self.PAUSE_S)
            else:
                self._away = False
                return True

    def _missed(self, error: StoreUnavailable) -> None:
        if not self._away:
            log.warning("the journal of turns does not answer: %s", error.why)
        self._away = True

    def close(self) -> None:
        """Write what waits, if the store takes it now, and close the store."""
        self._closing.set()
        with self._starting:
            writer = self._writer
        if writer is not None:
            # A queue that is full wakes the writer anyway.
            with contextlib.suppress(queue.Full):
                self._waiting.put_nowait(None)
            writer.join()
        self._store.close()

    # ------------------------------------------------------------------------------------------------------ reading

    async def page(self, wanted: TurnFilter, limit: int, place: str | None = None) -> list[FoundTurn]:
        """The turns that are wanted, newest first, from a place or from the newest on: one more than `limit`, where
        there are more."""
        return await asyncio.to_thread(self._page, wanted, limit, place)

    def _page(self, wanted: TurnFilter, limit: int, place: str | None) -> list[FoundTurn]:
        found: list[FoundTurn] = []
        entries = self._read(lambda: self._store.back(place, _CHUNK))
        while entries:
            for entry in entries:
                summary = _opened(entry, wanted)
                if summary is not None:
                    found.append(FoundTurn(entry.place, summary))
                    if len(found) > limit:
                        return found
            if len(entries) < _CHUNK:
                break
            time.sleep(self.YIELD_S)
            entries = self._read(lambda last=entries[-1].place: self._store.back(last, _CHUNK, inclusive=False))  # type: ignore[misc]
        return found

    async def newest(self) -> str:
        """The place at which the journal ends now."""
        places = await asyncio.to_thread(self._read, lambda: [self._store.newest()])
        return places[0] if places else ""

    async def others_after(self, place: str) -> tuple[list[TurnSummary], str]:
        """The turns of other processes after a place, oldest first, and the place of the last."""
        entries = await asyncio.to_thread(self._read, lambda: self._store.after(place, _BATCH))
        theirs = [_opened(entry, _ALL) for entry in entries if entry.origin != self.origin]
        return [summary for summary in theirs if summary is not None], entries[-1].place if entries else place

    def _read(self, work: Callable[[], list[T]]) -> list[T]:
        try:
            return work()
        except StoreUnavailable as error:
            self._missed(error)
            return []


def _opened(entry: JournalEntry, wanted: TurnFilter) -> TurnSummary | None:
    """The summary in an entry, if it is wanted and can be read."""
    try:
        text = zlib.decompressobj().decompress(entry.value, _LARGEST)
        if wanted != _ALL:
            named = _NAMED.decode(text)
            if not wanted.fits(named.turn_id, named.session, named.model):
                return None
        return _SUMMARY.decode(text)
    except (zlib.error, msgspec.MsgspecError):
        return None


def joined(
    found: Sequence[FoundTurn], remembered: Iterable[TurnSummary], limit: int
) -> tuple[list[TurnSummary], str | None]:
    """What the journal has and what processes remember, each turn once, newest first; and the place from which the
    journal goes on, if it does. Pages follow the order of writing: each goes on where the last one ended, whatever the
    clocks of gateways say."""
    known = {one.summary.turn_id for one in found}
    extra = list({summary.turn_id: summary for summary in remembered if summary.turn_id not in known}.values())
    if len(found) > limit:
        # What is older than this page is on a later one.
        extra = [summary for summary in extra if summary.at > found[limit - 1].summary.at]
    extra = sorted(extra, key=_newest_first)[:limit]
    taken = min(limit - len(extra), len(found))
    turns = sorted([*extra, *(one.summary for one in found[:taken])], key=_newest_first)
    return turns, found[taken].place if taken < len(found) else None


def _newest_first(summary: TurnSummary) -> float:
    return -summary.at
