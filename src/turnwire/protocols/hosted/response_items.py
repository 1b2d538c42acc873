"""Hosted tools in the items and events of the Responses API.

Promise: each call is one item that opens when the model has made the call and is done when it has its answer. The item
has no place for what the model read, so a reasoning item without a thought carries that after it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from turnwire.protocols.framing import json_line
from turnwire.protocols.hosted.answers import CarriedCall, read_carrier, read_text
from turnwire.turns import Finding, HostedAnswer, HostedAnswered, HostedCalled
from turnwire.unreadable import UNREADABLE

__all__ = ["HOSTED_ITEMS", "answered_events", "called_events", "finished_item", "read_call"]

HOSTED_ITEMS = frozenset({"web_search_call", "file_search_call", "code_interpreter_call", "mcp_call"})
"""The types of items that hold such calls."""

CONTAINER = "cntr_operator"
"""The one place where code runs: the operator's server. Items must name a container."""


def called_events(called: HostedCalled, place: int) -> list[tuple[str, bytes]]:
    """The names and members of the events that open a call's item."""
    item = _item(called, "in_progress")
    where = _where(item, place)
    events = [("response.output_item.added", b'"output_index":%d,"item":%b' % (place, json_line(item)))]
    if called.use.kind == "mcp":
        arguments = json_line(called.arguments)
        return [
            *events,
            ("response.mcp_call.in_progress", where),
            ("response.mcp_call_arguments.delta", where + b',"delta":' + arguments),
            ("response.mcp_call_arguments.done", where + b',"arguments":' + arguments),
        ]
    name = f"response.{item['type']}"
    if called.use.kind == "code_execution":
        code = json_line(item["code"])
        return [
            *events,
            (f"{name}.in_progress", where),
            (f"{name}_code.delta", where + b',"delta":' + code),
            (f"{name}_code.done", where + b',"code":' + code),
            (f"{name}.interpreting", where),
        ]
    return [*events, (f"{name}.in_progress", where), (f"{name}.searching", where)]


def answered_events(event: HostedAnswered, place: int, item: dict[str, Any]) -> list[tuple[str, bytes]]:
    """The names and members of the events that end it."""
    # Only calls of MCP tools have an event for a failure; of the others the item's status says it.
    end = "failed" if item["type"] == "mcp_call" and event.answer.error else "completed"
    return [
        (f"response.{item['type']}.{end}", _where(item, place)),
        ("response.output_item.done", b'"output_index":%d,"item":%b' % (place, json_line(item))),
    ]


def finished_item(event: HostedAnswered) -> dict[str, Any]:
    """The item of a call that has its answer."""
    return _item(event.call, "failed" if event.answer.error else "completed", event.answer)


def read_call(item: dict[str, Any]) -> CarriedCall | None:
    """The call and answer that a reasoning item carries, if it is such a carrier."""
    carried = item.get("encrypted_content")
    return read_carrier(carried) if isinstance(carried, str) else None


def _item(called: HostedCalled, status: str, answer: HostedAnswer | None = None) -> dict[str, Any]:
    if called.use.kind == "mcp":
        failed = answer is not None and answer.error
        return {
            "id": f"mcp_{called.call_id}",
            "type": "mcp_call",
            "status": status,
            "server_label": called.use.server,
            "name": called.use.tool,
            "arguments": called.arguments,
            "output": read_text(answer) if answer is not None and not failed else None,
            "error": read_text(answer) if answer is not None and failed else None,
            "approval_request_id": None,
        }
    if called.use.kind == "code_execution":
        outputs = None if answer is None else [{"type": "logs", "logs": read_text(answer)}]
        return {
            "id": f"ci_{called.call_id}",
            "type": "code_interpreter_call",
            "status": status,
            "code": _argument(called.arguments, "code"),
            "container_id": CONTAINER,
            "outputs": outputs,
        }
    query = _argument(called.arguments, "query")
    if called.use.kind == "file_search":
        results = None if answer is None else [_passage(finding) for finding in answer.findings]
        searched = {"id": f"fs_{called.call_id}", "type": "file_search_call", "status": status}
        return {**searched, "queries": [query], "results": results}
    action: dict[str, Any] = {"type": "search", "query": query, "queries": [query]}
    if answer is not None:
        action["sources"] = [{"type": "url", "url": finding.url} for finding in answer.findings]
    return {"id": f"ws_{called.call_id}", "type": "web_search_call", "status": status, "action": action}


def _passage(finding: Finding) -> dict[str, Any]:
    return {
        "file_id": finding.file or finding.url or finding.title,
        "filename": finding.title,
        "score": finding.score,
        "text": finding.text,
        "attributes": {},
    }


def _argument(arguments: str, name: str) -> str:
    try:
        value = msgspec.json.decode(arguments)
    except UNREADABLE:
        return ""
    given = value.get(name) if isinstance(value, dict) else None
    return given if isinstance(given, str) else ""


def _where(item: dict[str, Any], place: int) -> bytes:
    return b'"item_id":%b,"output_index":%d' % (json_line(item["id"]), place)
