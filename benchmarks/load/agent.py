"""An agent's conversation with a gateway: each answer calls a tool, and the next request brings its result.

Promise: what the gateway said comes back as real agents send it: on Messages and Responses with the thoughts and their
seals, on Chat Completions the text and the calls.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from benchmarks.load.client import AnswerFailure
from benchmarks.load.requests import Api, Said, request, written

__all__ = ["Agent"]


class Agent:
    """One conversation, which begins with a question."""

    def __init__(self, api: Api, question: str, *, tools: int = 0) -> None:
        self._api: Api = api
        self._tools = tools
        self._said = written(api, [Said("user", question)])

    def body(self) -> bytes:
        """The next request."""
        asked = request(self._api, self._said, tools=self._tools)
        if self._api == "responses":
            asked |= {"store": False, "include": ["reasoning.encrypted_content"]}
        return json.dumps(asked).encode()

    def go_on(self, stream: bytes, result: str) -> None:
        """Take the answer into the conversation, and the result of its call."""
        try:
            self._said += _TURNS[self._api](list(_events(stream)), result)
        except (LookupError, TypeError, ValueError) as error:
            raise AnswerFailure(f"the answer cannot be read: {error!r}") from error


def _events(stream: bytes) -> Iterator[dict[str, Any]]:
    for line in stream.split(b"\n"):
        if line.startswith(b"data: {"):
            yield json.loads(line[6:])


def _chat(events: list[dict[str, Any]], result: str) -> list[dict[str, Any]]:
    text, call, arguments = "", None, ""
    for event in events:
        for choice in event["choices"]:
            text += choice["delta"].get("content") or ""
            for piece in choice["delta"].get("tool_calls") or ():
                call = call or piece
                arguments += piece["function"].get("arguments") or ""
    if call is None:
        raise AnswerFailure("the answer has no call")
    function = {"name": call["function"]["name"], "arguments": arguments}
    calls = [{"id": call["id"], "type": "function", "function": function}]
    return [
        {"role": "assistant", "content": text, "tool_calls": calls},
        {"role": "tool", "tool_call_id": call["id"], "content": result},
    ]


def _messages(events: list[dict[str, Any]], result: str) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    arguments = ""
    for event in events:
        if event["type"] == "content_block_start":
            blocks.append(event["content_block"])
        elif event["type"] == "content_block_delta":
            delta = event["delta"]
            if delta["type"] == "input_json_delta":
                arguments += delta["partial_json"]
            else:
                (field,) = delta.keys() - {"type"}
                blocks[-1][field] = blocks[-1].get(field, "") + delta[field]
        elif event["type"] == "content_block_stop" and blocks[-1]["type"] == "tool_use":
            blocks[-1]["input"], arguments = json.loads(arguments), ""
    calls = [block for block in blocks if block["type"] == "tool_use"]
    if not calls:
        raise AnswerFailure("the answer has no call")
    answer = {"type": "tool_result", "tool_use_id": calls[-1]["id"], "content": result}
    return [{"role": "assistant", "content": blocks}, {"role": "user", "content": [answer]}]


def _responses(events: list[dict[str, Any]], result: str) -> list[dict[str, Any]]:
    items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    calls = [item for item in items if item["type"] == "function_call"]
    if not calls:
        raise AnswerFailure("the answer has no call")
    return [*items, {"type": "function_call_output", "call_id": calls[-1]["call_id"], "output": result}]


_TURNS = {"chat": _chat, "messages": _messages, "responses": _responses}
