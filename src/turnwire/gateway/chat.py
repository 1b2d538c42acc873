"""Chat Completions at the gateway: one turn, or several choices of it side by side.

Promise: the choices of one request share its prompt, its connection and its end; if one of them fails or the client
leaves, all of them stop.
"""

from __future__ import annotations

import asyncio

import msgspec
from starlette.types import Receive, Send

from turnwire.protocols import chat

from .exchange import ASGISink, TurnEndpoint, mint, run_watched
from .passage import Passage
from .turn import Turn

__all__ = ["ChatEndpoint"]


class _SharedSink:
    """One answer that several turns write to: opened once, each write whole."""

    def __init__(self, sink: ASGISink) -> None:
        self._sink = sink
        self._opening: asyncio.Task[None] | None = None

    async def open(self) -> None:
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._sink.open())
        await asyncio.shield(self._opening)

    async def write(self, data: bytes) -> None:
        await self._sink.write(data)


class ChatEndpoint(TurnEndpoint):
    """`POST /v1/chat/completions`."""

    async def answer(self, passage: Passage, receive: Receive, send: Send) -> None:
        echo = passage.inbound.echo
        assert isinstance(echo, chat.Echo)
        if echo.choices == 1:
            await super().answer(passage, receive, send)
            return
        chorus, facts = chat.Chorus(echo.choices), self.facts(passage)
        make = chat.StreamEncoder if passage.inbound.stream else chat.DocumentEncoder
        sink = ASGISink(send, make.media_type, self.headers(passage))
        shared = _SharedSink(sink)
        turns = [
            Turn(
                msgspec.structs.replace(passage, turn_id=mint() if choice else passage.turn_id),
                make(facts, echo, choice=choice, chorus=chorus),
                mint=lambda: mint("call_"),
            )
            for choice in range(echo.choices)
        ]
        try:
            async with asyncio.TaskGroup() as group:
                for choice, turn in enumerate(turns):
                    group.create_task(run_watched(self._host, turn, shared, receive if choice == 0 else None))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        if not any(turn.cut for turn in turns):
            await sink.close()
