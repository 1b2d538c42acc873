"""Several turns side by side in one answer: `n` choices, or a list of prompts.

Promise: they share one connection and one end; if one of them fails or the client leaves, all of them stop, and a
failure after the first byte is still told in the API's own words.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from starlette.types import Message as ASGIMessage
from starlette.types import Receive

from turnwire.gateway.transports.http import ASGISink, Host, run_watched
from turnwire.gateway.turns.turn import Turn
from turnwire.protocols.wire import TurnFailure

__all__ = ["run_side_by_side"]


async def run_side_by_side(host: Host, turns: Sequence[Turn], sink: ASGISink, receive: Receive) -> None:
    """Run the turns to their common end. Raises TurnFailure only while nothing was sent."""
    shared = _SharedSink(sink)
    leaving = _Leaving(receive)
    try:
        async with asyncio.TaskGroup() as group:
            for turn in turns:
                group.create_task(_run(host, turn, shared, leaving.receive))
    except ExceptionGroup as failures:
        first = failures.exceptions[0]
        if not shared.opened or not isinstance(first, TurnFailure):
            raise first from None
        if not shared.told:
            await sink.write(turns[0].encoder.fail(first))
    finally:
        leaving.stop()
    if not any(turn.cut for turn in turns):
        await sink.close()


async def _run(host: Host, turn: Turn, sink: _SharedSink, receive: Receive) -> None:
    outcome = await run_watched(host, turn, sink, receive)
    if outcome.failure is not None:
        # Told by the turn itself; raised so that the others stop.
        sink.told = True
        raise outcome.failure


class _SharedSink:
    """One answer that several turns write to: opened once, each write whole."""

    def __init__(self, sink: ASGISink) -> None:
        self._sink = sink
        self._opening: asyncio.Task[None] | None = None
        self.told = False

    @property
    def opened(self) -> bool:
        return self._opening is not None

    async def open(self) -> None:
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._sink.open())
        await asyncio.shield(self._opening)

    async def write(self, data: bytes) -> None:
        await self._sink.write(data)


class _Leaving:
    """The client's leaving, told to every turn; the connection itself may be listened to only once."""

    def __init__(self, receive: Receive) -> None:
        self._gone = asyncio.Event()
        self._watcher = asyncio.ensure_future(self._watch(receive))

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._gone.set()

    async def receive(self) -> ASGIMessage:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    def stop(self) -> None:
        self._watcher.cancel()
