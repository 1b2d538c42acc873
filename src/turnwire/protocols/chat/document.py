"""The whole answer: the same events as the stream, folded into one completion object.

Promise: it says what the stream says; nothing is sent before the engine's own end.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from turnwire.protocols.chat.echo import Echo, SharedAnswer
from turnwire.protocols.chat.stream import score_object
from turnwire.protocols.chat.vocabulary import (
    BLOCK_BREAK,
    completion_id,
    ending,
    fingerprint,
    seal_detail,
    usage_object,
)
from turnwire.protocols.reply import Reply
from turnwire.protocols.wire import TurnFacts, TurnFailure
from turnwire.turns import Event, Finished, Usage

__all__ = ["DocumentEncoder"]


class DocumentEncoder:
    """See wire.Encoder."""

    media_type = "application/json"
    streams = False
    carried = False

    def __init__(
        self, facts: TurnFacts, echo: Echo | None = None, *, choice: int = 0, shared: SharedAnswer | None = None
    ) -> None:
        self._facts = facts
        self._echo = echo or Echo()
        self._choice = choice
        self._shared = shared or SharedAnswer()
        self._reply = Reply()

    def start(self, usage: Usage) -> bytes:
        return b""

    def feed(self, events: Sequence[Event]) -> bytes:
        self._reply.feed(events)
        return self._finished(self._reply.finished) if self._reply.finished is not None else b""

    def running(self, index: int) -> None:
        return None

    def keepalive(self) -> bytes:
        return b""

    def fail(self, failure: TurnFailure) -> bytes:
        return b""

    def _finished(self, event: Finished) -> bytes:
        reply = self._reply
        message: dict[str, object] = {
            "role": "assistant",
            "content": reply.joined("text", BLOCK_BREAK) or None,
            "refusal": None,
        }
        if thoughts := reply.joined("reasoning", BLOCK_BREAK):
            message["reasoning_content"] = thoughts
        if seals := _seals(reply):
            self.carried = reply.blocks[-1].kind == "seal"
            message["reasoning_details"] = [seal_detail(seal, index) for index, seal in enumerate(seals)]
        if calls := reply.calls:
            message["tool_calls"] = [
                {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.text}}
                for call in calls
            ]
        elif message["content"] is None:
            message["content"] = ""
        logprobs: dict[str, object] | None = None
        if (rivals := self._echo.logprobs) is not None:
            scores = [score_object(*entry, rivals) for event in reply.scores for entry in event.tokens]
            logprobs = {"content": scores, "refusal": None}
        self._shared.documents[self._choice] = {
            "index": self._choice,
            "message": message,
            "logprobs": logprobs,
            **ending(event),
        }
        if not self._shared.end(reply.usage):
            return b""
        choices = [self._shared.documents[index] for index in sorted(self._shared.documents)]
        report = {"nvext": reply.report} if reply.report is not None else {}
        return msgspec.json.encode(
            {
                "id": completion_id(self._facts.turn_id),
                "object": "chat.completion",
                "created": self._facts.created,
                "model": self._facts.model,
                "system_fingerprint": fingerprint(self._facts.model),
                "choices": choices,
                "usage": usage_object(self._shared.usage),
                **report,
            }
        )


def _seals(reply: Reply) -> list[str]:
    """The carriers to return. One that belongs to no thought is of use only after another: clients keep the list with
    the message's reasoning."""
    seals: list[str] = []
    for block in reply.blocks:
        if block.seal and (seals or block.kind != "seal"):
            seals.append(block.seal)
    return seals
