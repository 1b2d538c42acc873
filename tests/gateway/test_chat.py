"""Chat Completions over a real socket: fragments, choices, dispatch, replay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import Client, Serve
from .test_messages import MIXED, records

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "Bash",
            "description": "Run a command.",
            "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
        },
    }
]


def request(**over: Any) -> dict[str, Any]:
    return {
        "model": "test-model",
        "messages": [{"role": "user", "content": "How many lines?"}],
        "tools": TOOLS,
        "stream": True,
    } | over


async def chunks(client: Client, body: dict[str, Any], **headers: str) -> list[tuple[str, Any]]:
    """Every event of a stream: its name (empty for ordinary chunks) and its data."""
    async with client.session.post(client.base + "/v1/chat/completions", json=body, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        return _frames((await answer.read()).decode())


def _frames(text: str) -> list[tuple[str, Any]]:
    found = []
    for frame in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in frame.splitlines() if not line.startswith(":"))
        if "data" in fields:
            data = fields["data"]
            found.append((fields.get("event", ""), data if data == "[DONE]" else json.loads(data)))
    return found


def assembled(found: list[tuple[str, Any]], choice: int = 0) -> dict[str, Any]:
    """What a client that stitches by index ends up with."""
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": [], "finish": None}
    for name, data in found:
        if name or data == "[DONE]":
            continue
        for part in data["choices"]:
            if part["index"] != choice:
                continue
            delta = part["delta"]
            message["content"] += delta.get("content") or ""
            message["reasoning_content"] += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls", ()):
                if call["index"] == len(message["tool_calls"]):
                    message["tool_calls"].append({"id": call["id"], "name": call["function"]["name"], "arguments": ""})
                message["tool_calls"][call["index"]]["arguments"] += call["function"]["arguments"]
            message["finish"] = part["finish_reason"] or message["finish"]
    return message


async def test_a_turn_in_fragments(serve: Serve) -> None:
    client = await serve({"text": MIXED, "cut": 3})
    found = await chunks(client, request(stream_options={"include_usage": True}))
    message = assembled(found)
    assert "First I look." in message["reasoning_content"]
    assert "Then I count." in message["reasoning_content"]
    assert message["content"].strip() == "Both are running."
    assert [(call["name"], json.loads(call["arguments"])) for call in message["tool_calls"]] == [
        ("Bash", {"command": "ls"}),
        ("Bash", {"command": "wc -l *.py"}),
    ]
    assert len({call["id"] for call in message["tool_calls"]}) == 2
    assert message["finish"] == "tool_calls"
    assert found[-1][1] == "[DONE]"
    usage = found[-2][1]
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] == usage["usage"]["prompt_tokens"] + usage["usage"]["completion_tokens"]
    assert all(name == "" for name, _ in found)


async def test_no_chunk_without_a_choice_unless_usage_was_asked_for(serve: Serve) -> None:
    client = await serve({"text": "Hi."})
    assert all(data == "[DONE]" or data["choices"] for _, data in await chunks(client, request()))


async def test_the_whole_answer_says_the_same(serve: Serve) -> None:
    client = await serve({"text": MIXED})
    streamed = assembled(await chunks(client, request()))
    status, whole = await client.post("/v1/chat/completions", request(stream=False))
    assert status == 200
    message = whole["choices"][0]["message"]
    assert message["content"] == streamed["content"]
    assert message["reasoning_content"] == streamed["reasoning_content"]
    assert [call["function"]["arguments"] for call in message["tool_calls"]] == [
        call["arguments"] for call in streamed["tool_calls"]
    ]


async def test_several_choices_share_one_answer(serve: Serve) -> None:
    client = await serve({"text": "Letters.\n</think>\n\na b c d e f"})
    found = await chunks(client, request(n=3, stream_options={"include_usage": True}))
    assert [assembled(found, choice)["content"] for choice in range(3)] == ["a b c d e f"] * 3
    assert [data for _, data in found].count("[DONE]") == 1
    one = assembled(await chunks(client, request()))
    assert one["content"] == "a b c d e f"
    status, whole = await client.post("/v1/chat/completions", request(n=2, stream=False))
    assert status == 200
    assert [choice["index"] for choice in whole["choices"]] == [0, 1]
    status, error = await client.post("/v1/chat/completions", request(n=1000))
    assert (status, error["error"]["param"]) == (400, "n")


async def test_dispatch_comes_once_per_call_and_only_when_asked_for(serve: Serve) -> None:
    client = await serve({"text": MIXED, "cut": 5})
    found = await chunks(client, request(), **{"x-turnwire-dispatch": "1"})
    calls = assembled(found)["tool_calls"]
    dispatched = [data for name, data in found if name == "tool_call_dispatch"]
    assert [entry["tool_call"]["id"] for entry in dispatched] == [call["id"] for call in calls]
    assert [entry["tool_call"]["function"]["arguments"] for entry in dispatched] == [c["arguments"] for c in calls]
    assert [entry["choice_index"] for entry in dispatched] == [0, 0]
    thoughts = [data["reasoning_content"] for name, data in found if name == "reasoning_dispatch"]
    assert [thought.strip() for thought in thoughts] == ["First I look.", "Then I count."]
    # The first call is announced before the second one begins.
    names = [name or json.dumps(data) for name, data in found]
    first = names.index("tool_call_dispatch")
    second = next(i for i, text in enumerate(names) if '"index": 1, "id"' in text)
    assert first < second


async def test_the_safe_form_of_dispatch_is_a_key_on_a_real_delta(serve: Serve) -> None:
    client = await serve({"text": MIXED})
    found = await chunks(client, request(turnwire={"dispatch": "delta"}))
    assert all(name == "" for name, _ in found)
    keys = [
        part["delta"]["tool_call_dispatch"]["tool_call"]["function"]["name"]
        for _, data in found
        if data != "[DONE]"
        for part in data["choices"]
        if "tool_call_dispatch" in part["delta"]
    ]
    assert keys == ["Bash", "Bash"]
    assert len(assembled(found)["tool_calls"]) == 2


@pytest.mark.parametrize("returns", ["nothing", "details"])
async def test_order_survives_although_the_api_has_no_place_for_it(serve: Serve, tmp_path: Path, returns: str) -> None:
    folder = tmp_path / "records"
    settings = {"record": str(folder), "seal_key": "a key for tests only"}
    lines = ({"text": MIXED}, {"text": "Done.\n</think>\n\nSeven."})
    client = await serve(*lines, **settings)
    _, whole = await client.post("/v1/chat/completions", request(stream=False))
    message = whole["choices"][0]["message"]
    if returns == "nothing":
        message = {"role": "assistant", "tool_calls": message["tool_calls"], "content": message["content"]}
    else:
        client = await serve(*lines, **settings)
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in message["tool_calls"]]
    history = [*request()["messages"], message, *results]
    status, _ = await client.post("/v1/chat/completions", request(stream=False, messages=history))
    assert status == 200
    first, second = records(folder)
    assert second["prompt_text"].startswith(first["prompt_text"] + first["output_text"])


async def test_a_turn_is_remembered_before_its_client_hears_the_end(serve: Serve) -> None:
    client = await serve({"text": MIXED, "cut": 3}, {"text": "Done.\n</think>\n\nSeven."})
    said = b""
    async with client.session.post(client.base + "/v1/chat/completions", json=request()) as answer:
        while b"[DONE]" not in said:
            said += await answer.content.readany()
    calls = [
        {"id": call["id"], "type": "function", "function": {"name": "Bash", "arguments": call["arguments"]}}
        for call in assembled(_frames(said.decode()))["tool_calls"]
    ]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in calls]
    message = {"role": "assistant", "tool_calls": calls, "content": "Both are running."}
    body = request(stream=False, messages=[*request()["messages"], message, *results])
    async with client.session.post(client.base + "/v1/chat/completions", json=body) as answer:
        assert answer.status == 200
        assert answer.headers["x-turnwire-prefix"].startswith("held")


@pytest.mark.parametrize(
    ("over", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "alien"}]}, "messages.0.role"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools.0.function.name"),
        ({"tool_choice": {"type": "function", "function": {"name": "nope"}}}, "tool_choice"),
        ({"temperature": "hot"}, "temperature"),
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
        ({"stream": "yes"}, "stream"),
        ({"max_tokens": 0}, "max_tokens"),
    ],
)
async def test_a_wrong_field_is_named(serve: Serve, over: dict[str, Any], param: str) -> None:
    client = await serve({"text": "Hi."})
    status, error = await client.post("/v1/chat/completions", request(**over))
    assert status == 400
    assert error["error"]["param"] == param
    assert error["error"]["type"] == "invalid_request_error"
