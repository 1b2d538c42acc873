"""Chat Completions at the gateway: one turn, or several choices of it side by side.

Promise: the choices of one request share its prompt, its connection and its end.
"""

from __future__ import annotations

import msgspec
from starlette.types import Receive, Send

from turnwire.gateway.transports.http import ASGISink, TurnEndpoint, mint
from turnwire.gateway.turns.passage import Passage
from turnwire.gateway.turns.side_by_side import run_side_by_side
from turnwire.gateway.turns.turn import Turn
from turnwire.protocols import chat

__all__ = ["ChatEndpoint"]


class ChatEndpoint(TurnEndpoint):
    """`POST /v1/chat/completions`."""

    async def answer(self, passage: Passage, receive: Receive, send: Send) -> None:
        echo = passage.inbound.echo
        assert isinstance(echo, chat.Echo)
        if echo.choices == 1:
            await super().answer(passage, receive, send)
            return
        shared, facts = chat.SharedAnswer(echo.choices), self.facts(passage)
        make = chat.StreamEncoder if passage.inbound.stream else chat.DocumentEncoder
        turns = [
            Turn(
                msgspec.structs.replace(passage, turn_id=mint() if choice else passage.turn_id),
                make(facts, echo, choice=choice, shared=shared),
                mint=lambda: mint("call_"),
            )
            for choice in range(echo.choices)
        ]
        sink = ASGISink(send, make.media_type, self.headers(passage))
        await run_side_by_side(self._host, turns, sink, receive)
