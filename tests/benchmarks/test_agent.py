"""The agent of the benchmarks sends back what it was given, as real ones do, and says so where nothing was called."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.load.agent import Agent
from benchmarks.load.client import AnswerFailure
from benchmarks.load.requests import Api

ARGUMENTS = '{"file_path": "/a"}'
CALL = {"index": 0, "id": "c1", "function": {"name": "Read", "arguments": '{"file_path"'}}
REST = {"index": 0, "function": {"arguments": ': "/a"}'}}
ITEMS: list[dict[str, Any]] = [
    {"type": "reasoning", "id": "rs1", "encrypted_content": "sealed"},
    {"type": "function_call", "call_id": "c1", "name": "Read", "arguments": ARGUMENTS},
]
BLOCKS: list[dict[str, Any]] = [
    {"type": "content_block_start", "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
    {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "Hm"}},
    {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "m."}},
    {"type": "content_block_delta", "delta": {"type": "signature_delta", "signature": "sealed"}},
    {"type": "content_block_stop"},
    {"type": "content_block_start", "content_block": {"type": "tool_use", "id": "c1", "name": "Read", "input": {}}},
    {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": ARGUMENTS[:9]}},
    {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": ARGUMENTS[9:]}},
    {"type": "content_block_stop"},
    {"type": "content_block_start", "content_block": {"type": "redacted_thinking", "data": "rest"}},
    {"type": "content_block_stop"},
]
ANSWERS: dict[Api, list[dict[str, Any]]] = {
    "chat": [
        {"choices": [{"delta": {"content": "I will "}}]},
        {"choices": [{"delta": {"content": "read.", "tool_calls": [CALL]}}]},
        {"choices": [{"delta": {"tool_calls": [REST]}}]},
    ],
    "messages": BLOCKS,
    "responses": [{"type": "response.output_item.done", "item": item} for item in ITEMS],
}
FUNCTION = {"id": "c1", "type": "function", "function": {"name": "Read", "arguments": ARGUMENTS}}
SENT_BACK: dict[Api, list[dict[str, Any]]] = {
    "chat": [
        {"role": "assistant", "content": "I will read.", "tool_calls": [FUNCTION]},
        {"role": "tool", "tool_call_id": "c1", "content": "text"},
    ],
    "messages": [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hmm.", "signature": "sealed"},
                {"type": "tool_use", "id": "c1", "name": "Read", "input": {"file_path": "/a"}},
                {"type": "redacted_thinking", "data": "rest"},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "text"}]},
    ],
    "responses": [*ITEMS, {"type": "function_call_output", "call_id": "c1", "output": "text"}],
}


def streamed(events: list[dict[str, Any]]) -> bytes:
    return b"HTTP/1.1 200 OK\r\n\r\n" + b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events)


@pytest.mark.parametrize("api", list(ANSWERS))
def test_an_answer_comes_back_with_its_result(api: Api) -> None:
    agent = Agent(api, "Go.")
    agent.go_on(streamed(ANSWERS[api]), "text")
    body = json.loads(agent.body())
    assert body["input" if api == "responses" else "messages"][-len(SENT_BACK[api]) :] == SENT_BACK[api]
    assert body["stream"] is True


@pytest.mark.parametrize("api", list(ANSWERS))
def test_an_answer_without_a_call_is_a_failure(api: Api) -> None:
    with pytest.raises(AnswerFailure):
        Agent(api, "Go.").go_on(streamed([]), "text")
