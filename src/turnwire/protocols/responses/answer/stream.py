"""The answer as events: a turn's events in, server-sent events of the Responses API out.

Promise: items appear in the order the model wrote them, each is done the moment it closes, sequence numbers grow by one
from 0, and the stream ends with exactly one of `response.completed`, `response.incomplete`, `response.failed`. A delta
costs one JSON encoding of its text and nothing else that grows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from turnwire.protocols.framing import SSE, Framing, json_line, quoted, typed
from turnwire.protocols.hosted.answers import carrier
from turnwire.protocols.hosted.response_items import answered_events, called_events, finished_item
from turnwire.protocols.responses.answer.errors import failed_error
from turnwire.protocols.responses.answer.output import (
    CustomCallItem,
    FunctionCallItem,
    ItemEvent,
    MessageItem,
    OutputItem,
    ReasoningItem,
    SearchCallItem,
    carrier_item,
)
from turnwire.protocols.responses.echo import Echo, ResponseJson
from turnwire.protocols.responses.tools import CallKind, Origin
from turnwire.protocols.wire import Delta, TurnFacts, TurnFailure
from turnwire.turns import (
    BlockClosed,
    BlockDelta,
    BlockOpened,
    Event,
    Finished,
    FinishReason,
    HostedAnswered,
    HostedCalled,
    SealCarried,
    ToolCallClosed,
    TurnReport,
    Usage,
)

__all__ = ["DocumentEncoder", "StreamEncoder", "response_id", "usage_json"]

INCOMPLETE: dict[FinishReason, str] = {"length": "max_output_tokens", "content_filter": "content_filter"}
CALL_ITEMS: Mapping[CallKind, Callable[[str, int, str, Origin], OutputItem]] = {
    "function": FunctionCallItem,
    "custom": CustomCallItem,
    "tool_search": SearchCallItem,
}
CUT_SHORT = frozenset({"length", "content_filter", "abort", "error"})


def response_id(turn_id: str) -> str:
    """The id of a turn's response."""
    return f"resp_{turn_id}"


def usage_json(usage: Usage) -> bytes:
    """Token counts with both details objects, all integers: clients reject a response where one is missing."""
    return (
        b'{"input_tokens":%d,"input_tokens_details":{"cached_tokens":%d,"cache_write_tokens":0},'
        b'"output_tokens":%d,"output_tokens_details":{"reasoning_tokens":%d},"total_tokens":%d}'
    ) % (usage.prompt, usage.cached, usage.output, usage.reasoning, usage.prompt + usage.output)


def _cut_short(events: Sequence[Event], last: Finished) -> Event | None:
    """The closing event of the block that a turn was cut short in: the last to close together with its end."""
    if last.reason not in CUT_SHORT:
        return None
    return next((one for one in reversed(events) if isinstance(one, BlockClosed | ToolCallClosed)), None)


