"""Captured turns as timelines for other tools: OpenTelemetry spans and a Perfetto trace.

Promise: span names, kinds and attributes are those of OpenTelemetry's conventions for generative AI; content is only in
there where it was asked for. Times are the captured ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import msgspec

from turnwire.capture.format import CapturedTurn
from turnwire.capture.trajectories import request_messages
from turnwire.turns import Message, ReasoningBlock, TextBlock, ToolCallBlock, ToolResultBlock

__all__ = ["otlp_spans", "perfetto_trace"]

_CLIENT = 3
_INTERNAL = 1


def _name(size: int, *parts: str) -> str:
    return blake2b("/".join(parts).encode(), digest_size=size).hexdigest()


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list | tuple):
        return {"arrayValue": {"values": [_value(one) for one in value]}}
    return {"stringValue": str(value)}


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items() if value is not None]


def otlp_spans(turns: Iterable[CapturedTurn], *, content: bool = False) -> dict[str, Any]:
    """The turns as OTLP's JSON: one trace for each session, a `chat` span for each turn, its stages inside. With
    `content`, also what was said."""
    spans: list[dict[str, Any]] = []
    for turn in turns:
        trace = _name(16, turn.tenant, turn.session or turn.turn_id)
        span = _name(8, turn.turn_id)
        summary = turn.summary
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "turnwire",
            "gen_ai.request.model": turn.model,
            "gen_ai.response.model": turn.model,
            "gen_ai.response.id": turn.turn_id,
            "gen_ai.response.finish_reasons": [turn.finish],
            "gen_ai.conversation.id": turn.session,
            "gen_ai.agent.id": turn.agent,
            "gen_ai.usage.input_tokens": summary.get("prompt_tokens"),
            "gen_ai.usage.output_tokens": summary.get("output_tokens"),
            "gen_ai.usage.cache_read.input_tokens": summary.get("cached_tokens"),
            "session.id": turn.session,
            "user.id": turn.tenant,
            "user_agent.original": turn.client,
            "error.type": summary.get("failure"),
            "turnwire.prefix": summary.get("prefix"),
            "turnwire.worker": summary.get("worker"),
        }
        if content:
            attributes["gen_ai.input.messages"] = _json([_message(one) for one in request_messages(turn)])
            attributes["gen_ai.output.messages"] = _json([_answer(turn)])
        spans.append(_span(trace, span, "", f"chat {turn.model}", _CLIENT, turn.at, turn.seconds, attributes))
        if summary.get("failure"):
            spans[-1]["status"] = {"code": 2, "message": str(summary["failure"])}
        for number, part in enumerate(summary.get("spans", ())):
            inner = {"gen_ai.tool.name": part.get("name") or None}
            at, length = turn.at + part["start"], part["end"] - part["start"]
            spans.append(
                _span(trace, _name(8, turn.turn_id, str(number)), span, part["kind"], _INTERNAL, at, length, inner)
            )
    scope = {"scope": {"name": "turnwire"}, "spans": spans}
    return {
        "resourceSpans": [
            {"resource": {"attributes": _attributes({"service.name": "turnwire"})}, "scopeSpans": [scope]}
        ]
    }


def _message(message: Message) -> dict[str, Any]:
    return {"role": message.role, "parts": [part for block in message.blocks if (part := _part(block))]}


def _part(block: object) -> dict[str, Any] | None:
    """A block as the conventions name its kind; None for one that has no text."""
    if isinstance(block, TextBlock):
        return {"type": "text", "content": block.text}
    if isinstance(block, ReasoningBlock):
        return {"type": "reasoning", "content": block.text}
    if isinstance(block, ToolCallBlock):
        return {"type": "tool_call", "id": block.id, "name": block.name, "arguments": block.arguments}
    if isinstance(block, ToolResultBlock):
        said = "\n".join(one.text for one in block.content if isinstance(one, TextBlock))
        return {"type": "tool_call_response", "id": block.call_id, "response": said}
    return None


def _answer(turn: CapturedTurn) -> dict[str, Any]:
    ids = iter(turn.call_ids)
    parts = [
        {"type": "tool_call", "id": next(ids, ""), "name": block.name, "arguments": block.arguments}
        if block.kind == "tool_call"
        else {"type": block.kind, "content": block.text}
        for block in turn.blocks
    ]
    return {"role": "assistant", "parts": parts, "finish_reason": turn.finish}


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _span(
    trace: str, span: str, parent: str, name: str, kind: int, at: float, seconds: float, attributes: dict[str, Any]
) -> dict[str, Any]:
    made = {
        "traceId": trace,
        "spanId": span,
        "name": name,
        "kind": kind,
        "startTimeUnixNano": str(int(at * 1e9)),
        "endTimeUnixNano": str(int((at + max(seconds, 0)) * 1e9)),
        "attributes": _attributes(attributes),
    }
    return made | {"parentSpanId": parent} if parent else made


def perfetto_trace(turns: Iterable[CapturedTurn]) -> dict[str, Any]:
    """The turns as trace events, which ui.perfetto.dev and chrome://tracing open: a process for each session, a thread
    for each of its agents."""
    events: list[dict[str, Any]] = []
    processes: dict[str, int] = {}
    threads: dict[tuple[int, str], int] = {}
    ended: dict[int, tuple[float, CapturedTurn]] = {}
    for turn in sorted(turns, key=lambda one: one.at):
        session = turn.session or "without a session"
        process = processes.setdefault(session, len(processes) + 1)
        if process == len(processes) and not any(event["pid"] == process for event in events):
            events.append({"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": session}})
        lane = turn.agent or turn.turn_class
        thread = threads.setdefault((process, lane), len(threads) + 1)
        if thread == len(threads) and thread not in ended:
            events.append({"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": {"name": lane}})
        before = ended.get(thread)
        if before is not None and turn.at > before[0]:
            what = "tools" if before[1].call_ids else "client"
            events.append(
                _slice(what, process, thread, before[0], turn.at - before[0], {"calls": len(before[1].call_ids)})
            )
        told = {
            key: turn.summary.get(key)
            for key in ("prompt_tokens", "cached_tokens", "output_tokens", "prefix", "worker")
        }
        events.append(
            _slice(f"turn {turn.finish}", process, thread, turn.at, turn.seconds, told | {"id": turn.turn_id})
        )
        for part in turn.summary.get("spans", ()):
            name = f"call {part['name']}" if part.get("name") else part["kind"]
            events.append(_slice(name, process, thread, turn.at + part["start"], part["end"] - part["start"], {}))
        ended[thread] = (turn.at + turn.seconds, turn)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _slice(name: str, process: int, thread: int, at: float, seconds: float, args: dict[str, Any]) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": "turnwire",
        "name": name,
        "pid": process,
        "tid": thread,
        "ts": round(at * 1e6),
        "dur": max(round(seconds * 1e6), 1),
        "args": args,
    }
