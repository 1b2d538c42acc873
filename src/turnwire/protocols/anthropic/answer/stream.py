"""The streaming answer: events of a turn as server-sent events of the Messages wire, each the moment it is known.

Promise: one bytes join per batch and constant work per event. Blocks keep the model's order under indices without
gaps; a text block exists only once it holds a visible character; a tool block opens when the name is known and stops
when its call closes; exactly one message_delta and one message_stop end a turn that the engine itself ended.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwire.protocols.anthropic.answer.errors import error_object
from turnwire.protocols.anthropic.echo import Echo
from turnwire.protocols.anthropic.vocabulary import (
    NO_SEAL,
    delta_usage_object,
    hosted_usage,
    message_id,
    stop_reason,
    usage_object,
)
from turnwire.protocols.framing import SSE, Framing, json_line, quoted, typed
from turnwire.protocols.hosted.message_blocks import content_block, frames
from turnwire.protocols.wire import Delta, ErrorKind, TurnFacts, TurnFailure
from turnwire.turns import (
    BlockClosed,
    BlockDelta,
    BlockOpened,
    Event,
    Finished,
    HostedAnswered,
    HostedCalled,
    SealCarried,
    ToolCallClosed,
    TurnReport,
    Usage,
)

__all__ = ["StreamEncoder"]

_DELTA_FIELDS = {
    "text": b'"type":"text_delta","text":',
    "reasoning": b'"type":"thinking_delta","thinking":',
    "tool_call": b'"type":"input_json_delta","partial_json":',
}
_BLANK = {
    "text": b'{"type":"text","text":""}',
    "reasoning": b'{"type":"thinking","thinking":"","signature":""}',
}
_PASSING: frozenset[ErrorKind] = frozenset({"overloaded", "rate_limited", "engine_failed", "timeout", "internal"})
"""Failures for which the client should simply try again."""


class _Open:
    """A block between its opening and its close: its wire index, the prepared bytes before a delta's text, and the
    whitespace held back until the block has something to show (`index` is -1 until then)."""

    __slots__ = ("head", "held", "index", "kind", "sent")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.index = -1
        self.head = b""
        self.held: list[str] = []
        self.sent = False


class StreamEncoder:
    """See wire.Encoder; `framing` is how its events are separated on the connection."""

    media_type = "text/event-stream"
    streams = True
    carried = False

    def __init__(self, facts: TurnFacts, echo: Echo | None = None, *, framing: Framing = SSE) -> None:
        self._facts = facts
        self._echo = echo or Echo()
        self._framing = framing
        self._end = b"}}" + framing.end
        self._open: dict[int, _Open] = {}
        self._blocks = 0
        self._calls = 0
        self._hosted: dict[str, int] = {}
        self._report: dict[str, object] | None = None
        self._spoke = False
        self._usage = Usage(0)
        self._ended = False

    def start(self, usage: Usage) -> bytes:
        self._usage = usage
        message: dict[str, object] = {
            "id": message_id(self._facts.turn_id),
            "type": "message",
            "role": "assistant",
            "model": self._facts.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage_object(usage),
        }
        if self._echo.diagnostics:
            message["diagnostics"] = self._facts.diagnostics
        head = self._framing.annotations(self._facts.annotations)
        return head + self._framing.event("message_start", {"type": "message_start", "message": message})

    def feed(self, events: Sequence[Event]) -> bytes:
        out: list[bytes] = []
        for event in events:
            if type(event) is BlockDelta:
                block = self._open[event.index]
                if block.sent and event.text:
                    # Nearly every event: more of what the client sees already.
                    out += (block.head, quoted(event.text), self._end)
                else:
                    self._delta(block, event.text, out)
            elif isinstance(event, BlockOpened):
                self._opened(event, out)
            elif isinstance(event, BlockClosed):
                self._closed(event, out)
            elif isinstance(event, ToolCallClosed):
                self._call_closed(event, out)
            elif isinstance(event, HostedCalled | HostedAnswered):
                self._ran(event, out)
            elif isinstance(event, SealCarried):
                self._carry(event, out)
            elif isinstance(event, TurnReport):
                self._report = event.fields
            elif isinstance(event, Usage):
                self._usage = event
            elif isinstance(event, Finished):
                self._finished(event, out)
        return b"".join(out)

    def running(self, index: int) -> Delta | None:
        block = self._open.get(index)
        return Delta(block.head, self._end) if block is not None and block.sent else None

    def keepalive(self) -> bytes:
        return b"" if self._ended else self._framing.event("ping", {"type": "ping"})

    def fail(self, failure: TurnFailure) -> bytes:
        """An error event only while nothing of the answer was shown: after that clients recover better from a closed
        connection (they retry the stream, and keep the calls that already ran)."""
        if self._ended or self._blocks:
            return b""
        self._ended = True
        kind = "overloaded_error" if failure.kind in _PASSING else "invalid_request_error"
        return self._framing.event("error", error_object(kind, failure))

    # ------------------------------------------------------------------------------------------- the events

    def _opened(self, event: BlockOpened, out: list[bytes]) -> None:
        block = self._open[event.index] = _Open(event.kind)
        if event.kind == "tool_call":
            content = {"type": "tool_use", "id": event.call_id, "name": event.name, "input": {}}
            self._show(block, json_line(content), out)

    def _delta(self, block: _Open, text: str, out: list[bytes]) -> None:
        if block.index < 0:
            if not text or text.isspace():
                block.held.append(text)
                return
            text = "".join((*block.held, text))
            self._spoke = self._spoke or block.kind == "text"
            self._show(block, _BLANK[block.kind], out)
        if text and not (self._echo.omit_thinking and block.kind == "reasoning"):
            block.sent = True
            out += (block.head, quoted(text), self._end)

    def _closed(self, event: BlockClosed, out: list[bytes]) -> None:
        block = self._open.pop(event.index)
        if block.index < 0:
            # A blank thought is shown only where thoughts are in play, because its signature carries the seal.
            if block.kind != "reasoning" or not self._echo.thinking:
                return
            self._show(block, _BLANK["reasoning"], out)
            if any(block.held) and not self._echo.omit_thinking:
                out += (block.head, quoted("".join(block.held)), self._end)
        if block.kind == "reasoning":
            self._signature(block.index, event.seal, out)
        out.append(self._stop(block.index))

    def _call_closed(self, event: ToolCallClosed, out: list[bytes]) -> None:
        block = self._open.pop(event.index)
        if not block.sent and event.arguments:
            out += (block.head, quoted(event.arguments), self._end)
        if self._facts.dispatch and not event.malformed:
            out.append(
                self._framing.event(
                    "tool_call_dispatch",
                    {
                        "type": "tool_call_dispatch",
                        "choice_index": 0,
                        "tool_call": {
                            "index": self._calls,
                            "id": event.call_id,
                            "type": "function",
                            "function": {"name": event.name, "arguments": event.arguments},
                        },
                    },
                )
            )
        self._calls += 1
        out.append(self._stop(block.index))

    def _ran(self, event: HostedCalled | HostedAnswered, out: list[bytes]) -> None:
        """A call that the gateway runs itself, or its answer: a whole block."""
        if isinstance(event, HostedAnswered) and not event.answer.error:
            self._hosted[event.call.use.kind] = self._hosted.get(event.call.use.kind, 0) + 1
        out.append(frames(self._framing, self._blocks, content_block(event)))
        self._blocks += 1

    def _carry(self, event: SealCarried, out: list[bytes]) -> None:
        """A trailing redacted thought carries the seal of what the model wrote after its last thought. It is not sent
        after text alone: clients take a message without calls for the final answer, and some read that from its last
        block, so that a trailing thought would hide the text."""
        if not (self._echo.thinking and event.seal and (self._calls or not self._spoke or event.more)):
            return
        self.carried = True
        block = _Open("reasoning")
        self._show(block, json_line({"type": "redacted_thinking", "data": event.seal}), out)
        out.append(self._stop(block.index))

    def _finished(self, event: Finished, out: list[bytes]) -> None:
        self._ended = True
        reason = stop_reason(event.reason, self._calls)
        if reason is None:
            return
        closing: dict[str, object] = {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": event.stop_sequence},
            "usage": {**delta_usage_object(self._usage), **hosted_usage(self._hosted)},
        }
        if self._report is not None:
            closing["nvext"] = self._report
        if self._echo.applied_edits is not None:
            closing["context_management"] = {"applied_edits": self._echo.applied_edits}
        out.append(self._framing.event("message_delta", closing))
        out.append(self._framing.event("message_stop", {"type": "message_stop"}))

    # ------------------------------------------------------------------------------------------- the frames

    def _show(self, block: _Open, content: bytes, out: list[bytes]) -> None:
        framing = self._framing
        block.index = self._blocks
        self._blocks += 1
        field = _DELTA_FIELDS[block.kind]
        block.head = b'%b"index":%d,"delta":{%b' % (typed(framing, "content_block_delta"), block.index, field)
        start = typed(framing, "content_block_start")
        out.append(b'%b"index":%d,"content_block":%b}%b' % (start, block.index, content, framing.end))

    def _signature(self, index: int, seal: str, out: list[bytes]) -> None:
        delta = {"type": "signature_delta", "signature": seal or NO_SEAL}
        body = {"type": "content_block_delta", "index": index, "delta": delta}
        out.append(self._framing.event("content_block_delta", body))

    def _stop(self, index: int) -> bytes:
        framing = self._framing
        return b'%b"index":%d}%b' % (typed(framing, "content_block_stop"), index, framing.end)
