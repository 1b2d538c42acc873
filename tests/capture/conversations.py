"""Sessions of every API, run against a gateway that captures: what the tests of this folder are about."""

from __future__ import annotations

import json
from typing import Any

import aiohttp

from ..gateway.conftest import Client

TOOL = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
CALL = "<tool_call>\n<function=ls>\n<parameter=path>\n{}\n</parameter>\n</function>\n</tool_call>"
LINES: tuple[dict[str, Any], ...] = (
    {"text": "I look at both.\n</think>\n\nLet me see.\n" + CALL.format("/a") + "\n" + CALL.format("/b")},
    {"text": "Nothing there.\n</think>\n\nBoth are empty: `sum` of **nothing** is 0."},
    {"text": "They thanked me.\n</think>\n\nYou are welcome. 🙂"},
)
"""A turn with a thought and two calls, its answer, and a turn after that."""


async def messages(client: Client, *, stream: bool = True, **headers: str) -> None:
    """Three turns over /v1/messages: a thought and two parallel calls, their results, thanks."""
    history: list[dict[str, Any]] = [{"role": "user", "content": "What is in /a and /b?"}]
    for more in (None, "Thanks."):
        for _ in range(2 if more is None else 1):
            body = {
                "model": "test-model",
                "max_tokens": 800,
                "stream": stream,
                "system": "You list files.",
                "thinking": {"type": "enabled", "budget_tokens": 700},
                "tools": [{"name": "ls", "description": "List.", "input_schema": TOOL}],
                "messages": history,
            }
            async with client.session.post(client.base + "/v1/messages", json=body, headers=headers) as answer:
                assert answer.status == 200, await answer.text()
                data = await answer.text()
            content = _streamed(data) if stream else json.loads(data)["content"]
            history.append({"role": "assistant", "content": content})
            calls = [block for block in content if block["type"] == "tool_use"]
            if calls:
                results = [{"type": "tool_result", "tool_use_id": call["id"], "content": "(empty)"} for call in calls]
                history.append({"role": "user", "content": results})
        if more is None:
            history.append({"role": "user", "content": "Thanks."})


def _streamed(data: str) -> list[dict[str, Any]]:
    """The content blocks of a streamed message."""
    blocks: list[dict[str, Any]] = []
    for line in data.splitlines():
        event = json.loads(line[6:]) if line.startswith("data: ") else {}
        if event.get("type") == "content_block_start":
            blocks.append(dict(event["content_block"]))
            blocks[-1]["parts"] = ""
        elif event.get("type") == "content_block_delta":
            delta, block = event["delta"], blocks[-1]
            match delta["type"]:
                case "text_delta":
                    block["text"] += delta["text"]
                case "thinking_delta":
                    block["thinking"] += delta["thinking"]
                case "signature_delta":
                    block["signature"] = delta["signature"]
                case "input_json_delta":
                    block["parts"] += delta["partial_json"]
    for block in blocks:
        parts = block.pop("parts")
        if block["type"] == "tool_use":
            block["input"] = json.loads(parts or "{}")
    return blocks


async def chat(client: Client, *, stream: bool = True, **headers: str) -> None:
    """The same over /v1/chat/completions."""
    history: list[dict[str, Any]] = [
        {"role": "system", "content": "You list files."},
        {"role": "user", "content": "What is in /a and /b?"},
    ]
    tools = [{"type": "function", "function": {"name": "ls", "description": "List.", "parameters": TOOL}}]
    for turn in range(3):
        body = {
            "model": "test-model",
            "stream": stream,
            "tools": tools,
            "messages": history,
            "stream_options": {"include_usage": True},
        }
        if not stream:
            del body["stream_options"]
        async with client.session.post(client.base + "/v1/chat/completions", json=body, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            data = await answer.text()
        message = _said(data) if stream else json.loads(data)["choices"][0]["message"]
        history.append(message)
        history += [
            {"role": "tool", "tool_call_id": call["id"], "content": "(empty)"}
            for call in message.get("tool_calls") or ()
        ]
        if turn == 1:
            history.append({"role": "user", "content": "Thanks."})


def _said(data: str) -> dict[str, Any]:
    """The message of a streamed chat completion."""
    message: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": []}
    for line in data.splitlines():
        if not line.startswith("data: {"):
            continue
        for choice in json.loads(line[6:])["choices"]:
            delta = choice["delta"]
            message["content"] += delta.get("content") or ""
            for call in delta.get("tool_calls") or ():
                if call["index"] == len(message["tool_calls"]):
                    message["tool_calls"].append({"id": call["id"], "type": "function", "function": {}})
                    message["tool_calls"][-1]["function"] = {"name": call["function"]["name"], "arguments": ""}
                made = message["tool_calls"][call["index"]]["function"]
                made["arguments"] += call["function"].get("arguments") or ""
    if not message["tool_calls"]:
        del message["tool_calls"]
    return message


def _response_body(items: list[dict[str, Any]], stream: bool) -> dict[str, Any]:
    return {
        "model": "test-model",
        "stream": stream,
        "store": False,
        "instructions": "You list files.",
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "medium"},
        "tools": [{"type": "function", "name": "ls", "description": "List.", "parameters": TOOL}],
        "input": items,
    }


def _results(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"type": "function_call_output", "call_id": item["call_id"], "output": "(empty)"}
        for item in output
        if item["type"] == "function_call"
    ]


async def responses(client: Client, *, stream: bool = True, **headers: str) -> None:
    """The same over /v1/responses."""
    items: list[dict[str, Any]] = [{"role": "user", "content": "What is in /a and /b?"}]
    for turn in range(3):
        body = _response_body(items, stream)
        async with client.session.post(client.base + "/v1/responses", json=body, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            data = await answer.text()
        if stream:
            data = next(line[6:] for line in data.splitlines() if line.startswith('data: {"type":"response.completed"'))
        document = json.loads(data)
        output = (document["response"] if stream else document)["output"]
        items = [*items, *output, *_results(output)]
        if turn == 1:
            items.append({"role": "user", "content": "Thanks."})


async def socket(client: Client) -> None:
    """The same over a WebSocket, each turn continuing the one before by its id."""
    items: list[dict[str, Any]] = [{"role": "user", "content": "What is in /a and /b?"}]
    previous: str | None = None
    async with client.session.ws_connect(client.base.replace("http", "ws") + "/v1/responses") as connection:
        for turn in range(3):
            body = _response_body(items, True) | {"type": "response.create", "previous_response_id": previous}
            await connection.send_json(body)
            while True:
                message = await connection.receive()
                assert message.type is aiohttp.WSMsgType.TEXT, message
                event = json.loads(message.data)
                assert event["type"] != "error", event
                if event["type"] == "response.completed":
                    break
            previous = event["response"]["id"]
            items = _results(event["response"]["output"])
            if turn == 1:
                items.append({"role": "user", "content": "Thanks."})


async def completions(client: Client) -> None:
    """A prompt without a conversation."""
    body = {"model": "test-model", "prompt": "Once upon a time", "max_tokens": 20, "stream": True}
    async with client.session.post(client.base + "/v1/completions", json=body) as answer:
        assert answer.status == 200, await answer.text()
        await answer.read()
