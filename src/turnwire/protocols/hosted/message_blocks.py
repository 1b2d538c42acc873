"""Hosted tools in the blocks of the Messages API.

Promise: calls and answers have the vendor's own types, and what is read back from them is what the model read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from turnwire.protocols.framing import Framing
from turnwire.protocols.hosted.answers import carried_text, error_text, read_finding, read_text, run_text
from turnwire.protocols.hosted.offer import BASH, CODE, FETCH, SEARCH, flat_name
from turnwire.turns import CodeRun, HostedAnswered, HostedCalled, TextBlock, ToolResultBlock
from turnwire.unreadable import UNREADABLE

__all__ = ["CALLS", "RESULTS", "called_name", "content_block", "frames", "own_id", "read_result", "runs"]

CALLS: Mapping[str, str] = {"server_tool_use": "srv", "mcp_tool_use": "mcp"}
"""Blocks that hold a call, and how their ids differ from those of other calls."""

RESULTS: Mapping[str, str] = {
    "web_search_tool_result": "srv",
    "web_fetch_tool_result": "srv",
    "code_execution_tool_result": "srv",
    "bash_code_execution_tool_result": "srv",
    "mcp_tool_result": "mcp",
}
"""Blocks that hold the answer to such a call."""

_OWN = frozenset({SEARCH.name, FETCH.name, CODE.name, BASH.name})
_encode = msgspec.json.Encoder().encode
_ERROR = "{}_tool_result_error"


def runs(block: str, wire_id: str | None, name: str | None, server: str | None) -> bool:
    """Whether a block's call is one that a gateway may have run; what any other means is not known."""
    return bool(wire_id and name) and (name in _OWN if block == "server_tool_use" else bool(server))


def own_id(block: str, wire_id: str) -> str:
    """The id of a call without the prefix of its block."""
    return wire_id.removeprefix({**CALLS, **RESULTS}.get(block, ""))


def called_name(name: str, server: str | None) -> str:
    """The model's name of the tool that a block calls."""
    return flat_name(server, name) if server else name


def content_block(event: HostedCalled | HostedAnswered) -> dict[str, object]:
    """The block that shows a call or its answer."""
    if isinstance(event, HostedCalled):
        return _call(event)
    called, answer = event.call, event.answer
    kind = called.use.kind
    if kind == "mcp":
        content: object = [{"type": "text", "text": read_text(answer)}]
        wire_id = f"mcp{called.call_id}"
        return {"type": "mcp_tool_result", "tool_use_id": wire_id, "is_error": bool(answer.error), "content": content}
    if answer.error:
        content = {"type": _ERROR.format(kind), "error_code": answer.error}
    elif kind == "web_search":
        content = [
            {
                "type": "web_search_result",
                "title": finding.title,
                "url": finding.url,
                "encrypted_content": carried_text(finding),
                "page_age": finding.age or None,
            }
            for finding in answer.findings
        ]
    elif answer.run is not None:
        written = {"stdout": answer.run.stdout, "stderr": answer.run.stderr, "return_code": answer.run.return_code}
        content = {"type": f"{kind}_result", **written, "content": []}
    else:
        source = {"type": "text", "media_type": "text/plain", "data": read_text(answer)}
        url = answer.findings[0].url if answer.findings else ""
        content = {"type": "web_fetch_result", "url": url, "content": {"type": "document", "source": source}}
    return {"type": f"{kind}_tool_result", "tool_use_id": f"srv{called.call_id}", "content": content}


def _call(called: HostedCalled) -> dict[str, object]:
    arguments = msgspec.Raw(called.arguments.encode()) if _is_object(called.arguments) else {}
    if called.use.kind == "mcp":
        named = {"name": called.use.tool, "server_name": called.use.server}
        return {"type": "mcp_tool_use", "id": f"mcp{called.call_id}", **named, "input": arguments}
    return {"type": "server_tool_use", "id": f"srv{called.call_id}", "name": called.name, "input": arguments}


def frames(framing: Framing, index: int, block: Mapping[str, object]) -> bytes:
    """A block as a stream sends it: its input by a delta, anything else whole."""
    shown, deltas = dict(block), b""
    if block["type"] in CALLS:
        shown["input"] = {}
        delta = {"type": "input_json_delta", "partial_json": _encode(block["input"]).decode()}
        body = {"type": "content_block_delta", "index": index, "delta": delta}
        deltas = framing.event("content_block_delta", body)
    start = {"type": "content_block_start", "index": index, "content_block": shown}
    stop = {"type": "content_block_stop", "index": index}
    return framing.event("content_block_start", start) + deltas + framing.event("content_block_stop", stop)


def read_result(kind: str, tool_use_id: str, content: Any, is_error: bool) -> ToolResultBlock:
    """The answer in a block, as the model read it."""
    call_id = own_id(kind, tool_use_id)
    text = ""
    match content:
        case {"error_code": str(code)}:
            text, is_error = error_text(code), True
        case {"content": {"source": {"data": str(data)}}}:
            text = data
        case {"stdout": str(stdout), "stderr": str(stderr), "return_code": int(code)}:
            text = run_text(CodeRun(stdout=stdout, stderr=stderr, return_code=code))
        case list():
            text = "".join(_part(part) for part in content if isinstance(part, dict))
        case str():
            text = content
    return ToolResultBlock(call_id=call_id, content=(TextBlock(text=text),) if text else (), is_error=is_error)


def _part(part: dict[str, Any]) -> str:
    if part.get("type") == "web_search_result":
        title, url, content = (part.get(name) for name in ("title", "url", "encrypted_content"))
        return read_finding(*(each if isinstance(each, str) else "" for each in (title, url, content)))
    text = part.get("text")
    return text if isinstance(text, str) else ""


def _is_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except UNREADABLE:
        return False
