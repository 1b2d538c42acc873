"""The non-streaming answer: the same events, collected into one message object.

Promise: block for block what the stream would have said, in the same order; nothing is returned before the turn is
finished.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from turnwire.protocols.anthropic.echo import Echo
from turnwire.protocols.anthropic.errors import error_reply
from turnwire.protocols.anthropic.vocabulary import (
    NO_SEAL,
    UNPARSED_INPUT,
    message_id,
    stop_reason,
    usage_object,
)
from turnwire.protocols.wire import TurnFacts, TurnFailure
from turnwire.turns import (
    BlockClosed,
    BlockDelta,
    BlockOpened,
    Event,
    Finished,
    SealCarried,
    ToolCallClosed,
    Usage,
)

__all__ = ["DocumentEncoder"]

_encode = msgspec.json.Encoder().encode


class DocumentEncoder:
    """See wire.Encoder."""

    media_type = "application/json"
    streams = False

    def __init__(self, facts: TurnFacts, echo: Echo | None = None) -> None:
        self._facts = facts
        self._echo = echo or Echo()
        self._content: dict[int, dict[str, object]] = {}
        self._texts: dict[int, list[str]] = {}
        self._calls = 0
        self._usage = Usage(0)

    def start(self, usage: Usage) -> bytes:
        self._usage = usage
        return b""

    def feed(self, events: Sequence[Event]) -> bytes:
        for event in events:
            match event:
                case BlockDelta():
                    self._texts[event.index].append(event.text)
                case BlockOpened():
                    self._texts[event.index] = []
                    self._content[event.index] = {}
                case BlockClosed():
                    self._closed(event)
                case ToolCallClosed():
                    self._calls += 1
                    self._content[event.index] = {
                        "type": "tool_use",
                        "id": event.call_id,
                        "name": event.name,
                        "input": _input(event),
                    }
                case SealCarried():
                    if self._echo.thinking and self._calls and event.seal:
                        self._content[event.index] = {"type": "redacted_thinking", "data": event.seal}
                case Usage():
                    self._usage = event
                case Finished():
                    return self._document(event)
        return b""

    def keepalive(self) -> bytes:
        return b""

    def fail(self, failure: TurnFailure) -> bytes:
        return error_reply(failure).body

    def _closed(self, event: BlockClosed) -> None:
        text = "".join(self._texts.pop(event.index))
        blank = not text or text.isspace()
        if event.kind == "text":
            self._content[event.index] = {} if blank else {"type": "text", "text": text}
        elif self._echo.thinking or not blank:
            shown = "" if self._echo.omit_thinking else text
            self._content[event.index] = {"type": "thinking", "thinking": shown, "signature": event.seal or NO_SEAL}

    def _document(self, event: Finished) -> bytes:
        reason = stop_reason(event.reason, self._calls)
        if reason is None:
            return self.fail(TurnFailure("engine_failed", "the engine ended the turn without finishing it"))
        message: dict[str, object] = {
            "id": message_id(self._facts.turn_id),
            "type": "message",
            "role": "assistant",
            "model": self._facts.model,
            "content": [block for block in self._content.values() if block],
            "stop_reason": reason,
            "stop_sequence": event.stop_sequence,
            "usage": usage_object(self._usage),
        }
        if self._echo.diagnostics:
            message["diagnostics"] = self._facts.diagnostics
        if self._echo.applied_edits is not None:
            message["context_management"] = {"applied_edits": self._echo.applied_edits}
        return _encode(message)


def _input(event: ToolCallClosed) -> object:
    if event.malformed:
        return {UNPARSED_INPUT: {"raw": event.arguments, "len": len(event.arguments)}}
    return msgspec.Raw(event.arguments.encode()) if event.arguments else {}
