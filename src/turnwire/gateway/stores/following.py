"""Background responses followed at a gateway that does not run them.

Promise: the events are those of the gateway that runs the response, from the one that was asked for, none missing and
none twice; nothing is sent while nobody follows. Where that gateway dies, the stream ends with what is stored of the
response then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

import msgspec

from turnwire.gateway.stores.store import Store, StoreError

__all__ = ["Following"]

log = logging.getLogger("turnwire.responses")

_ASKED = "responses/asked"
_LAST = {
    "completed": "response.completed",
    "failed": "response.failed",
    "incomplete": "response.incomplete",
}


class _Asked(msgspec.Struct):
    """What a follower wants: the events after one, or only that those that are being sent go on. Without an `id` it is
    the wish that leases be looked at now."""

    tenant: str = ""
    id: str = ""
    after: int = -1
    renewed: bool = False


class _News(msgspec.Struct):
    """Events that follow the one with the sequence number `after`; `over` with the last of them."""

    after: int
    frames: bytes
    over: bool = False


class Log(Protocol):
    """The events of a response that runs, or ran, here."""

    @property
    def readable(self) -> bool: ...

    def frames(self, after: int) -> AsyncIterator[bytes]: ...


class _Telling:
    """The events of one response on their way to followers elsewhere: at which event it is, and how long it is
    wanted."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.until = 0.0
        self.task: asyncio.Task[None] | None = None


class Following:
    """Both sides of it. `logs` finds the events of a response that runs here, `document` what is stored of one, `look`
    looks at the leases."""

    # How long the first answer may take, how often followers say that they are still there, and how long one is
    # believed to be, in seconds.
    ANSWER_S = 3.0
    RENEW_S = 3.0
    WANTED_S = 10.0

    def __init__(
        self,
        store: Store,
        logs: Callable[[str, str], Log | None],
        document: Callable[[str, str], Awaitable[dict[str, Any] | None]],
        look: Callable[[], Awaitable[None]],
    ) -> None:
        self._store = store
        self._logs = logs
        self._document = document
        self._look = look
        self._answering: asyncio.Task[None] | None = None
        self._telling: dict[tuple[str, str], _Telling] = {}

    # --------------------------------------------------------------------------------------- where a response runs

    def begin(self) -> None:
        """There are responses here that others may want to follow."""
        if not self._store.shared:
            return
        if self._answering is None or self._answering.done():
            self._answering = asyncio.create_task(self._answer())

    def stop(self) -> None:
        """Tell nobody any more."""
        if self._answering is not None:
            self._answering.cancel()
        for telling in self._telling.values():
            if telling.task is not None:
                telling.task.cancel()

    async def _answer(self) -> None:
        while True:
            try:
                letters = await self._store.listen(_ASKED)
                break
            except StoreError:
                await asyncio.sleep(1)
        while True:
            letter = await letters.get()
            with contextlib.suppress(msgspec.MsgspecError, StoreError):
                asked = msgspec.msgpack.decode(letter or b"", type=_Asked)
                if not asked.id:
                    await self._look()
                    continue
                found = self._logs(asked.tenant, asked.id)
                if found is not None and found.readable:
                    self._tell(asked, found)

    def _tell(self, asked: _Asked, found: Log) -> None:
        place, now = (asked.tenant, asked.id), asyncio.get_running_loop().time()
        telling = self._telling.get(place)
        if telling is None or telling.task is None or telling.task.done():
            telling = self._telling[place] = _Telling(asked.after)
        elif not asked.renewed:
            # Once more from there, for all: whoever has these events already passes over them.
            telling.task.cancel()
            telling = self._telling[place] = _Telling(min(telling.at, asked.after))
        telling.until = now + self.WANTED_S
        if telling.task is None:
            telling.task = asyncio.create_task(self._told(place, telling, found))

    async def _told(self, place: tuple[str, str], telling: _Telling, found: Log) -> None:
        topic, loop = _topic(*place), asyncio.get_running_loop()
        try:
            # At once, so that it is known that somebody has them.
            await self._send(topic, _News(telling.at, b""))
            async for batch in found.frames(telling.at):
                if loop.time() > telling.until:
                    return
                await self._send(topic, _News(telling.at, batch))
                telling.at += batch.count(b"\n\n")
            await self._send(topic, _News(telling.at, b"", over=True))
        except StoreError as error:
            log.warning("a response cannot be followed elsewhere: %s", error)
        finally:
            if self._telling.get(place) is telling:
                del self._telling[place]

    async def _send(self, topic: str, news: _News) -> None:
        await self._store.publish(topic, msgspec.msgpack.encode(news))

    # -------------------------------------------------------------------------------------------- where it does not

    async def wake(self) -> None:
        """Have every gateway look at its leases now."""
        await self._store.publish(_ASKED, msgspec.msgpack.encode(_Asked()))

    async def follow(self, tenant: str, response_id: str, after: int) -> AsyncIterator[bytes] | None:
        """The events of a response that another gateway has; None where none has them."""
        if not self._store.shared:
            return None
        letters = await self._store.listen(_topic(tenant, response_id))
        try:
            await self._ask(_Asked(tenant, response_id, after))
            first = await letters.get(self.ANSWER_S)
        except BaseException:
            letters.close()
            raise
        if first is None:
            letters.close()
            return None
        return self._followed(tenant, response_id, after, letters, first)

    async def _followed(
        self, tenant: str, response_id: str, seen: int, letters: Any, letter: bytes | None
    ) -> AsyncIterator[bytes]:
        silences = 0
        clock = asyncio.get_running_loop().time
        renewed = clock()
        try:
            while True:
                if letter is None:
                    silences += 1
                    last = await self._ended(tenant, response_id, seen) if silences > 1 else None
                    if last is not None:
                        yield last
                        return
                else:
                    silences = 0
                    news = msgspec.msgpack.decode(letter, type=_News)
                    if news.after > seen:
                        await self._ask(_Asked(tenant, response_id, seen))
                    else:
                        events = news.frames.split(b"\n\n")[:-1][seen - news.after :]
                        seen += len(events)
                        if events:
                            yield b"".join(event + b"\n\n" for event in events)
                        if news.over and news.after <= seen:
                            return
                if clock() - renewed > self.RENEW_S or letter is None:
                    renewed = clock()
                    await self._ask(_Asked(tenant, response_id, seen, renewed=letter is not None))
                letter = await letters.get(self.RENEW_S)
        finally:
            letters.close()

    async def _ask(self, asked: _Asked) -> None:
        with contextlib.suppress(StoreError):
            await self._store.publish(_ASKED, msgspec.msgpack.encode(asked))

    async def _ended(self, tenant: str, response_id: str, seen: int) -> bytes | None:
        """The last event of a response that has ended without its gateway telling us; None while it runs."""
        try:
            document = await self._document(tenant, response_id)
        except StoreError:
            return None
        if document is None:
            return b""
        kind = _LAST.get(document["status"])
        if kind is None:
            return b"" if document["status"] == "cancelled" else None
        event = {"type": kind, "sequence_number": seen + 1, "response": document}
        return b"event: " + kind.encode() + b"\ndata: " + msgspec.json.encode(event) + b"\n\n"


def _topic(tenant: str, response_id: str) -> str:
    return f"{len(tenant)}:{tenant}/responses/{response_id}"
