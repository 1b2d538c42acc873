"""The answer to a request for compaction: the model's hand-over note, carried in exactly one `compaction` item.

Promise: whatever the model thinks or writes around it, the client gets one compaction item or a failure, as a stream
(`compaction_trigger` in the input) or as a compacted response object (`/responses/compact`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from turnwire.protocols.framing import SSE, Framing
from turnwire.protocols.reply import Reply
from turnwire.protocols.responses.answer.errors import error_reply
from turnwire.protocols.responses.answer.output import whole_item
from turnwire.protocols.responses.answer.stream import StreamEncoder, response_id, usage_json
from turnwire.protocols.responses.compaction.summary import compaction_item, kept_messages
from turnwire.protocols.responses.echo import Echo
from turnwire.protocols.responses.stored import with_ids
from turnwire.protocols.wire import TurnFacts, TurnFailure
from turnwire.turns import Event, Finished, Usage

__all__ = ["CompactedEncoder", "CompactionStreamEncoder"]


def _summary(reply: Reply) -> str:
    """The text of a turn; thoughts and calls are not part of a hand-over note."""
    return reply.joined("text").strip()


def _no_summary() -> TurnFailure:
    return TurnFailure("engine_failed", "The model wrote no summary; try again.")


class CompactionStreamEncoder(StreamEncoder):
    """A stream whose only output is one compaction item."""

    def __init__(
        self, facts: TurnFacts, echo: Echo, *, now: Callable[[], float] | None = None, framing: Framing = SSE
    ) -> None:
        super().__init__(facts, echo, now=now, framing=framing)
        self._reply = Reply()

    def feed(self, events: Sequence[Event]) -> bytes:
        self._reply.feed(events)
        finished = self._reply.finished
        return self._finish_summary(finished) if finished is not None else b""

    def running(self, index: int) -> None:
        return None

    def _finish_summary(self, finished: Finished) -> bytes:
        text = _summary(self._reply)
        super().feed((self._reply.usage,))
        if finished.reason in ("abort", "error"):
            return super().feed((finished,))
        if not text:
            return self.fail(_no_summary())
        item = compaction_item(f"cmp_{self._turn_id}_0", text)
        events, encoded = whole_item(0, item)
        self._items.append(encoded)
        return self._frames(events) + super().feed((Finished("stop"),))


class CompactedEncoder:
    """The answer of `/responses/compact`: the user's messages that stay, then the compaction item."""

    media_type = "application/json"
    streams = False
    carried = False

    def __init__(self, facts: TurnFacts, echo: Echo) -> None:
        self._facts = facts
        self._echo = echo
        self._reply = Reply()

    def start(self, usage: Usage) -> bytes:
        return b""

    def feed(self, events: Sequence[Event]) -> bytes:
        self._reply.feed(events)
        return self._finish_summary(self._reply.finished) if self._reply.finished is not None else b""

    def running(self, index: int) -> None:
        return None

    def keepalive(self) -> bytes:
        return b""

    def fail(self, failure: TurnFailure) -> bytes:
        return error_reply(failure).body

    def _finish_summary(self, finished: Finished) -> bytes:
        text = _summary(self._reply)
        if not text or finished.reason in ("abort", "error"):
            # Nothing was sent yet, so the caller can still answer with a status.
            raise _no_summary()
        turn = self._facts.turn_id
        output: list[dict[str, Any]] = [*with_ids(kept_messages(self._echo.input_items), turn)]
        output.append(compaction_item(f"cmp_{turn}_0", text))
        body = {
            "id": response_id(turn),
            "object": "response.compaction",
            "created_at": self._facts.created,
            "output": output,
            "usage": msgspec.Raw(usage_json(self._reply.usage)),
        }
        return msgspec.json.encode(body)
