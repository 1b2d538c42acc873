"""Every object and event that we send, held against the published types of the three APIs."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest

from .conftest import Serve
from .outputs import call, line, thought
from .sandbox import Sandbox
from .serving import ServedGateway

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
QUESTION = "How is the weather in Paris?"
TURN = line(
    thought("I look it up."),
    "One moment.",
    call("get_weather", city="Paris"),
    thought("And Rome.", first=False),
    call("get_weather", city="Rome"),
)
TEXT = line(thought("Easy."), "Hello there.")


def body(api: str, model: str, *, tools: bool, stream: bool) -> tuple[str, dict[str, Any]]:
    """The request of one case: its path and its body."""
    if api == "messages":
        request: dict[str, Any] = {"max_tokens": 4000, "messages": [{"role": "user", "content": QUESTION}]}
        request["thinking"] = {"type": "enabled", "budget_tokens": 1024}
        if tools:
            request["tools"] = [{"name": "get_weather", "input_schema": SCHEMA}]
        path = "/v1/messages"
    elif api == "responses":
        request = {"input": QUESTION}
        if tools:
            request["tools"] = [{"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": False}]
        path = "/v1/responses"
    else:
        request = {"messages": [{"role": "user", "content": QUESTION}]}
        if tools:
            request["tools"] = [{"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}]
        if stream:
            request["stream_options"] = {"include_usage": True}
        path = "/v1/chat/completions"
    return path, {"model": model, "stream": stream, **request}


def post(gateway: ServedGateway, path: str, content: dict[str, Any]) -> None:
    headers = {"content-type": "application/json", "anthropic-version": "2023-06-01", "x-api-key": "k"}
    request = urllib.request.Request(gateway.url + path, json.dumps(content).encode(), headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        answer.read()


@pytest.mark.parametrize("api", ["messages", "responses", "chat"])
def test_no_problem_in_any_object_or_event(serve: Serve, sandbox: Sandbox, api: str) -> None:
    rows: list[dict[str, Any]] = []
    for script, tools in ((TURN, True), (TEXT, False)):
        gateway = serve(script)
        for stream in (True, False):
            post(gateway, *body(api, gateway.model, tools=tools, stream=stream))
        streamed, whole = gateway.turns()
        rows.append({"api": api, "kind": "object", "data": json.loads(whole.answer)})
        events = [sent for sent in streamed.events if sent.data != "[DONE]"]
        rows += [{"api": api, "kind": "event", "data": sent.data} for sent in events]
        if api != "chat":
            assert all(sent.event == sent.data["type"] for sent in events), "the event's name is not its type"
        if api == "responses":
            numbers = [sent.data["sequence_number"] for sent in events]
            assert numbers == sorted(set(numbers))
    path = sandbox.folder / "recorded.json"
    path.write_text(json.dumps(rows))
    done = sandbox.python("py-sdks", "type_check.py", str(path))
    assert done.code == 0, str(done)
    assert done.rows[-1]["checked"] > 20
    assert done.rows[-1]["problems"] == []


def test_the_check_finds_a_problem(sandbox: Sandbox) -> None:
    broken = [
        {
            "api": "messages",
            "kind": "event",
            "data": {"type": "content_block_start", "content_block": {"type": "text"}},
        },
        {"api": "responses", "kind": "event", "data": {"type": "response.completed", "response": {"id": "r"}}},
        {"api": "chat", "kind": "object", "data": {"id": "c", "object": "chat.completion"}},
    ]
    path = sandbox.folder / "recorded.json"
    path.write_text(json.dumps(broken))
    done = sandbox.python("py-sdks", "type_check.py", str(path))
    found = " ".join(done.rows[-1]["problems"])
    assert all(word in found for word in ("messages", "responses", "chat"))
