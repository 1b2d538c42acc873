"""The whole answer: the same events as the stream, folded into one completion object.

Promise: it says what the stream says; nothing is sent before the engine's own end.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from turnwire.protocols.chat.echo import Echo, SharedAnswer
from turnwire.protocols.chat.stream import score_object
from turnwire.protocols.chat.vocabulary import BLOCK_BREAK, completion_id, finish_reason, seal_detail, usage_object
from turnwire.protocols.wire import TurnFacts, TurnFailure
from turnwire.turns import (
    BlockClosed,
    BlockDelta,
    BlockOpened,
    Event,
    Finished,
    SealCarried,
    TokensScored,
    ToolCallClosed,
    Usage,
)

__all__ = ["DocumentEncoder"]


class DocumentEncoder:
    """See wire.Encoder."""

    media_type = "application/json"
    streams = False

    def __init__(
        self, facts: TurnFacts, echo: Echo | None = None, *, choice: int = 0, shared: SharedAnswer | None = None
    ) -> None:
        self._facts = facts
        self._echo = echo or Echo()
        self._choice = choice
        self._shared = shared or SharedAnswer()
        self._usage = Usage(0)
        self._kinds: dict[int, str] = {}
        self._blocks: dict[int, list[str]] = {}
        self._calls: list[dict[str, object]] = []
        self._details: list[dict[str, object]] = []
        self._scores: list[dict[str, object]] = []

    def start(self, usage: Usage) -> bytes:
        return b""

    def feed(self, events: Sequence[Event]) -> bytes:
        done = b""
        for event in events:
            if isinstance(event, BlockOpened):
                self._kinds[event.index] = event.kind
            elif isinstance(event, BlockDelta):
                self._blocks.setdefault(event.index, []).append(event.text)
            elif isinstance(event, ToolCallClosed):
                function = {"name": event.name, "arguments": event.arguments}
                self._calls.append({"id": event.call_id, "type": "function", "function": function})
            elif (isinstance(event, BlockClosed) and event.seal) or (isinstance(event, SealCarried) and self._details):
                self._details.append(seal_detail(event.seal, len(self._details)))
            elif isinstance(event, TokensScored):
                self._scores += [score_object(*entry) for entry in event.tokens]
            elif isinstance(event, Usage):
                self._usage = event
            elif isinstance(event, Finished):
                done = self._finished(event)
        return done

    def keepalive(self) -> bytes:
        return b""

    def fail(self, failure: TurnFailure) -> bytes:
        return b""

    def _finished(self, event: Finished) -> bytes:
        message: dict[str, object] = {"role": "assistant", "content": self._joined("text") or None, "refusal": None}
        if thoughts := self._joined("reasoning"):
            message["reasoning_content"] = thoughts
        if self._details:
            message["reasoning_details"] = self._details
        if self._calls:
            message["tool_calls"] = self._calls
        elif message["content"] is None:
            message["content"] = ""
        self._shared.documents[self._choice] = {
            "index": self._choice,
            "message": message,
            "logprobs": {"content": self._scores, "refusal": None} if self._echo.logprobs else None,
            "finish_reason": finish_reason(event.reason),
        }
        if not self._shared.end(self._usage):
            return b""
        choices = [self._shared.documents[index] for index in sorted(self._shared.documents)]
        return msgspec.json.encode(
            {
                "id": completion_id(self._facts.turn_id),
                "object": "chat.completion",
                "created": self._facts.created,
                "model": self._facts.model,
                "choices": choices,
                "usage": usage_object(self._shared.usage),
            }
        )

    def _joined(self, kind: str) -> str:
        """All of a turn's thoughts or prose, which is all the place that the API has for them."""
        return BLOCK_BREAK.join("".join(self._blocks[index]) for index in self._blocks if self._kinds[index] == kind)