class StreamEncoder:
    """Encodes one turn as a stream of events in the given framing. `now` gives the time for `completed_at` (null
    without it)."""

    media_type = "text/event-stream"
    streams = True
    carried = False

    def __init__(
        self, facts: TurnFacts, echo: Echo, *, now: Callable[[], float] | None = None, framing: Framing = SSE
    ) -> None:
        self._framing = framing
        self._end = b',"sequence_number":%d}' + framing.end
        self._turn_id = facts.turn_id
        self._annotations = framing.annotations(facts.annotations)
        self._after = b""
        if facts.diagnostics is not None:
            self._after = b',"prompt_cache_diagnostics":' + json_line(facts.diagnostics)
        self._model = b',"model":' + quoted(facts.model)
        self._echo = echo
        self._now = now
        self._dispatch = facts.dispatch
        self._head = b'{"id":"%b","object":"response","created_at":%d' % (
            response_id(facts.turn_id).encode(),
            facts.created,
        )
        self._open: OutputItem | None = None
        self._delta_head = b""
        self._items: list[bytes] = []
        self._calls = 0
        self._hosted: dict[str, int] = {}
        self._usage: Usage | None = None
        self._opening = self._response(b"in_progress")
        self.response = self._response(b"queued") if echo.background else self._opening
        # A background response waits for its turn first.
        waiting = [("response.queued", self.response)] if echo.background else []
        self._openings = [
            ("response.created", self.response),
            *waiting,
            ("response.in_progress", self._opening),
        ]
        # The opening events have the first numbers, whenever they are asked for.
        self._sequence = len(self._openings)
        self.finished = False
        self.failed = False

    @property
    def document(self) -> bytes:
        """The response object as far as it is known."""
        return self.response.json

    @property
    def output_items(self) -> tuple[dict[str, Any], ...]:
        """The items that are finished so far."""
        return tuple(msgspec.json.decode(item) for item in self._items if item)

    def start(self, usage: Usage) -> bytes:
        if not self.finished:
            self.response = self._opening
        # Joined once: with long instructions these are hundreds of kilobytes.
        pieces = [self._annotations]
        for number, (name, response) in enumerate(self._openings):
            pieces += self._stated(name, response, number)
        return b"".join(pieces)

    def running(self, index: int) -> Delta | None:
        item = self._open
        if item is None or not item.plain:
            return None
        return Delta(self._delta_head, self._end, self._sequence, self._ran)

    def keepalive(self) -> bytes:
        # Codex counts only parsed events as life, and every client knows this one. Nothing follows the end.
        return b"" if self.finished else self._next("response.in_progress", self._opening)

    def feed(self, events: Sequence[Event]) -> bytes:
        out: list[bytes] = []
        sequence, end = self._sequence, self._end
        cut = _cut_short(events, events[-1]) if events and type(events[-1]) is Finished else None
        for one in events:
            if type(one) is BlockDelta:
                item = self._open
                if item is None:
                    continue
                text = item.delta(one.text)
                if text:
                    out += (self._delta_head, text, end % sequence)
                    sequence += 1
                continue
            self._sequence = sequence
            out.append(self._other(one, b"incomplete" if one is cut else b"completed"))
            sequence = self._sequence
        self._sequence = sequence
        return b"".join(out)

    def fail(self, failure: TurnFailure) -> bytes:
        self.finished = self.failed = True
        self.response = self._response(b"failed", error=json_line(failed_error(failure)))
        return self._next("response.failed", self.response)

    def cancel(self) -> None:
        """The turn was called off: what is finished stays, nothing more is said."""
        self.finished = True
        self.response = self._response(b"cancelled")

    def _ran(self, text: str, deltas: int) -> None:
        self._sequence += deltas
        if self._open is not None:
            self._open.delta(text)

    # ------------------------------------------------------------------------------------------------ all but deltas

    def _other(self, one: Event, status: bytes) -> bytes:
        if isinstance(one, BlockOpened):
            item = self._open = self._item(one)
            name, members = item.delta_head
            self._delta_head = typed(self._framing, name) + members
            return self._frames(item.opening())
        if isinstance(one, BlockClosed):
            return self._close(seal=one.seal, status=status)
        if isinstance(one, ToolCallClosed):
            return self._announced(one) + self._close(arguments=one.arguments, status=status)
        if isinstance(one, HostedCalled):
            return self._called(one)
        if isinstance(one, HostedAnswered):
            return self._answered(one)
        if isinstance(one, SealCarried):
            return self._carry(one.seal)
        if isinstance(one, TurnReport):
            self._after += b',"nvext":' + json_line(one.fields)
        elif isinstance(one, Usage):
            self._usage = one
        elif isinstance(one, Finished):
            return self._finish(one)
        return b""

    def _called(self, called: HostedCalled) -> bytes:
        """A call that the gateway runs itself: its item has its place from now on."""
        place = self._hosted[called.call_id] = len(self._items)
        self._items.append(b"")
        return self._frames(called_events(called, place))

    def _answered(self, answered: HostedAnswered) -> bytes:
        place = self._hosted[answered.call.call_id]
        item = finished_item(answered)
        self._items[place] = json_line(item)
        frames = self._frames(answered_events(answered, place, item))
        events, carried = carrier_item(self._turn_id, len(self._items), carrier(answered.call, answered.answer))
        self._items.append(carried)
        return frames + self._frames(events)

    def _item(self, opened: BlockOpened) -> OutputItem:
        index = len(self._items)
        if opened.kind == "text":
            return MessageItem(self._turn_id, index)
        if opened.kind == "reasoning":
            return ReasoningItem(self._turn_id, index, visible=self._echo.summaries)
        origin = self._echo.toolbox.origin(opened.name)
        call_id = opened.call_id or f"call_{self._turn_id}_{index}"
        return CALL_ITEMS[origin.kind](self._turn_id, index, call_id, origin)

    def _announced(self, call: ToolCallClosed) -> bytes:
        """A completed call for a client that opted in: the event of the other APIs, in the client's own names."""
        if not self._dispatch or call.malformed:
            return b""
        origin = self._echo.toolbox.origin(call.name)
        function = {"name": origin.name, "arguments": call.arguments}
        if origin.namespace is not None:
            function["namespace"] = origin.namespace
        body = {"index": self._calls, "id": call.call_id, "type": "function", "function": function}
        self._calls += 1
        return self._frames([("tool_call_dispatch", b'"choice_index":0,"tool_call":' + json_line(body))])

    def _close(self, *, arguments: str = "", seal: str = "", status: bytes) -> bytes:
        item, self._open = self._open, None
        if item is None:
            return b""
        events, finished = item.close(arguments=arguments, seal=seal, status=status)
        self._items.append(finished)
        return self._frames(events)

    def _carry(self, seal: str) -> bytes:
        """The seal of what came after the last thought. A client that did not ask to carry reasoning gets none after a
        message: much code takes the last item for the answer."""
        answered = not self._items or self._items[-1].startswith(b'{"id":"msg_')
        if answered and not self._echo.stateless:
            return b""
        self.carried = True
        events, item = carrier_item(self._turn_id, len(self._items), seal)
        self._items.append(item)
        return self._frames(events)

    def _finish(self, finished: Finished) -> bytes:
        self.finished = True
        if finished.reason in ("abort", "error"):
            return self.fail(TurnFailure("engine_failed", "The generation was broken off before it was complete."))
        reason = INCOMPLETE.get(finished.reason)
        if reason is None:
            self.response = self._response(b"completed")
            return self._next("response.completed", self.response)
        self.response = self._response(b"incomplete", incomplete=json_line({"reason": reason}))
        return self._next("response.incomplete", self.response)

    def _response(self, status: bytes, *, error: bytes = b"null", incomplete: bytes = b"null") -> ResponseJson:
        completed_at = b"%d" % self._now() if status == b"completed" and self._now is not None else b"null"
        own = b'%b,"status":"%b","completed_at":%b,"error":%b,"incomplete_details":%b,"output":[%b],"usage":%b%b' % (
            self._head,
            status,
            completed_at,
            error,
            incomplete,
            b",".join(filter(None, self._items)),
            usage_json(self._usage) if self._usage is not None else b"null",
            self._model,
        )
        return ResponseJson(own, self._echo.fields, self._after + b"}")

    def _frames(self, events: Sequence[ItemEvent]) -> bytes:
        first, framing, end = self._sequence, self._framing, self._end
        self._sequence += len(events)
        return b"".join(
            [typed(framing, name) + members + end % number for number, (name, members) in enumerate(events, first)]
        )

    def _next(self, name: str, response: ResponseJson) -> bytes:
        """The next event, which has the response as it is now."""
        number = self._sequence
        self._sequence += 1
        return b"".join(self._stated(name, response, number))

    def _stated(self, name: str, response: ResponseJson, number: int) -> Sequence[bytes]:
        return typed(self._framing, name), b'"response":', *response.pieces, self._end % number


class DocumentEncoder:
    """Encodes one turn as a single response object: the one with which the given stream of the turn would end."""

    media_type = "application/json"
    streams = False
    carried = False

    def __init__(self, stream: StreamEncoder) -> None:
        self._stream = stream

    @property
    def response(self) -> ResponseJson:
        """The response object as far as it is known."""
        return self._stream.response

    @property
    def output_items(self) -> tuple[dict[str, Any], ...]:
        """The items that are finished so far."""
        return self._stream.output_items

    def start(self, usage: Usage) -> bytes:
        return b""

    def feed(self, events: Sequence[Event]) -> bytes:
        self._stream.feed(events)
        return self._stream.document if self._stream.finished else b""

    def running(self, index: int) -> None:
        return None

    def keepalive(self) -> bytes:
        return b""

    def fail(self, failure: TurnFailure) -> bytes:
        self._stream.fail(failure)
        return self._stream.document
