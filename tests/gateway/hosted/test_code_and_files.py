"""Code execution and file search that the gateway runs, with a real MCP server; and their absence, said plainly."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from turnwire.gateway.settings import ToolSettings
from turnwire.protocols.anthropic import decode
from turnwire.protocols.hosted.offer import HostedOffer

from ..conftest import Client, Serve
from .test_rounds import assembled, call, messages, said, user

pytestmark = pytest.mark.slow

EXECUTION = {"type": "code_execution_20250825", "name": "code_execution"}
SDK_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def code(server: str) -> dict[str, ToolSettings]:
    python = ToolSettings(mcp=server, tool="run_python", timeout=1.5)
    return {"code_execution": python, "bash_code_execution": ToolSettings(mcp=server)}


def files(server: str) -> dict[str, ToolSettings]:
    return {"file_search": ToolSettings(mcp=server, tool="find_files", stores=("vs_rules",))}


def prefixes(client: Client) -> list[str]:
    return [turn.prefix.split(";")[0] for turn in client.gateway.journal.last(9)][::-1]


def blocks(answer: dict[str, Any], kind: str) -> Iterator[dict[str, Any]]:
    return (block for block in answer["content"] if block["type"] == kind)


async def test_messages_runs_code_and_commands_and_the_next_turn_is_exact(serve: Serve, http_server: str) -> None:
    client = await serve(
        said(call("code_execution", code="print(6 * 7)")),
        said(call("bash_code_execution", command="echo one; echo two >&2; exit 3")),
        said("It is 42."),
        said("Yes."),
        tools=code(http_server),
    )
    asked = messages(user("What is six times seven?"), tools=[EXECUTION], stream=True)
    events = [data for _, _, data in await client.stream("/v1/messages", asked)]
    content = assembled(events)
    kinds = [block["type"] for block in content if block["type"] != "redacted_thinking"]
    assert kinds == [
        "server_tool_use",
        "code_execution_tool_result",
        "server_tool_use",
        "bash_code_execution_tool_result",
        "text",
    ]
    uses = [block for block in content if block["type"] == "server_tool_use"]
    assert [block["name"] for block in uses] == ["code_execution", "bash_code_execution"]
    assert uses[0]["input"] == {"code": "print(6 * 7)"}
    ran = next(block for block in content if block["type"] == "code_execution_tool_result")
    written = {"stdout": "42\n", "stderr": "", "return_code": 0, "content": []}
    assert ran["content"] == {"type": "code_execution_result", **written}
    failed = next(block for block in content if block["type"] == "bash_code_execution_tool_result")
    assert (failed["content"]["return_code"], failed["content"]["stdout"]) == (1, "")
    assert "two" in failed["content"]["stderr"]
    again = messages(
        user("What is six times seven?"), {"role": "assistant", "content": content}, user("Sure?"), tools=[EXECUTION]
    )
    status, answer = await client.post("/v1/messages", again)
    assert (status, answer["content"][-1]["text"]) == (200, "Yes.")
    assert prefixes(client) == ["first", "held", "held", "held"]


@pytest.mark.parametrize(
    ("version", "names"), [("20250522", ["code_execution"]), ("20260120", ["code_execution", "bash_code_execution"])]
)
def test_the_first_version_of_code_execution_has_no_shell(version: str, names: list[str]) -> None:
    tool = {"type": f"code_execution_{version}", "name": "code_execution"}
    inbound = decode(
        json.dumps(messages(user("Hi"), tools=[tool])).encode(), {}, offer=HostedOffer(frozenset(code("")))
    )
    assert [tool.name for tool in inbound.conversation.tools] == names
    assert [use.kind for use in inbound.hosted.values()] == names


async def test_code_that_runs_too_long_has_the_vendors_word(serve: Serve, http_server: str) -> None:
    client = await serve(said(call("code_execution", code="slow")), said("Too slow."), tools=code(http_server))
    _, answer = await client.post("/v1/messages", messages(user("Go"), tools=[EXECUTION]))
    (result,) = blocks(answer, "code_execution_tool_result")
    assert result["content"] == {
        "type": "code_execution_tool_result_error",
        "error_code": "execution_time_exceeded",
    }


@pytest.mark.parametrize("stateless", [True, False])
async def test_responses_runs_code_and_the_next_turn_is_exact(serve: Serve, http_server: str, stateless: bool) -> None:
    client = await serve(
        said(call("code_interpreter", code="print(6 * 7)")), said("It is 42."), said("Yes."), tools=code(http_server)
    )
    tool = {"type": "code_interpreter", "container": {"type": "auto"}}
    body: dict[str, Any] = {"model": "test-model", "input": "Six times seven?", "tools": [tool]}
    if stateless:
        body |= {"store": False, "include": ["reasoning.encrypted_content", "code_interpreter_call.outputs"]}
    events = [data for _, _, data in await client.stream("/v1/responses", {**body, "stream": True})]
    for event in events:
        SDK_EVENT.validate_python(event)
    names = [event["type"].removeprefix("response.code_interpreter_call") for event in events]
    ran = [name for name in names if not name.startswith("response")]
    assert ran == [".in_progress", "_code.delta", "_code.done", ".interpreting", ".completed"]
    done = Response.model_validate(events[-1]["response"]).model_dump()
    item = done["output"][0]
    assert (item["type"], item["code"], item["status"]) == ("code_interpreter_call", "print(6 * 7)", "completed")
    assert item["outputs"] == [{"type": "logs", "logs": "42\n"}]
    question = {"type": "message", "role": "user", "content": "Sure?"}
    if stateless:
        output = events[-1]["response"]["output"]
        following = {**body, "input": [{"role": "user", "content": "Six times seven?"}, *output, question]}
    else:
        following = {**body, "previous_response_id": done["id"], "input": [question]}
    status, _ = await client.post("/v1/responses", following)
    assert status == 200
    assert prefixes(client) == ["first", "held", "held"]


async def test_files_are_searched_in_the_stores_of_the_operators_server(serve: Serve, http_server: str) -> None:
    client = await serve(
        said(call("file_search", query="offside")), said("Found."), said("Yes."), tools=files(http_server)
    )
    tool = {"type": "file_search", "vector_store_ids": ["vs_rules"], "max_num_results": 1}
    body = {"model": "test-model", "input": "Offside?", "tools": [tool]}
    events = [data for _, _, data in await client.stream("/v1/responses", {**body, "stream": True})]
    for event in events:
        SDK_EVENT.validate_python(event)
    names = [event["type"].removeprefix("response.file_search_call") for event in events]
    assert [name for name in names if not name.startswith("response")] == [".in_progress", ".searching", ".completed"]
    item = Response.model_validate(events[-1]["response"]).model_dump()["output"][0]
    assert (item["type"], item["queries"]) == ("file_search_call", ["offside"])
    (result,) = item["results"]
    assert (result["file_id"], result["filename"], result["score"]) == ("file_1", "rules.md", 0.75)
    assert "offside in ['vs_rules']" in result["text"]
    following = {**body, "previous_response_id": events[-1]["response"]["id"], "input": "Sure?"}
    assert (await client.post("/v1/responses", following))[0] == 200
    assert prefixes(client) == ["first", "held", "held"]


@pytest.mark.parametrize("searched", [False, True])
async def test_a_store_that_is_not_here_is_refused_as_the_vendor_does(serve: Serve, searched: bool) -> None:
    client = await serve(said("never"), tools=files("http://127.0.0.1:9/mcp") if searched else {})
    tool = {"type": "file_search", "vector_store_ids": ["vs_other"]}
    status, answer = await client.post("/v1/responses", {"model": "test-model", "input": "x", "tools": [tool]})
    assert status == 400
    assert answer["error"]["param"] == "tools[0].vector_store_ids"
    assert "Vector store with id [vs_other] not found" in answer["error"]["message"]


async def test_a_demanded_call_that_nothing_runs_is_never_invented(serve: Serve) -> None:
    client = await serve(said("I ran it: 42."))
    asked = messages(user("Run it"), tools=[EXECUTION], tool_choice={"type": "tool", "name": "code_execution"})
    status, answer = await client.post("/v1/messages", asked)
    assert status == 200
    assert [block["type"] for block in answer["content"]] == ["server_tool_use", "code_execution_tool_result", "text"]
    error = {"type": "code_execution_tool_result_error", "error_code": "unavailable"}
    assert answer["content"][1]["content"] == error
    assert "42" not in json.dumps(answer)
    tool = {"type": "code_interpreter", "container": {"type": "auto"}}
    body = {"model": "test-model", "input": "Run it", "tools": [tool], "tool_choice": {"type": "code_interpreter"}}
    status, answer = await client.post("/v1/responses", body)
    assert (status, answer["error"]["param"]) == (400, "tool_choice")


async def test_options_that_are_not_kept_are_noted(serve: Serve, http_server: str) -> None:
    client = await serve(said("Hi."), tools=code(http_server))
    tool = {"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["file_1"]}}
    body = {"model": "test-model", "input": "x", "tools": [tool]}
    async with client.session.post(client.base + "/v1/responses", json=body) as response:
        assert "tools.option_ignored" in response.headers["x-turnwire-notes"]
