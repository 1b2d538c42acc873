"""A request that exists only to use a hosted tool, or demands a call of one, where nothing here runs it.

Promise: the client gets the vendor's own shape of a tool that failed, with the error code `unavailable`, and never an
invention of the model in the place of results. No model is asked.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from turnwire.protocols.anthropic.vocabulary import message_id, usage_object
from turnwire.protocols.framing import SSE
from turnwire.protocols.wire import ErrorReply, TurnFailure
from turnwire.turns import Message, ToolChoice, Usage

__all__ = ["ANSWERED", "HostedToolUnavailable", "is_only_for_search", "unavailable_reply"]

ANSWERED: Mapping[str, str] = {"web_search": "query", "web_fetch": "url", "code_execution": "code"}
"""Hosted tools whose failure the API has a block for, and the argument of each."""

_SEARCH_REQUEST = "Perform a web search for the query:"
"""How a harness starts the one message of a request whose answer it reads as search results."""

_MOST_QUERY = 512
_encode = msgspec.json.Encoder().encode


class HostedToolUnavailable(TurnFailure):
    """What a request was made for cannot be done. `tool` is the hosted tool's name (one of `ANSWERED`), `query` what it
    would be given, where that is known."""

    def __init__(self, tool: str, query: str, *, model: str, stream: bool) -> None:
        super().__init__("invalid_request", f"The tool {tool} is not available on this server.", code="unavailable")
        self.tool = tool
        self.query = query
        self.model = model
        self.stream = stream


def is_only_for_search(messages: tuple[Message, ...], hosted: tuple[str, ...], choice: ToolChoice) -> str | None:
    """The query of a request that wants the results of a hosted search and nothing else; None for any other. Such a
    request has no tool of the client's, one message, and a harness's sentence at its start."""
    spoken = [message for message in messages if message.role not in ("system", "developer")]
    if len(spoken) != 1 or choice.mode == "none" or "web_search" not in hosted:
        return None
    text = spoken[0].text.strip()
    if not text.startswith(_SEARCH_REQUEST):
        return None
    return text.removeprefix(_SEARCH_REQUEST).strip()[:_MOST_QUERY]


def unavailable_reply(failure: HostedToolUnavailable, turn_id: str) -> ErrorReply:
    """The answer: the call of the hosted tool, its error, and a sentence for whoever reads only text."""
    content = _content(failure, turn_id)
    message: dict[str, object] = {
        "id": message_id(turn_id),
        "type": "message",
        "role": "assistant",
        "model": failure.model,
        "content": content,
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": usage_object(Usage(0)),
    }
    if not failure.stream:
        return ErrorReply(status=200, body=_encode(message))
    opening = {**message, "content": [], "stop_reason": None}
    frames = [SSE.event("message_start", {"type": "message_start", "message": opening})]
    for index, block in enumerate(content):
        frames += _frames(index, block)
    delta = {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}}
    frames.append(SSE.event("message_delta", {**delta, "usage": {"output_tokens": 0}}))
    frames.append(SSE.event("message_stop", {"type": "message_stop"}))
    return ErrorReply(status=200, body=b"".join(frames), media_type="text/event-stream")


def _content(failure: HostedToolUnavailable, turn_id: str) -> list[dict[str, object]]:
    call_id = f"srvtoolu_{turn_id}"
    kind = failure.tool
    error = {"type": f"{kind}_tool_result_error", "error_code": "unavailable"}
    wanted = {ANSWERED[kind]: failure.query} if failure.query else {}
    return [
        {"type": "server_tool_use", "id": call_id, "name": kind, "input": wanted},
        {"type": f"{kind}_tool_result", "tool_use_id": call_id, "content": error},
        {"type": "text", "text": failure.message},
    ]


def _frames(index: int, block: dict[str, object]) -> list[bytes]:
    """A block as a stream sends it: its text or its input by deltas, anything else whole."""
    shown, deltas = block, []
    if block["type"] == "text":
        shown = {**block, "text": ""}
        deltas = [{"type": "text_delta", "text": block["text"]}]
    elif block["type"] == "server_tool_use":
        shown = {**block, "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": _encode(block["input"]).decode()}]
    start = {"type": "content_block_start", "index": index, "content_block": shown}
    stop = {"type": "content_block_stop", "index": index}
    return [
        SSE.event("content_block_start", start),
        *(
            SSE.event("content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta})
            for delta in deltas
        ),
        SSE.event("content_block_stop", stop),
    ]
