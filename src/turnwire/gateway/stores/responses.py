"""Responses that outlive their request: running ones in memory, finished ones in the store.

Promise: a response can be asked for from before its first byte is sent; a request that continues a response which is
still being finished waits for it, so that no client can be faster than the store. Tenants never see each other's.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Protocol

import msgspec
import zstandard

from turnwire.gateway.stores.store import Store
from turnwire.protocols.responses import RequestBody, Stored, StoredResponse, continued
from turnwire.protocols.responses.stored import MAX_CHAIN

__all__ = ["ResponseLog", "ResponseStore", "RunningResponse", "turn_of"]

_PACK = zstandard.ZstdCompressor(level=3)
_MAX_ENTRY = 256 * 1024 * 1024
_MAX_FRAMES = 4 * 1024 * 1024
_KEPT_LOGS = 64
_FINISH_S = 60.0
# A background response that is still marked as running after this long has lost its gateway.
_STALE_S = 3600


class Writer(Protocol):
    """What is needed of an encoder: the response object as far as it is known."""

    @property
    def document(self) -> bytes: ...


class RunningResponse(msgspec.Struct, kw_only=True):
    """A response whose turn is running. `writer` knows its document; a background one has a `task`, and a `log` of its
    frames for readers that come later."""

    id: str
    tenant: str
    created: int
    input_items: tuple[dict[str, Any], ...]
    writer: Writer
    previous: str | None = None
    task: asyncio.Task[None] | None = None
    log: ResponseLog | None = None
    done: asyncio.Event = msgspec.field(default_factory=asyncio.Event)

    def stored(self) -> StoredResponse:
        """The response as it stands."""
        return StoredResponse(
            id=self.id,
            created=self.created,
            document=self.writer.document,
            input_items=self.input_items,
            previous_response_id=self.previous,
        )


class ResponseLog:
    """The frames of a background response: a sink for its turn, and a source for any number of readers."""

    def __init__(self) -> None:
        self._frames: list[bytes] | None = []
        self._size = 0
        self._over = False
        self._news = asyncio.Event()

    # A turn writes here instead of to a client.

    full = False

    def attach(self, reader: object) -> None:
        """Nobody falls behind here, and nobody leaves."""

    def open(self) -> None:
        """Nothing is sent before somebody reads."""

    def write(self, data: bytes) -> None:
        """Keep the frames; beyond the bound the stream can no longer be read from its start."""
        self._size += len(data)
        if self._frames is not None:
            self._frames.append(data)
            if self._size > _MAX_FRAMES:
                self._frames = None
        self._tell()

    def finish(self) -> None:
        """No more frames will come."""
        self._over = True
        self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    @property
    def readable(self) -> bool:
        """Whether all frames are still here."""
        return self._frames is not None

    async def frames(self, after: int) -> AsyncIterator[bytes]:
        """The events from sequence number `after` + 1 on, as they come, to the end of the response."""
        at, seen = 0, -1
        while self._frames is not None:
            news = self._news
            batch = b"".join(self._frames[at:])
            at = len(self._frames)
            if seen < after:
                events = batch.split(b"\n\n")[:-1]
                skipped = min(len(events), after - seen)
                seen += skipped
                batch = b"".join(event + b"\n\n" for event in events[skipped:])
            if batch:
                yield batch
            elif self._over:
                return
            else:
                await news.wait()


def turn_of(item_id: str) -> str | None:
    """The turn that an item belongs to, by the form of the ids we give."""
    _, _, rest = item_id.partition("_")
    turn, cut, number = rest.rpartition("_")
    return turn if cut and number.removeprefix("in").isdigit() else None


class ResponseStore:
    """All responses that can be asked for by id."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._running: dict[tuple[str, str], RunningResponse] = {}
        self._logs: OrderedDict[tuple[str, str], ResponseLog] = OrderedDict()

    # -------------------------------------------------------------------------------------------------- running

    def begin(self, running: RunningResponse) -> None:
        """From now on the response can be asked for."""
        self._running[running.tenant, running.id] = running

    def end(self, running: RunningResponse) -> None:
        """The turn is over; what is to be kept of it has been put."""
        self._running.pop((running.tenant, running.id), None)
        running.done.set()
        if running.log is not None:
            running.log.finish()

    def keep_log(self, running: RunningResponse, log: ResponseLog) -> None:
        """Let a background response's frames be read for a while after its end."""
        running.log = self._logs[running.tenant, running.id] = log
        while len(self._logs) > _KEPT_LOGS:
            self._logs.popitem(last=False)

    def in_background(self, tenant: str) -> int:
        """How many background turns a tenant has."""
        return sum(1 for one in self._running.values() if one.tenant == tenant and one.task is not None)

    def running(self, tenant: str, response_id: str) -> RunningResponse | None:
        """The response if its turn is running."""
        return self._running.get((tenant, response_id))

    def log(self, tenant: str, response_id: str) -> ResponseLog | None:
        """The frames of a background response, where they are still here."""
        return self._logs.get((tenant, response_id))

    async def stop(self) -> None:
        """End every background turn; each is kept as cancelled."""
        tasks = [one.task for one in self._running.values() if one.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -------------------------------------------------------------------------------------------------- finished

    async def put(self, tenant: str, response: StoredResponse) -> None:
        """Keep a response."""
        packed = _PACK.compress(msgspec.msgpack.encode(response))
        await self._store.put(_space(tenant), response.id, packed)

    async def get(self, tenant: str, response_id: str) -> StoredResponse | None:
        """The response as it stands now."""
        running = self._running.get((tenant, response_id))
        if running is not None:
            return running.stored()
        data = await self._store.get(_space(tenant), response_id)
        if data is None:
            return None
        response: StoredResponse = _STORED.decode(
            zstandard.ZstdDecompressor().decompress(data, max_output_size=_MAX_ENTRY)
        )
        return self._not_stale(response)

    def _not_stale(self, response: StoredResponse) -> StoredResponse:
        if self._clock() - response.created < _STALE_S or response.status not in ("queued", "in_progress"):
            return response
        document = msgspec.json.decode(response.document)
        document["status"] = "failed"
        document["error"] = {"code": "server_error", "message": "The gateway that ran this response went away."}
        return msgspec.structs.replace(response, document=msgspec.json.encode(document))

    async def delete(self, tenant: str, response_id: str) -> bool:
        """Forget a response; a running one is called off first."""
        running = self._running.get((tenant, response_id))
        if running is not None and running.task is not None:
            running.task.cancel()
            await running.done.wait()
        self._logs.pop((tenant, response_id), None)
        return await self._store.delete(_space(tenant), response_id)

    async def chain(self, tenant: str, response_id: str) -> tuple[list[StoredResponse], str | None]:
        """The response and all before it, oldest first, and the one at which the chain broke off because it is gone."""
        chain: list[StoredResponse] = []
        wanted: str | None = response_id
        missing: str | None = None
        while wanted is not None and len(chain) < MAX_CHAIN:
            await self._settled(tenant, wanted)
            response = await self.get(tenant, wanted)
            if response is None:
                missing = wanted
                break
            chain.append(response)
            wanted = response.previous_response_id
        chain.reverse()
        return chain, missing

    async def items(self, tenant: str, item_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Items of kept responses by id; the unknown are left out."""
        found: dict[str, dict[str, Any]] = {}
        wanted = set(item_ids)
        for turn in dict.fromkeys(turn for item_id in item_ids if (turn := turn_of(item_id)) is not None):
            await self._settled(tenant, f"resp_{turn}")
            response = await self.get(tenant, f"resp_{turn}")
            if response is not None:
                for item in (*response.input_items, *response.output_items):
                    if item.get("id") in wanted:
                        found[item["id"]] = item
        return found

    async def resolve(self, tenant: str, request: RequestBody) -> Stored | None:
        """What a request refers to."""
        if request.previous_response_id is None and not request.references:
            return None
        items = await self.items(tenant, request.references)
        if request.previous_response_id is None:
            return Stored(items=items)
        return continued(*await self.chain(tenant, request.previous_response_id), items)

    async def _settled(self, tenant: str, response_id: str) -> None:
        """Wait for a response whose last bytes are on their way to the store."""
        running = self._running.get((tenant, response_id))
        if running is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(running.done.wait(), _FINISH_S)


_STORED = msgspec.msgpack.Decoder(StoredResponse)


def _space(tenant: str) -> str:
    return f"{tenant}/responses"
