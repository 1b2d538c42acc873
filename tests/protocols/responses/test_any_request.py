"""Whatever JSON comes: a conversation, or a TurnFailure that names the field; never another error."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwire.protocols import responses
from turnwire.protocols.wire import Inbound, TurnFacts, TurnFailure
from turnwire.turns import Finished, Usage

from .conformance import check_events, parse_stream

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(
        ["", "message", "reasoning", "namespace", "custom", "auto", "none", "<think>", "é\U0001f642", "[0]"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "id", "role", "content", "text", "name", "tools", "call_id", "summary", "output"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=6,
)

WHOLE: dict[str, Any] = {
    "model": "m",
    "stream": True,
    "instructions": "i",
    "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": "data:a/b;base64,QQ=="}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "t"}], "encrypted_content": "s"},
        {"type": "function_call", "call_id": "c", "name": "f", "namespace": "n", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "y"}]},
        {"type": "custom_tool_call", "call_id": "d", "name": "p", "input": "z"},
        {"type": "custom_tool_call_output", "call_id": "d", "output": "w"},
        {"type": "tool_search_call", "call_id": "e", "arguments": {"query": "q"}},
        {"type": "tool_search_output", "call_id": "e", "tools": [{"type": "function", "name": "g"}]},
        {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "h"}]},
        {"type": "agent_message", "author": "a", "recipient": "b", "content": [{"type": "input_text", "text": "m"}]},
        {"type": "compaction", "encrypted_content": "k"},
        {"type": "item_reference", "id": "rs_1"},
        {"type": "compaction_trigger"},
    ],
    "tools": [
        {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True},
        {"type": "custom", "name": "p", "format": {"type": "grammar", "syntax": "lark", "definition": "x"}},
        {"type": "namespace", "name": "n", "description": "", "tools": [{"type": "function", "name": "f"}]},
        {"type": "tool_search", "execution": "client", "parameters": {}},
    ],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
    "reasoning": {"effort": "low", "summary": "auto", "context": "all_turns"},
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}, "verbosity": "low"},
    "include": ["reasoning.encrypted_content"],
    "client_metadata": {"session_id": "s", "x-codex-turn-metadata": "{}"},
    "metadata": {"a": "b"},
    "nvext": {"agent_hints": {"priority": 1}},
    "stop": ["a"],
    "service_tier": "auto",
    "temperature": 1.0,
    "prompt_cache_key": "k",
}


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        found += places(part, (*path, key))
    return found


PLACES = places(WHOLE)


def replaced(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    body = copy.deepcopy(WHOLE)
    place: Any = body
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return body


def opened(body: bytes) -> Inbound | TurnFailure:
    try:
        return responses.decode(body, {"x-codex-turn-metadata": "{"})
    except TurnFailure as failure:
        return failure


def read(body: Any) -> None:
    inbound = opened(msgspec.json.encode(body))
    if isinstance(inbound, TurnFailure):
        assert inbound.kind == "invalid_request"
        assert inbound.message
        return
    # What was accepted can be answered: the echo fits into a response object.
    encoder = responses.stream_encoder(TurnFacts(turn_id="T", model="m", created=1), inbound.echo)
    events, problems = parse_stream(encoder.start(Usage(1)) + encoder.feed([Usage(1), Finished("stop")]))
    assert problems == []
    assert check_events(events) == []


def test_the_whole_request_is_read() -> None:
    read(WHOLE)
    assert len(PLACES) > 100


@settings(max_examples=250, deadline=None)
@given(st.sampled_from(PLACES), VALUES)
def test_any_value_in_any_place(path: tuple[Any, ...], value: Any) -> None:
    read(replaced(path, value))


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(WHOLE)), VALUES))
def test_any_object(body: dict[str, Any]) -> None:
    read({"model": "m", "input": "x", **body})


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200) | VALUES.map(msgspec.json.encode))
def test_any_bytes(body: bytes) -> None:
    failure = opened(body)
    assert isinstance(failure, TurnFailure)
    assert failure.kind == "invalid_request"
