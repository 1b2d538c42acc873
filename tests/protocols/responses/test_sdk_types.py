"""Every event and object is valid by the types clients are built on: the SDK of OpenAI and the open specification."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import openresponses_types.types as spec
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from turnwire.turns import BlockClosed, BlockDelta, BlockOpened, Event, Finished, SealCarried, ToolCallClosed, Usage

Answer = Callable[..., tuple[list[dict[str, Any]], dict[str, Any]]]

SDK_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
SDK_RESPONSE: TypeAdapter[Any] = TypeAdapter(Response)
SPEC_EVENTS = {
    model.model_fields["type"].annotation: model
    for name, model in vars(spec).items()
    if name.startswith("Response") and name.endswith("StreamingEvent")
}
SPEC_BY_TYPE = {member.value: model for kind, model in SPEC_EVENTS.items() for member in kind}  # type: ignore[union-attr]

FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object"}}
CODEX_TOOLS = [
    FUNCTION,
    {
        "type": "custom",
        "name": "apply_patch",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"},
    },
    {"type": "namespace", "name": "mcp__x", "description": "x", "tools": [{"type": "function", "name": "g"}]},
    {"type": "web_search"},
]


def say(index: int, *pieces: str) -> list[Event]:
    deltas = [BlockDelta(index, piece) for piece in pieces]
    return [BlockOpened(index, "text"), *deltas, BlockClosed(index, "text")]


def think(index: int, *pieces: str) -> list[Event]:
    deltas = [BlockDelta(index, piece) for piece in pieces]
    return [BlockOpened(index, "reasoning"), *deltas, BlockClosed(index, "reasoning", seal=f"SEAL{index}")]


def call(index: int, name: str, arguments: str) -> list[Event]:
    return [
        BlockOpened(index, "tool_call", name, f"call{index}"),
        BlockDelta(index, arguments),
        ToolCallClosed(index, name, arguments, f"call{index}"),
    ]


END: list[Event] = [Usage(9, 3, 5, 2), Finished("stop")]

CASES: dict[str, tuple[list[Event], dict[str, Any]]] = {
    "text": ([*say(0, "hello ", "world"), *END], {}),
    "options": (
        [*say(0, "{}"), *END],
        {
            "instructions": "i",
            "temperature": 0.5,
            "max_output_tokens": 64,
            "metadata": {"a": "b"},
            "reasoning": {"effort": "low", "summary": "auto"},
            "text": {"verbosity": "low", "format": {"type": "json_object"}},
            "service_tier": "auto",
            "prompt_cache_key": "k",
            "truncation": "auto",
            "user": "u",
            "safety_identifier": "s",
        },
    ),
    "thought, text and two calls": (
        [*think(0, "a", "b"), *say(1, "x"), *call(2, "f", "{}"), *call(3, "f", '{"a":1}'), SealCarried(4, "S"), *END],
        {"tools": [FUNCTION]},
    ),
    "interleaved": (
        [*think(0, "a"), *call(1, "f", "{}"), *think(2, "b"), *call(3, "f", "{}"), *END],
        {"tools": [FUNCTION]},
    ),
    "incomplete": ([*say(0, "cut"), Usage(1, 0, 1), Finished("length")], {}),
    "tool choice": (
        [*call(0, "f", "{}"), *END],
        {"tools": [FUNCTION], "tool_choice": {"type": "function", "name": "f"}, "parallel_tool_calls": False},
    ),
}

# What the open specification has no word for: raw-text tools, namespaces, schemas in `text.format`.
SDK_CASES: dict[str, tuple[list[Event], dict[str, Any]]] = {
    **CASES,
    "codex": (
        [*think(0, "a"), *call(1, "apply_patch", '{"input":"p"}'), *call(2, "mcp__x__g", "{}"), *END],
        {"tools": CODEX_TOOLS},
    ),
    "tool search": ([*call(0, "tool_search", "{}"), *END], {"tools": [{"type": "tool_search", "execution": "client"}]}),
    "schema": ([*say(0, "{}"), *END], {"text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}}),
    "compaction": (
        [*say(0, "sum"), *END],
        {"input": [{"role": "user", "content": "x"}, {"type": "compaction_trigger"}]},
    ),
}


@pytest.mark.parametrize("name", SDK_CASES)
def test_openai_sdk(answer: Answer, name: str) -> None:
    turn, fields = SDK_CASES[name]
    events, document = answer(turn, **fields)
    for event in events:
        SDK_EVENT.validate_python(event)
    SDK_RESPONSE.validate_python(document)


@pytest.mark.parametrize("name", CASES)
def test_open_specification(answer: Answer, name: str) -> None:
    turn, fields = CASES[name]
    events, document = answer(turn, **fields)
    for event in events:
        SPEC_BY_TYPE[event["type"]].model_validate(event)
    spec.ResponseResource.model_validate(document)


def test_the_types_can_refuse(answer: Answer) -> None:
    events, document = answer(CASES["text"][0])
    del document["usage"]["input_tokens_details"]["cached_tokens"]
    for check in (SDK_RESPONSE.validate_python, spec.ResponseResource.model_validate):
        with pytest.raises(ValueError, match="cached_tokens"):
            check(document)
    delta = next(event for event in events if event["type"] == "response.output_text.delta")
    del delta["content_index"]
    for check in (SDK_EVENT.validate_python, SPEC_BY_TYPE[delta["type"]].model_validate):
        with pytest.raises(ValueError, match="content_index"):
            check(delta)
