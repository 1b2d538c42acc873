"""Responses that outlive their request: running ones in memory, finished ones in the store.

Promise: a response can be asked for from before its first byte is sent; a request that continues a response which is
still being finished waits for it, so that no client can be faster than the store. Tenants never see each other's. Of
several gateways one at a time may write a background response: the one that runs it, until its lease is seized to
cancel it, or has run out because it died.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

import msgspec

from turnwire.gateway.stores.following import Following
from turnwire.gateway.stores.packed_responses import ResponsePacking
from turnwire.gateway.stores.store import Store, StoreError
from turnwire.protocols.fields.decoded import DecodedParts
from turnwire.protocols.responses import RequestBody, ResponseJson, Stored, StoredResponse, continued
from turnwire.protocols.responses.stored import MAX_CHAIN

__all__ = ["ResponseLog", "ResponseStore", "RunningResponse", "turn_of"]

log = logging.getLogger("turnwire.responses")

_MAX_FRAMES = 4 * 1024 * 1024
_KEPT_LOGS = 64
_FINISH_S = 60.0
_RUNNING = frozenset({"queued", "in_progress"})
# Who holds the lease of a response whose gateway died, and of one that is to be cancelled or forgotten.
_DEAD, _CANCELLED, _DELETED = "dead", "cancelled", "deleted"
_FOREVER_S = 30 * 24 * 3600.0


class Writer(Protocol):
    """What is needed of an encoder: the response object as far as it is known."""

    @property
    def response(self) -> ResponseJson: ...


class RunningResponse(msgspec.Struct, kw_only=True):
    """A response whose turn is running. `writer` knows its document; a background one has a `task`, and a `log` of its
    frames for readers that come later, and the name of its `holder`. `done` is set at its end, where somebody waits for
    it."""

    id: str
    tenant: str
    created: int
    input_items: tuple[dict[str, Any], ...]
    writer: Writer
    previous: str | None = None
    task: asyncio.Task[None] | None = None
    log: ResponseLog | None = None
    holder: str | None = None
    done: asyncio.Event | None = None

    async def ended(self) -> None:
        """Wait for the end of its turn, which has not ended yet."""
        if self.done is None:
            self.done = asyncio.Event()
        await self.done.wait()

    def stored(self) -> StoredResponse:
        """The response as it stands."""
        return self.around(self.writer.response.json)

    def around(self, document: bytes) -> StoredResponse:
        """The response with its document."""
        return StoredResponse(
            id=self.id,
            created=self.created,
            document=document,
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

    write_last = write

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

    # How long a lease lasts, how often it is renewed, and how long to wait for another gateway to cancel, in seconds.
    LEASE_S = 15.0
    TEND_S = 1.0
    CANCEL_S = 4.0

    def __init__(self, store: Store, parts: DecodedParts | None = None) -> None:
        self._store = store
        # Packed items have their room among the decoded ones.
        self._packing = ResponsePacking(parts if parts is not None else DecodedParts())
        self._holder = f"gateway-{secrets.token_hex(8)}"
        self._tending: asyncio.Task[None] | None = None
        self._running: dict[tuple[str, str], RunningResponse] = {}
        self._logs: OrderedDict[tuple[str, str], ResponseLog] = OrderedDict()
        self._following = Following(store, self.log, self._document, self._look_at_leases)

    # -------------------------------------------------------------------------------------------------- running

    def begin(self, running: RunningResponse) -> None:
        """From now on the response can be asked for."""
        self._running[running.tenant, running.id] = running

    def end(self, running: RunningResponse) -> None:
        """The turn is over; what is to be kept of it has been put."""
        self._running.pop((running.tenant, running.id), None)
        if running.done is not None:
            running.done.set()
        if running.log is not None:
            running.log.finish()

    def keep_log(self, running: RunningResponse, log: ResponseLog) -> None:
        """Let a background response's frames be read for a while after its end."""
        running.log = self._logs[running.tenant, running.id] = log
        while len(self._logs) > _KEPT_LOGS:
            self._logs.popitem(last=False)
        self._following.begin()

    async def begin_background(self, running: RunningResponse) -> StoredResponse:
        """Take the lease of a background response and keep it as it is before its turn starts."""
        running.holder = await self._store.lease(_space(running.tenant), running.id, self._holder, self.LEASE_S)
        first = running.stored()
        await self.put(running.tenant, first, holder=running.holder)
        if self._tending is None or self._tending.done():
            self._tending = asyncio.create_task(self._tend())
        return first

    async def _tend(self) -> None:
        """Renew the leases of background turns; end those that another gateway has seized."""
        while self._held:
            await self._look_at_leases()
            await asyncio.sleep(self.TEND_S)

    @property
    def _held(self) -> list[RunningResponse]:
        return [one for one in self._running.values() if one.holder == self._holder]

    async def _look_at_leases(self) -> None:
        for one in self._held:
            try:
                holder = await self._store.lease(_space(one.tenant), one.id, self._holder, self.LEASE_S)
            except StoreError:
                continue
            if holder != self._holder:
                # From here on its words are those of whoever seized it: to forget it, or to declare it dead, is to
                # have no more of them.
                one.holder = holder
                if one.task is not None:
                    one.task.cancel()

    def in_background(self, tenant: str) -> int:
        """How many background turns a tenant has."""
        return sum(1 for one in self._running.values() if one.tenant == tenant and one.task is not None)

    def running(self, tenant: str, response_id: str) -> RunningResponse | None:
        """The response if its turn is running."""
        return self._running.get((tenant, response_id))

    def log(self, tenant: str, response_id: str) -> ResponseLog | None:
        """The frames of a background response, where they are still here."""
        return self._logs.get((tenant, response_id))

    async def follow(self, tenant: str, response_id: str, after: int) -> AsyncIterator[bytes] | None:
        """The events of a background response after one of them, from whichever gateway has them; None where none
        has."""
        log = self.log(tenant, response_id)
        if log is not None:
            return log.frames(after) if log.readable else None
        return await self._following.follow(tenant, response_id, after)

    async def _document(self, tenant: str, response_id: str) -> dict[str, Any] | None:
        response = await self.get(tenant, response_id)
        return None if response is None else msgspec.json.decode(response.document)

    async def stop(self) -> None:
        """End every background turn; each is kept as cancelled."""
        self._following.stop()
        if self._tending is not None:
            self._tending.cancel()
        tasks = [one.task for one in self._running.values() if one.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -------------------------------------------------------------------------------------------------- finished

    async def put(self, tenant: str, response: StoredResponse, *, holder: str | None = None) -> None:
        """Keep a response; with `holder`, only if that one has its lease."""
        await self._put(tenant, response.id, await self._packing.pack(response), holder)

    async def _put(self, tenant: str, response_id: str, packed: bytes, holder: str | None) -> None:
        if not await self._store.put(_space(tenant), response_id, packed, holder=holder):
            log.warning("response %s was given up while it ran; its end is not kept", response_id)

    async def keep(self, running: RunningResponse) -> None:
        """Keep a running response as it stands."""
        # As it is now: the lease may be seized while the response is packed.
        holder = running.holder
        if holder not in (_DEAD, _DELETED):
            packed = await self._packing.pack(running.around(b""), running.writer.response)
            await self._put(running.tenant, running.id, packed, holder)

    async def get(self, tenant: str, response_id: str) -> StoredResponse | None:
        """The response as it stands now."""
        running = self._running.get((tenant, response_id))
        if running is not None:
            return running.stored()
        response = await self._read(tenant, response_id)
        if response is None or response.status not in _RUNNING:
            return response
        if await self._store.lease(_space(tenant), response_id, _DEAD, _FOREVER_S) != _DEAD:
            return response
        # It may have ended between our reading and its lease running out.
        response = await self._read(tenant, response_id)
        if response is None or response.status not in _RUNNING:
            return response
        failed = _ended(response, "failed", "The gateway that ran this response went away.")
        await self.put(tenant, failed, holder=_DEAD)
        return failed

    async def _read(self, tenant: str, response_id: str) -> StoredResponse | None:
        data = await self._store.get(_space(tenant), response_id)
        return None if data is None else await self._packing.unpack(data)

    async def cancel(self, tenant: str, response_id: str) -> StoredResponse | None:
        """End a background response, whichever gateway runs it; the response as it then is."""
        running = self._running.get((tenant, response_id))
        if running is not None and running.task is not None:
            running.task.cancel()
            await running.ended()
        response = await self.get(tenant, response_id)
        if running is not None or response is None or response.status not in _RUNNING:
            return response
        await self._store.lease(_space(tenant), response_id, _CANCELLED, _FOREVER_S, seize=True)
        await self._following.wake()
        for _ in range(round(self.CANCEL_S / 0.1)):
            response = await self._read(tenant, response_id)
            if response is None or response.status not in _RUNNING:
                return response
            await asyncio.sleep(0.1)
        cancelled = _ended(response, "cancelled")
        await self.put(tenant, cancelled, holder=_CANCELLED)
        return cancelled

    async def delete(self, tenant: str, response_id: str) -> bool:
        """Forget a response; a running one is called off first."""
        running = self._running.get((tenant, response_id))
        if running is not None and running.task is not None:
            running.task.cancel()
            await running.ended()
        elif running is None:
            known = await self._read(tenant, response_id)
            if known is not None and known.status in _RUNNING:
                await self._store.lease(_space(tenant), response_id, _DELETED, _FOREVER_S, seize=True)
                await self._following.wake()
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
                for item in (*response.shown_items, *response.output_items):
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
                await asyncio.wait_for(running.ended(), _FINISH_S)


def _ended(response: StoredResponse, status: str, error: str | None = None) -> StoredResponse:
    document = msgspec.json.decode(response.document)
    document["status"] = status
    if error is not None:
        document["error"] = {"code": "server_error", "message": error}
    return msgspec.structs.replace(response, document=msgspec.json.encode(document))


def _space(tenant: str) -> str:
    return f"{tenant}/responses"
