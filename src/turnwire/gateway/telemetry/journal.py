"""What the gateway remembers and logs of finished turns: numbers, codes and ids, never payloads.

Promise: bounded. A summary holds nothing that a client or a model wrote, beyond the ids that name its session and
tenant; the log has one line per turn, as text or as JSON.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from turnwire.continuity import header as prefix_header
from turnwire.gateway.turns.record import TurnRecord

__all__ = ["Journal", "JsonLines", "TurnSummary", "summary_of"]

_STANDARD = "turnwire"


class TurnSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One turn. Times are seconds, `at` is when it ended (unix); `prefix` is what the answer's `x-turnwire-prefix`
    said, `lost` how many tokens a broken prefix cost; `notes` are codes."""

    turn_id: str
    at: float
    api: str
    model: str
    tenant: str
    session: str | None
    turn_class: str
    finish: str
    failure: str | None
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int
    calls: int
    first_token: float | None
    seconds: float
    silence: float
    prefix: str
    lost: int
    cause: str | None
    notes: tuple[str, ...]

    @property
    def line(self) -> str:
        """For a log that people read."""
        return (
            f"turn {self.turn_id} {self.api} {self.model} prompt={self.prompt_tokens} cached={self.cached_tokens} "
            f"output={self.output_tokens} finish={self.finish} prefix={self.prefix} notes={','.join(self.notes) or '-'}"
        )


def summary_of(turn: TurnRecord[Any]) -> TurnSummary:
    """The summary of a turn that is over."""
    outcome, verdict = turn.outcome, turn.continuity
    assert outcome is not None
    context = turn.inbound.conversation.context
    first = turn.first_token
    return TurnSummary(
        turn_id=turn.turn_id,
        at=round(time.time(), 3),
        api=turn.api,
        model=turn.runtime.id,
        tenant=turn.tenant,
        session=context.session,
        turn_class=context.turn_class,
        finish=turn.finish,
        failure=outcome.failure.kind if outcome.failure else None,
        prompt_tokens=outcome.usage.prompt,
        cached_tokens=outcome.usage.cached,
        output_tokens=outcome.usage.output,
        reasoning_tokens=outcome.usage.reasoning,
        calls=len(outcome.call_ids),
        first_token=None if first is None else round(first - turn.started, 4),
        seconds=round(time.monotonic() - turn.started, 4),
        silence=round(turn.silence, 3),
        prefix=prefix_header(verdict),
        lost=verdict.lost,
        cause=verdict.cause if verdict.lost else None,
        notes=tuple(sorted({note.code for note in turn.notes})),
    )


class Journal:
    """The last turns, newest first."""

    def __init__(self, size: int) -> None:
        self._turns: deque[TurnSummary] = deque(maxlen=size)

    def add(self, summary: TurnSummary) -> None:
        self._turns.appendleft(summary)

    def last(self, limit: int, *, session: str | None = None, model: str | None = None) -> Iterator[TurnSummary]:
        """At most `limit` of them, of one session or model where asked for."""
        for summary in self._turns:
            if limit <= 0:
                return
            if (session is None or summary.session == session) and (model is None or summary.model == model):
                limit -= 1
                yield summary


class JsonLines(logging.Formatter):
    """A log record as one line of JSON; what a caller passes as `extra={"turnwire": {...}}` becomes fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, _STANDARD, {}),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()
