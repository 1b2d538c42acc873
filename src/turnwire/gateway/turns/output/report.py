"""What a client asked to know of its turn, in the shapes of NVIDIA Dynamo's `nvext`.

Promise: only what was asked for, as it was measured; what this engine does not report is left out.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from turnwire.engines.interface import Completion, worker_number
from turnwire.gateway.turns.record import TurnRecord
from turnwire.turns import Note, TurnReport

__all__ = ["turn_report"]


def turn_report(
    record: TurnRecord[Any], completion: Completion, ids: Sequence[int], notes: Sequence[Note]
) -> TurnReport:
    """The members that the request named."""
    fields: dict[str, Any] = {}
    for name in record.inbound.report:
        match name:
            case "worker_id" if record.route is not None:
                # Dynamo's workers have numbers: ours have names, and a name always gives the same number.
                number = worker_number(record.route.worker)
                fields[name] = {"prefill_worker_id": number, "decode_worker_id": number}
            case "timing":
                fields[name] = _timing(record, completion)
            case "stop_reason":
                fields[name] = completion.stop_sequence
            case "completion_token_ids" if ids:
                fields[name] = list(ids)
            case "notes":
                fields[name] = sorted({note.code for note in notes})
    return TurnReport(fields)


def _timing(record: TurnRecord[Any], completion: Completion) -> dict[str, Any]:
    now = time.monotonic()
    total = now - record.started
    timing: dict[str, Any] = {
        "request_received_ms": int((time.time() - total) * 1000),
        "total_time_ms": _ms(total),
    }
    queued = record.route.queued if record.route is not None else 0.0
    timing["prefill_wait_time_ms"] = _ms(queued)
    if record.first_token is not None:
        first = record.first_token - record.started
        timing["ttft_ms"] = _ms(first)
        timing["prefill_time_ms"] = _ms(max(first - queued, 0.0))
    if record.runtime.engine.capabilities.cached_tokens and completion.prompt_tokens:
        timing["kv_hit_rate"] = round(min(completion.cached_tokens / completion.prompt_tokens, 1.0), 4)
    return timing


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
