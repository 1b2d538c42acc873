"""Hosted tools that the gateway runs, with a real MCP server over pipes and over HTTP."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from turnwire.gateway.settings import ToolSettings

from ..conftest import Serve

SERVER = Path(__file__).parent / "search_server.py"
PIPES = ToolSettings(mcp=(sys.executable, str(SERVER)), tool="search")
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
CALL = "<tool_call>\n<function={name}>\n{arguments}</function>\n</tool_call>"


def call(name: str, **arguments: str) -> str:
    written = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return CALL.format(name=name, arguments=written)


def said(text: str) -> dict[str, Any]:
    return {"text": text}


def messages(*turns: dict[str, Any], **over: Any) -> dict[str, Any]:
    return {"model": "test-model", "max_tokens": 500, "messages": list(turns), "tools": [SEARCH], **over}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


async def test_messages_searches_and_goes_on_and_the_next_turn_is_exact(serve: Serve) -> None:
    client = await serve(
        said("I look it up.\n" + call("web_search", query="cup")),
        said("Rovers won."),
        said("3-1."),
        tools={"web_search": PIPES},
        reasoning="qwen3",
    )
    first = messages(user("Who won?"), thinking={"type": "enabled", "budget_tokens": 1024}, stream=True)
    events = [data for _, _, data in await client.stream("/v1/messages", first)]
    blocks = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    kinds = [block["type"] for block in blocks if block["type"] != "redacted_thinking"]
    assert kinds[-4:] == ["text", "server_tool_use", "web_search_tool_result", "text"]
    found = next(block for block in blocks if block["type"] == "web_search_tool_result")
    assert [row["url"] for row in found["content"]] == [
        "https://sport.example/cup",
        "https://old.example/",
        "https://sub.sport.example/w",
    ]
    used = next(block for block in blocks if block["type"] == "server_tool_use")
    assert found["tool_use_id"] == used["id"]
    assert used["id"].startswith("srvtoolu_")
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert '{"query": "cup"}' in [delta.get("partial_json") for delta in deltas]
    end = next(event for event in events if event["type"] == "message_delta")
    assert end["delta"]["stop_reason"] == "end_turn"
    assert end["usage"]["server_tool_use"] == {"web_search_requests": 1, "web_fetch_requests": 0}
    assert [event["type"] for event in events].count("message_stop") == 1
    again = messages(
        user("Who won?"),
        {"role": "assistant", "content": assembled(events)},
        user("How?"),
        thinking={"type": "enabled", "budget_tokens": 1024},
    )
    status, answer = await client.post("/v1/messages", again)
    assert status == 200
    assert answer["content"][-1]["text"] == "3-1."
    turns = list(client.gateway.journal.last(9))[::-1]
    assert [turn.prefix.split(";")[0] for turn in turns] == ["first", "held", "held"]


def assembled(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The content as a client puts it together from a stream."""
    blocks: dict[int, dict[str, Any]] = {}
    for event in events:
        if event["type"] == "content_block_start":
            blocks[event["index"]] = dict(event["content_block"])
        elif event["type"] == "content_block_delta":
            block, delta = blocks[event["index"]], event["delta"]
            if delta["type"] == "input_json_delta":
                block["input"] = json.loads(delta["partial_json"])
            for key in ("text", "thinking", "signature"):
                if key in delta:
                    block[key] = block.get(key, "") + delta[key]
    return [blocks[index] for index in sorted(blocks)]


async def test_a_document_over_http_has_the_same_blocks(serve: Serve, http_server: str) -> None:
    client = await serve(
        said(call("web_search", query="cup")),
        said("Rovers."),
        tools={"web_search": ToolSettings(mcp=http_server, tool="search")},
    )
    tool = {**SEARCH, "allowed_domains": ["sport.example"]}
    status, answer = await client.post("/v1/messages", messages(user("Who won?"), tools=[tool]))
    assert status == 200
    kinds = [block["type"] for block in answer["content"]]
    assert kinds == ["server_tool_use", "web_search_tool_result", "text"]
    assert [row["url"] for row in answer["content"][1]["content"]] == [
        "https://sport.example/cup",
        "https://sub.sport.example/w",
    ]
    assert answer["usage"]["server_tool_use"]["web_search_requests"] == 1


@pytest.mark.parametrize("stateless", [True, False])
async def test_responses_searches_and_the_next_turn_is_exact(serve: Serve, http_server: str, stateless: bool) -> None:
    client = await serve(
        said(call("web_search", query="cup")),
        said(call("web_search", query="cup again")),
        said("Rovers won."),
        said("3-1."),
        tools={"web_search": ToolSettings(mcp=http_server, tool="search")},
    )
    body: dict[str, Any] = {"model": "test-model", "input": "Who won?", "tools": [{"type": "web_search"}]}
    if stateless:
        body |= {"store": False, "include": ["reasoning.encrypted_content"]}
    events = [data for _, _, data in await client.stream("/v1/responses", {**body, "stream": True})]
    names = [event["type"] for event in events]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    for name in ("in_progress", "searching", "completed"):
        assert names.count(f"response.web_search_call.{name}") == 2
    done = events[-1]["response"]
    assert done["status"] == "completed"
    output = done["output"]
    assert [item["type"] for item in output if item["type"] != "reasoning"] == [
        "web_search_call",
        "web_search_call",
        "message",
    ]
    assert output[0]["action"]["query"] == "cup"
    question = {"type": "message", "role": "user", "content": "How?"}
    if stateless:
        # Codex keeps of such an item what it knows of it.
        known = [
            {key: item[key] for key in ("type", "status", "action")} if item["type"] == "web_search_call" else item
            for item in output
        ]
        following = {**body, "input": [{"role": "user", "content": "Who won?"}, *known, question]}
    else:
        following = {**body, "previous_response_id": done["id"], "input": [question]}
    status, answer = await client.post("/v1/responses", following)
    assert status == 200
    (message,) = [item for item in answer["output"] if item["type"] == "message"]
    assert message["content"][0]["text"] == "3-1."
    turns = list(client.gateway.journal.last(9))[::-1]
    assert [turn.prefix.split(";")[0] for turn in turns] == ["first", "held", "held", "held"]


