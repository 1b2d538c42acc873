"""Turns that run now, as an operator sees them.

Promise: numbers, codes and ids only; made when somebody looks, so that nobody pays for it otherwise.
"""

from __future__ import annotations

import msgspec

from turnwire.gateway.telemetry.journal import Span, spans_of
from turnwire.gateway.turns.turn import Turn

__all__ = ["LiveTurn", "live_turn"]


class LiveTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A running turn. `stage` is queue, prefill, or the kind of block that it writes; `seconds` since its request was
    read."""

    turn_id: str
    api: str
    model: str
    tenant: str
    session: str | None
    client: str | None
    turn_class: str
    stage: str
    seconds: float
    first_token: float | None
    prompt_tokens: int
    output_tokens: int
    shared: int
    prefix: str
    worker: str | None
    spans: tuple[Span, ...]


def live_turn(turn: Turn, now: float) -> LiveTurn:
    """A running turn at a moment."""
    record = turn.record
    context, first = record.inbound.conversation.context, record.first_token
    if first is None:
        stage = "queue" if record.route is None else "prefill"
    else:
        running = [block.kind for block in record.blocks if block.closed is None]
        stage = running[-1] if running else "between blocks"
    return LiveTurn(
        turn_id=record.turn_id,
        api=record.api,
        model=record.runtime.id,
        tenant=record.tenant,
        session=context.session,
        client=context.client,
        turn_class=context.turn_class,
        stage=stage,
        seconds=round(now - record.started, 3),
        first_token=None if first is None else round(first - record.started, 4),
        prompt_tokens=len(record.prompt.ids),
        output_tokens=turn.produced,
        shared=record.continuity.shared,
        prefix=record.continuity.state,
        worker=record.route.worker if record.route is not None else None,
        spans=spans_of(record, now),
    )
