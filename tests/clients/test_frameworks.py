"""Agent frameworks and client libraries: one question, one tool, on every API that each of them speaks."""

from __future__ import annotations

import pytest

from .conftest import Serve
from .outputs import call, line, thought
from .sandbox import Sandbox
from .serving import prefix_held

WEATHER = (
    line(thought("I look it up."), call("get_weather", city="Paris")),
    line(thought("Sunny it is."), "It is sunny in Paris."),
)

# What a library does to the history by itself; the gateway must name it.
REWRITES = {("litellm", "messages"): "a filler text is put into tool turns without content"}

SPOKEN = {
    "openai_agents": ("chat", "responses"),
    "pydantic_ai": ("chat", "responses", "messages"),
    "langchain": ("chat", "responses", "messages"),
    "litellm": ("chat", "responses", "messages"),
}


@pytest.mark.parametrize(("library", "api"), [(library, api) for library, apis in SPOKEN.items() for api in apis])
def test_python_libraries(serve: Serve, sandbox: Sandbox, library: str, api: str) -> None:
    if (library, api) == ("litellm", "responses"):
        gateway = serve(line(thought("Sunny it is."), "It is sunny in Paris."))
    else:
        gateway = serve(*WEATHER)
    bundle = "py-litellm" if library == "litellm" else "py-sdks"
    where = {"GATEWAY_URL": gateway.url, "GATEWAY_MODEL": gateway.model, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    done = sandbox.python(bundle, "frameworks.py", library, api, timeout=90, **where)
    assert done.code == 0, f"{done}\n{gateway.log[-2000:]}"
    assert done.rows[-1]["text"].strip() == "It is sunny in Paris."
    records = gateway.records(len(gateway.turns()))
    if (library, api) in REWRITES:
        assert "cause=message_edited" in records[-1].prefix, records[-1].prefix
    else:
        prefix_held(records)


@pytest.mark.parametrize("provider", ["chat", "messages", "responses", "responses_unstored"])
def test_vercel_ai_sdk(serve: Serve, sandbox: Sandbox, provider: str) -> None:
    gateway = serve(*WEATHER)
    done = sandbox.node("vercel.mjs", provider, GATEWAY_URL=gateway.url, GATEWAY_MODEL=gateway.model)
    assert done.code == 0, f"{done}\n{gateway.log[-2000:]}"
    result = done.rows[-1]
    assert result["text"].strip() == "It is sunny in Paris."
    assert "I look it up." in result["reasoning"]
    assert result["steps"] == 2
    if provider == "responses":
        assert '"item_reference"' in gateway.turns()[1].body.decode()
    prefix_held(gateway.records(2))
