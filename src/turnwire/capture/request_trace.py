"""Captured turns as NVIDIA Dynamo's request trace, `dynamo.request.trace.v1`.

Promise: a `request_end` record for each turn and a `tool_end` for each call that the next request answered; ids, counts
and times only, nothing that was said. The hashes are of the prompt's blocks, each over all that came before it, so that
equal prefixes have equal hashes; they are this project's own, not those of Dynamo's router. A turn whose ids were
masked or are unknown is left out.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any

from turnwire.capture.format import MASKED, CapturedTurn

__all__ = ["SCHEMA", "request_trace"]

SCHEMA = "dynamo.request.trace.v1"
_BLOCK = 64
_FINISH = {"stop": "stop", "tool_calls": "tool_calls", "length": "length", "content_filter": "content_filter"}


def request_trace(turns: Iterable[CapturedTurn], block: int = _BLOCK) -> Iterator[dict[str, Any]]:
    """The records of captured turns, which come oldest first, `block` tokens to a hash. Dynamo reads a trace either
    with a session on every request or with one on none: a turn without a session is a session of its own."""
    waiting: dict[tuple[str, str], CapturedTurn] = {}
    for turn in turns:
        if not turn.prompt.ids or MASKED in turn.prompt.ids:
            continue
        session, parent = _session(turn)
        context = {"session_id": session} | ({"parent_session_id": parent} if parent else {})
        before = waiting.pop((turn.tenant, session), None)
        if before is not None:
            yield from _tools(before, turn, context)
        waiting[turn.tenant, session] = turn
        end = turn.at + turn.seconds
        yield {
            "schema": SCHEMA,
            "event_type": "request_end",
            "event_time_unix_ms": round(1000 * end),
            "event_source": "dynamo",
            "agent_context": context,
            "request": _request(turn, block),
        }


def _session(turn: CapturedTurn) -> tuple[str, str | None]:
    """A turn's session and the one that it was started by: a sub-agent is a session of its own."""
    session = turn.session or turn.turn_id
    return (f"{session}:{turn.agent}", session) if turn.agent else (session, turn.parent)


def _request(turn: CapturedTurn, block: int) -> dict[str, Any]:
    summary = turn.summary
    first, queued = summary.get("first_token"), summary.get("queued") or 0.0
    prompt, output = len(turn.prompt.ids), int(summary.get("output_tokens") or len(turn.output_ids))
    cached = summary.get("cached_tokens")
    told: dict[str, Any] = {
        "request_id": turn.turn_id,
        "model": turn.model,
        "input_tokens": prompt,
        "output_tokens": output,
        "cached_tokens": cached,
        "request_received_ms": round(1000 * turn.at),
        "prefill_wait_time_ms": round(1000 * queued, 3),
        "prefill_time_ms": None if first is None else round(1000 * max(first - queued, 0), 3),
        "ttft_ms": None if first is None else round(1000 * first, 3),
        "total_time_ms": round(1000 * turn.seconds, 3),
        "kv_hit_rate": None if cached is None else round(cached / prompt, 4),
        "replay": {
            "trace_block_size": block,
            "input_length": prompt,
            "input_sequence_hashes": _hashes(turn.prompt.ids, block),
        },
        "finish_reason_metadata": _finish(turn),
    }
    if first is not None and output > 1:
        told["avg_itl_ms"] = round(1000 * max(turn.seconds - first, 0) / (output - 1), 3)
    return {name: value for name, value in told.items() if value is not None}


def _finish(turn: CapturedTurn) -> dict[str, Any]:
    names = [block.name for block in turn.blocks if block.kind == "tool_call"]
    calls = [
        {"choice_index": 0, "tool_call_index": number, "id": call_id, "name": name}
        for number, (call_id, name) in enumerate(zip(turn.call_ids, names, strict=False))
    ]
    finish = _FINISH.get(turn.finish)
    made: dict[str, Any] = {"finish_reason": finish} if finish else {}
    made["backend_finish_reason"] = turn.finish
    return made | ({"tool_calls": calls} if calls else {})


def _tools(before: CapturedTurn, turn: CapturedTurn, context: dict[str, str]) -> Iterator[dict[str, Any]]:
    """The tools that the client ran between two requests. Only the whole wait is known, so each has all of it."""
    began, ended = round(1000 * (before.at + before.seconds)), round(1000 * turn.at)
    for call in _finish(before).get("tool_calls", ()):
        yield {
            "schema": SCHEMA,
            "event_type": "tool_end",
            "event_time_unix_ms": ended,
            "event_source": "harness",
            "agent_context": context,
            "tool": {
                "tool_call_id": call["id"],
                "tool_class": call["name"],
                "started_at_unix_ms": min(began, ended),
                "ended_at_unix_ms": ended,
                "duration_ms": max(ended - began, 0),
                "status": "succeeded",
            },
        }


def _hashes(ids: Sequence[int], block: int) -> list[int]:
    """A hash for each block of a prompt, the last one also if it is not full."""
    made: list[int] = []
    before = b""
    for start in range(0, len(ids), block):
        before = blake2b(before + array("q", ids[start : start + block]).tobytes(), digest_size=8).digest()
        made.append(int.from_bytes(before, "big"))
    return made
