"""The non-streaming answer: the same events, collected into one message object.

Promise: block for block what the stream would have said, in the same order; nothing is returned before the turn is
finished.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from turnwire.protocols.anthropic.answer.errors import error_reply
from turnwire.protocols.anthropic.echo import Echo
from turnwire.protocols.anthropic.vocabulary import (
    NO_SEAL,
    UNPARSED_INPUT,
    hosted_usage,
    message_id,
    stop_reason,
    usage_object,
)
from turnwire.protocols.hosted.message_blocks import content_block
from turnwire.protocols.reply import Reply, ReplyBlock
from turnwire.protocols.wire import TurnFacts, TurnFailure
from turnwire.turns import Event, Finished, HostedAnswered, Usage

__all__ = ["DocumentEncoder"]

_encode = msgspec.json.Encoder().encode


class DocumentEncoder:
    """See wire.Encoder."""

    media_type = "application/json"
    streams = False
    carried = False

    def __init__(self, facts: TurnFacts, echo: Echo | None = None) -> None:
        self._facts = facts
        self._echo = echo or Echo()
        self._reply = Reply()
        self._carries = False

    def start(self, usage: Usage) -> bytes:
        return b""

    def feed(self, events: Sequence[Event]) -> bytes:
        self._reply.feed(events)
        return self._document(self._reply.finished) if self._reply.finished is not None else b""

    def running(self, index: int) -> None:
        return None

    def keepalive(self) -> bytes:
        return b""

    def fail(self, failure: TurnFailure) -> bytes:
        return error_reply(failure).body

    def _document(self, event: Finished) -> bytes:
        reply = self._reply
        calls = len(reply.calls)
        self._carries = self._echo.thinking and bool(calls or not reply.joined("text").strip())
        reason = stop_reason(event.reason, calls)
        if reason is None:
            return self.fail(TurnFailure("engine_failed", "the engine ended the turn without finishing it"))
        message: dict[str, object] = {
            "id": message_id(self._facts.turn_id),
            "type": "message",
            "role": "assistant",
            "model": self._facts.model,
            "content": [content for block in reply.blocks if (content := self._content(block)) is not None],
            "stop_reason": reason,
            "stop_sequence": event.stop_sequence,
            "usage": {**usage_object(reply.usage), **hosted_usage(_runs(reply))},
        }
        if self._echo.diagnostics:
            message["diagnostics"] = self._facts.diagnostics
        if reply.report is not None:
            message["nvext"] = reply.report
        if self._echo.applied_edits is not None:
            message["context_management"] = {"applied_edits": self._echo.applied_edits}
        return _encode(message)

    def _content(self, block: ReplyBlock) -> dict[str, object] | None:
        """A block of the answer; None for one that shows and carries nothing (see the stream for why)."""
        thinking = self._echo.thinking
        match block.kind:
            case "text":
                return None if block.blank else {"type": "text", "text": block.text}
            case "reasoning":
                if block.blank and not thinking:
                    return None
                shown = "" if self._echo.omit_thinking else block.text
                return {"type": "thinking", "thinking": shown, "signature": block.seal or NO_SEAL}
            case "tool_call":
                return {"type": "tool_use", "id": block.call_id, "name": block.name, "input": _input(block)}
            case "hosted":
                return content_block(block.hosted) if block.hosted is not None else None
            case "seal":
                self.carried = bool(self._carries and block.seal)
                return {"type": "redacted_thinking", "data": block.seal} if self.carried else None


def _runs(reply: Reply) -> dict[str, int]:
    """How often each hosted tool was run."""
    counts: dict[str, int] = {}
    for block in reply.blocks:
        if isinstance(block.hosted, HostedAnswered) and not block.hosted.answer.error:
            kind = block.hosted.call.use.kind
            counts[kind] = counts.get(kind, 0) + 1
    return counts


def _input(call: ReplyBlock) -> object:
    if call.malformed:
        return {UNPARSED_INPUT: {"raw": call.text, "len": len(call.text)}}
    return msgspec.Raw(call.text.encode()) if call.text else {}