async def test_tools_of_an_mcp_server_by_its_label(serve: Serve, http_server: str) -> None:
    client = await serve(
        said(call("calc__add", a="2", b="3")),
        said("Five."),
        tools={"calc": ToolSettings(mcp=http_server, tool="search")},
    )
    entry = {"type": "mcp", "server_label": "calc", "require_approval": "never", "allowed_tools": ["add"]}
    status, answer = await client.post("/v1/responses", {"model": "test-model", "input": "2+3", "tools": [entry]})
    assert status == 200
    item = answer["output"][0]
    assert (item["type"], item["server_label"], item["name"], item["output"]) == ("mcp_call", "calc", "add", "5")
    assert json.loads(item["arguments"]) == {"a": 2, "b": 3}
    tool = {"type": "mcp_toolset", "mcp_server_name": "calc"}
    status, answer = await client.post("/v1/messages", messages(user("2+3"), tools=[tool]))
    assert [block["type"] for block in answer["content"]] == ["mcp_tool_use", "mcp_tool_result", "text"]
    assert answer["content"][0]["server_name"] == "calc"
    assert answer["content"][1]["content"] == [{"type": "text", "text": "5"}]
    assert answer["content"][1]["is_error"] is False


async def test_what_goes_wrong_is_told_in_the_vendors_codes(serve: Serve, http_server: str) -> None:
    client = await serve(
        said(call("web_search", query="broken")),
        said(call("web_search", query="slow")),
        said(call("web_search", query="cup")),
        said("I could not."),
        tools={"web_search": ToolSettings(mcp=http_server, tool="search", timeout=0.5)},
    )
    tool = {**SEARCH, "max_uses": 2}
    status, answer = await client.post("/v1/messages", messages(user("Who won?"), tools=[tool]))
    assert status == 200
    results = [block["content"] for block in answer["content"] if block["type"] == "web_search_tool_result"]
    assert [result.get("error_code") for result in results] == ["unavailable", "unavailable", "max_uses_exceeded"]
    assert answer["stop_reason"] == "pause_turn"


async def test_a_call_of_the_clients_tool_ends_the_answer(serve: Serve, http_server: str) -> None:
    client = await serve(
        said(call("web_search", query="cup") + "\n" + call("ls")),
        said("Done."),
        tools={"web_search": ToolSettings(mcp=http_server, tool="search")},
    )
    ls = {"name": "ls", "input_schema": {"type": "object", "properties": {}}}
    asked = messages(user("Look"), tools=[SEARCH, ls])
    _, answer = await client.post("/v1/messages", asked)
    assert [block["type"] for block in answer["content"]] == ["server_tool_use", "tool_use", "web_search_tool_result"]
    assert answer["stop_reason"] == "tool_use"
    result = {"type": "tool_result", "tool_use_id": answer["content"][1]["id"], "content": "a.txt"}
    history = (user("Look"), {"role": "assistant", "content": answer["content"]}, user([result]))
    status, _ = await client.post("/v1/messages", {**asked, "messages": list(history)})
    assert status == 200
    assert next(client.gateway.journal.last(1)).prefix.startswith("held")


async def test_keys_rounds_and_minutes_bound_it(serve: Serve, http_server: str) -> None:
    over = {"mcp": http_server, "tool": "search", "max_rounds": 2, "calls_per_minute": 1}
    client = await serve(
        said(call("web_search", query="one")),
        said(call("web_search", query="two")),
        tools={"web_search": ToolSettings(**over), "mine": ToolSettings(mcp=http_server, keys=("somebody",))},
    )
    status, answer = await client.post("/v1/messages", messages(user("Who won?")))
    assert status == 200
    results = [block["content"] for block in answer["content"] if block["type"] == "web_search_tool_result"]
    assert isinstance(results[0], list)
    assert results[1]["error_code"] == "too_many_requests"
    assert answer["stop_reason"] == "pause_turn"
    tool = {"type": "mcp_toolset", "mcp_server_name": "mine"}
    async with client.session.post(
        client.base + "/v1/messages", json=messages(user("Hi"), tools=[tool], max_tokens=5)
    ) as response:
        assert "tools.hosted_ignored" in response.headers["x-turnwire-notes"]


async def test_a_mixed_turn_of_responses_keeps_its_order(serve: Serve, http_server: str) -> None:
    client = await serve(
        said(call("web_search", query="cup") + "\n" + call("ls") + "\n" + call("web_search", query="two")),
        said("Done."),
        tools={"web_search": ToolSettings(mcp=http_server, tool="search")},
    )
    ls = {"type": "function", "name": "ls", "parameters": {"type": "object", "properties": {}}}
    body = {"model": "test-model", "input": "Look", "tools": [{"type": "web_search"}, ls]}
    _, answer = await client.post("/v1/responses", body)
    shown = [item["type"] for item in answer["output"] if item["type"] != "reasoning"]
    assert shown == ["web_search_call", "function_call", "web_search_call"]
    made = next(item for item in answer["output"] if item["type"] == "function_call")
    result = {"type": "function_call_output", "call_id": made["call_id"], "output": "a.txt"}
    history = [{"role": "user", "content": "Look"}, *answer["output"], result]
    status, _ = await client.post("/v1/responses", {**body, "input": history})
    assert status == 200
    assert next(client.gateway.journal.last(1)).prefix.startswith("held")
