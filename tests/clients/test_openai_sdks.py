"""The OpenAI SDKs, Python and TypeScript, on Chat Completions and Responses."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Serve
from .outputs import call, line, thought
from .sandbox import Sandbox
from .serving import ServedGateway, prefix_held

WEATHER = (
    line(thought("I look it up."), call("get_weather", city="Paris")),
    line(thought("Sunny it is."), "It is sunny in Paris."),
)


def run(sandbox: Sandbox, gateway: ServedGateway, language: str, case: str) -> dict[str, Any]:
    where = {"GATEWAY_URL": gateway.url, "GATEWAY_MODEL": gateway.model}
    if language == "typescript":
        done = sandbox.node("openai_sdk.mjs", case, **where)
    else:
        done = sandbox.python("py-sdks", "openai_sdk.py", case, **where)
    assert done.code == 0, f"{done}\n{gateway.log[-2000:]}"
    return done.rows[-1]


@pytest.mark.parametrize(
    ("language", "case"),
    [
        ("python", "chat_stream"),
        ("python", "chat_unary"),
        ("python", "responses_stream"),
        ("python", "responses_unary"),
        ("python", "responses_stored"),
        ("typescript", "chat_stream"),
        ("typescript", "responses_stream"),
    ],
)
def test_a_tool_task(serve: Serve, sandbox: Sandbox, language: str, case: str) -> None:
    gateway = serve(*WEATHER)
    assert run(sandbox, gateway, language, case)["text"].strip() == "It is sunny in Paris."
    assert len(gateway.turns()) == 2
    prefix_held(gateway.records(2))


@pytest.mark.parametrize("language", ["python", "typescript"])
def test_code_that_reads_the_first_choice_of_every_chunk(serve: Serve, sandbox: Sandbox, language: str) -> None:
    gateway = serve(*WEATHER)
    assert run(sandbox, gateway, language, "chat_naive")["calls"] == [["get_weather", {"city": "Paris"}]]


def test_a_stored_response_can_be_read_listed_and_deleted(serve: Serve, sandbox: Sandbox) -> None:
    gateway = serve(line(thought("Hi."), "Hello."))
    assert run(sandbox, gateway, "python", "responses_kept") == {"same": True, "items": ["message"], "gone": True}


def test_models(serve: Serve, sandbox: Sandbox) -> None:
    gateway = serve(line(thought("Hi."), "Hello."))
    result = run(sandbox, gateway, "python", "models")
    assert gateway.model in result["listed"]
    assert result["one"] == gateway.model
