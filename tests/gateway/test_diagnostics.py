"""Why a prefix was not reused, told in each vendor's own field to the clients that ask for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import Client, Serve

SESSION = {"x-claude-code-session-id": "s1"}


def message(system: str, *said: str, **over: Any) -> dict[str, Any]:
    roles = ("user", "assistant")
    messages = [{"role": roles[at % 2], "content": text} for at, text in enumerate(said)]
    return {"model": "test-model", "max_tokens": 50, "system": system, "messages": messages} | over


async def asked(client: Client, body: dict[str, Any], stream: bool) -> dict[str, Any]:
    """The message object: the whole answer, or what its stream starts with."""
    if not stream:
        status, answer = await client.post("/v1/messages", body, **SESSION)
        assert status == 200
        return answer
    events = await client.stream("/v1/messages", body | {"stream": True}, **SESSION)
    return events[0][2]["message"]


@pytest.mark.parametrize("stream", [False, True])
async def test_messages_say_what_changed_since_the_named_answer(serve: Serve, stream: bool) -> None:
    client = await serve({"text": "One.\n</think>\n\nHello."})
    first = await asked(client, message("Be brief.", "Hi", diagnostics={"previous_message_id": None}), stream)
    assert first["diagnostics"] is None
    named = {"previous_message_id": first["id"]}
    same = await asked(client, message("Be brief.", "Hi", "Hello.", "More", diagnostics=named), stream)
    assert same["diagnostics"] is None
    named = {"previous_message_id": same["id"]}
    other = await asked(client, message("Be long.", "Hi", "Hello.", "More", "Hello.", "Go", diagnostics=named), stream)
    reason = other["diagnostics"]["cache_miss_reason"]
    assert reason["type"] == "system_changed"
    assert reason["cache_missed_input_tokens"] > 0
    named = {"previous_message_id": "msg_of_another_server"}
    lost = await asked(client, message("Be long.", "Hi", diagnostics=named), stream)
    assert lost["diagnostics"] == {"cache_miss_reason": {"type": "previous_message_not_found"}}


async def test_messages_stay_quiet_where_nobody_asks(serve: Serve) -> None:
    client = await serve({"text": "Hello."})
    assert "diagnostics" not in await asked(client, message("Be brief.", "Hi"), False)
    body = message("Be brief.", "Hi", diagnostics={"previous_message_id": 7})
    status, error = await client.post("/v1/messages", body)
    assert status == 400
    assert "diagnostics.previous_message_id" in error["error"]["message"]


def response(instructions: str, previous: str | None = None) -> dict[str, Any]:
    body: dict[str, Any] = {"model": "test-model", "input": "Hi", "instructions": instructions, "store": False}
    if previous is not None:
        body["prompt_cache_options"] = {"comparison_response_id": previous}
    return body


async def test_responses_say_what_changed_since_the_named_response(serve: Serve) -> None:
    client = await serve({"text": "One.\n</think>\n\nHello."})
    headers = {"session-id": "s1", "thread-id": "s1"}
    status, first = await client.post("/v1/responses", response("Be brief."), **headers)
    assert status == 200
    assert "prompt_cache_diagnostics" not in first
    _, same = await client.post("/v1/responses", response("Be brief.", first["id"]), **headers)
    assert same["prompt_cache_diagnostics"] == {"type": "cache_hit"}
    assert same["prompt_cache_options"] == {"mode": "implicit", "ttl": "30m", "comparison_response_id": first["id"]}
    events = await client.stream("/v1/responses", response("Be long.", same["id"]) | {"stream": True}, **headers)
    found = [data["response"]["prompt_cache_diagnostics"] for _, _, data in events if "response" in data]
    assert found[0] == found[-1]
    assert (found[0]["type"], found[0]["reason"]) == ("cache_miss", "input_changed")
    assert found[0]["cache_missed_tokens"] > 0
    _, lost = await client.post("/v1/responses", response("Be long.", "resp_unknown"), **headers)
    assert lost["prompt_cache_diagnostics"] == {"type": "comparison_response_not_found"}
    for options in ([], {"comparison_response_id": 7}):
        body = response("Be long.") | {"prompt_cache_options": options}
        status, error = await client.post("/v1/responses", body)
        assert status == 400
        assert error["error"]["param"].startswith("prompt_cache_options")


async def test_a_websocket_says_it_too(serve: Serve) -> None:
    client = await serve({"text": "One.\n</think>\n\nHello."})
    async with client.session.ws_connect(client.base + "/v1/responses", headers={"session-id": "s1"}) as socket:

        async def ask(body: dict[str, Any]) -> dict[str, Any]:
            await socket.send_str(json.dumps({"type": "response.create", **body}))
            while True:
                event = json.loads(await socket.receive_str(timeout=10))
                if event["type"] == "response.completed":
                    answer: dict[str, Any] = event["response"]
                    return answer

        first = await ask(response("Be brief."))
        assert "prompt_cache_diagnostics" not in first
        assert (await ask(response("Be brief.", first["id"])))["prompt_cache_diagnostics"] == {"type": "cache_hit"}


async def test_a_session_that_says_goodbye_is_forgotten(serve: Serve) -> None:
    client = await serve({"text": "Hello."})
    body = message("Be brief.", "Hi")

    async def prefix(**headers: str) -> str:
        async with client.session.post(client.base + "/v1/messages", json=body, headers=SESSION | headers) as answer:
            return answer.headers["x-turnwire-prefix"].partition(";")[0]

    assert await prefix() == "first"
    assert await prefix(**{"x-dynamo-session-final": "true"}) == "held"
    assert await prefix() == "first"
