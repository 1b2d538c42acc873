"""A request that exists only to search is answered with the search's own error, by no model."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnwire.protocols.anthropic import HostedToolUnavailable, decode, decode_count, unavailable_reply

from .pipeline import MODEL, request

SEARCH = [{"type": "web_search_20250305", "name": "web_search", "max_uses": 8}]
ASK = [{"role": "user", "content": [{"type": "text", "text": "Perform a web search for the query: who won"}]}]


def refused(**fields: Any) -> HostedToolUnavailable:
    body = {"model": MODEL, "messages": ASK, "tools": SEARCH, **fields}
    with pytest.raises(HostedToolUnavailable) as caught:
        decode(json.dumps(body).encode(), {})
    return caught.value


def test_the_whole_answer_is_the_tools_error() -> None:
    reply = unavailable_reply(refused(), "t1")
    message = json.loads(reply.body)
    call, result, text = message["content"]
    assert (reply.status, reply.media_type) == (200, "application/json")
    assert call == {"type": "server_tool_use", "id": "srvtoolu_t1", "name": "web_search", "input": {"query": "who won"}}
    assert result["tool_use_id"] == call["id"]
    assert result["content"] == {"type": "web_search_tool_result_error", "error_code": "unavailable"}
    assert text == {"type": "text", "text": "The tool web_search is not available on this server."}
    assert (message["model"], message["stop_reason"]) == (MODEL, "end_turn")


def test_the_stream_says_the_same() -> None:
    reply = unavailable_reply(refused(stream=True), "t1")
    events = [json.loads(line[6:]) for line in reply.body.decode().split("\n") if line.startswith("data: ")]
    assert events[0]["type"] == "message_start"
    assert [event["type"] for event in events[-2:]] == ["message_delta", "message_stop"]
    blocks: list[dict[str, Any]] = []
    for event in events:
        if event["type"] == "content_block_start":
            assert event["index"] == len(blocks)
            blocks.append(dict(event["content_block"]))
        elif event["type"] == "content_block_delta":
            delta, block = event["delta"], blocks[event["index"]]
            if delta["type"] == "text_delta":
                block["text"] += delta["text"]
            else:
                block["input"] = json.loads(delta["partial_json"])
    assert blocks == json.loads(unavailable_reply(refused(), "t1").body)["content"]
    assert reply.media_type == "text/event-stream"


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [{"role": "user", "content": "What is two and two?"}]},
        {"tools": [*SEARCH, {"name": "Read", "input_schema": {"type": "object"}}]},
        {"tool_choice": {"type": "none"}},
        {"messages": [*ASK, {"role": "assistant", "content": "x"}, {"role": "user", "content": "and?"}]},
    ],
)
def test_any_other_request_is_answered_by_the_model(fields: dict[str, Any]) -> None:
    inbound = request(**{"messages": ASK, "tools": SEARCH, **fields})
    assert "tools.hosted_ignored" in [note.code for note in inbound.notes]


def test_counting_refuses_nothing() -> None:
    body = json.dumps({"model": MODEL, "messages": ASK, "tools": SEARCH}).encode()
    assert decode_count(body, {}).conversation.messages
