"""The Anthropic SDKs, Python in three generations and TypeScript: helpers, tool runner and threads, counts, models."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Serve
from .outputs import call, line, thought
from .sandbox import Finished, Sandbox
from .serving import ServedGateway, prefix_held

VERSIONS = {"2.8": "py-sdks", "1.17": "py-anthropic-1.17", "0.75": "py-anthropic-0.75"}
WEATHER = (
    line(thought("I look it up."), call("get_weather", city="Paris")),
    line(thought("Sunny it is."), "It is sunny in Paris."),
)


@pytest.fixture(params=[*VERSIONS, "typescript"])
def sdk(request: pytest.FixtureRequest, sandbox: Sandbox) -> Any:
    """Run a case of the driver with one SDK and give its result."""

    def run(gateway: ServedGateway, case: str) -> dict[str, Any]:
        where = {"GATEWAY_URL": gateway.url, "GATEWAY_MODEL": gateway.model}
        done: Finished
        if request.param == "typescript":
            done = sandbox.node("anthropic_sdk.mjs", case, **where)
        else:
            done = sandbox.python(VERSIONS[request.param], "anthropic_sdk.py", case, **where)
        assert done.code == 0, f"{done}\n{gateway.log[-2000:]}"
        return done.rows[-1]

    run.version = request.param  # type: ignore[attr-defined]
    return run


def test_the_stream_helper_over_two_turns(serve: Serve, sdk: Any) -> None:
    gateway = serve(*WEATHER)
    result = sdk(gateway, "stream_helper")
    assert result["text"].strip() == "It is sunny in Paris."
    assert result["stop_reason"] == "end_turn"
    returned = gateway.turns()[1].json["messages"][1]["content"]
    # What follows the last thought is carried by a block of its own.
    assert [block["type"] for block in returned] in (
        ["thinking", "tool_use"],
        ["thinking", "tool_use", "redacted_thinking"],
    )
    assert returned[0]["signature"]
    prefix_held(gateway.records(2))


def test_the_tool_runner(serve: Serve, sdk: Any) -> None:
    gateway = serve(*WEATHER)
    assert sdk(gateway, "tool_runner")["text"].strip() == "It is sunny in Paris."
    records = [record for record in gateway.records() if not record.failure]
    # The newest SDKs send only what is new (message threads); either way the model reads the whole conversation.
    prefix_held(records)
    assert "sunny in Paris" in records[-1].prompt_text


def test_models_with_slashed_ids_and_counts(serve: Serve, sdk: Any) -> None:
    gateway = serve(line(thought("Hi."), "Hello."))
    result = sdk(gateway, "models")
    assert gateway.model in result["listed"]
    assert result["one"] == gateway.model


@pytest.mark.parametrize("version", VERSIONS)
def test_counts_unary_and_errors(serve: Serve, sandbox: Sandbox, version: str) -> None:
    gateway = serve(*WEATHER)
    where = {"GATEWAY_URL": gateway.url, "GATEWAY_MODEL": gateway.model}

    def case(name: str) -> dict[str, Any]:
        done = sandbox.python(VERSIONS[version], "anthropic_sdk.py", name, **where)
        assert done.code == 0, str(done)
        return done.rows[-1]

    counts = case("counts")
    assert counts["counted"] == counts["used"] > 0
    assert case("unary")["blocks"] == ["thinking", "tool_use"]
    refused = case("refused")
    assert refused["error"] == "NotFoundError"
    assert "no-such-model" in refused["message"]
