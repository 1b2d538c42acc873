"""Chunks of any server become one turn: fragments by index, dispatch, ends and errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwire.agent.events import ReasoningDelta, TextDelta
from turnwire.agent.frames import FrameError, FrameReader
from turnwire.agent.stitching import Call, Stitcher, StitchError

from .conftest import delta, fragment

DISPATCH = {
    "choice_index": 0,
    "tool_call": {"index": 0, "id": "id0", "type": "function", "function": {"name": "look", "arguments": '{"a":1}'}},
}


def fed(*events: Any) -> tuple[Stitcher, list[Any]]:
    """A stitcher after these events (a pair is a named one), and what each gave."""
    stitcher = Stitcher()
    return stitcher, [stitcher.feed(*(e if isinstance(e, tuple) else ("", e))) for e in events]


def test_fragments_of_two_calls_are_joined_by_index() -> None:
    stitcher, found = fed(
        fragment(0, name="look"),
        fragment(0, '{"a"'),
        fragment(0, ":1}"),
        fragment(1, name="read"),
        fragment(1, '{"b":2}'),
        delta("tool_calls"),
    )
    # The first is complete once the second begins; the last one only when the turn is over.
    assert found[3] == [Call(0, "id0", "look", '{"a":1}')]
    assert [part for parts in found if parts is not found[3] for part in parts] == []
    assert stitcher.end() == [Call(1, "id1", "read", '{"b":2}')]


def test_fragments_that_alternate_between_calls_wait_until_they_are_whole() -> None:
    stitcher, found = fed(
        fragment(0, '{"a"', "look"), fragment(1, '{"b"', "read"), fragment(0, ":1}"), fragment(1, ":2}"), delta("stop")
    )
    handed = [part for parts in found for part in parts]
    assert handed == [Call(0, "id0", "look", '{"a":1}')]
    assert stitcher.end() == [Call(1, "id1", "read", '{"b":2}')]


def test_text_after_a_call_means_the_call_is_complete() -> None:
    _, found = fed(fragment(0, "{}", "look"), delta(content="and"))
    assert found[1] == [Call(0, "id0", "look", "{}"), TextDelta(text="and")]


def test_a_dispatched_call_is_handed_out_once() -> None:
    stitcher, found = fed(
        fragment(0, name="look"),
        fragment(0, '{"a":1}'),
        ("tool_call_dispatch", DISPATCH),
        ("tool_call_dispatch", DISPATCH),
        ("reasoning_dispatch", {"index": 0, "reasoning_content": "x"}),
        delta(content="and"),
        delta("tool_calls"),
    )
    assert found[2] == [Call(0, "id0", "look", '{"a":1}')]
    assert found[3] == found[4] == []
    assert stitcher.end() == []
    assert stitcher.message()["tool_calls"][0]["function"]["arguments"] == '{"a":1}'


def test_a_dispatch_that_comes_before_its_fragments() -> None:
    stitcher, found = fed(
        ("tool_call_dispatch", DISPATCH), fragment(0, name="look"), fragment(0, '{"a":1}'), delta("stop")
    )
    assert found[0] == [Call(0, "id0", "look", '{"a":1}')]
    assert stitcher.end() == []
    assert stitcher.message()["tool_calls"][0]["function"]["arguments"] == '{"a":1}'


def test_bad_arguments_are_handed_out_at_the_end_as_they_are() -> None:
    stitcher, found = fed(fragment(0, '{"a":', "look"), fragment(1, "{}", "look"), delta("tool_calls"))
    assert [part for parts in found for part in parts] == []
    assert [call.arguments for call in stitcher.end()] == ['{"a":', "{}"]


def test_everything_the_server_said_is_in_the_message() -> None:
    stitcher, found = fed(
        delta(role="assistant", content=""),
        delta(reasoning_content="hm"),
        delta(reasoning_details=[{"type": "reasoning.encrypted", "data": "s"}]),
        delta(content="So."),
        delta("stop"),
        {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": None}},
    )
    assert [part for parts in found for part in parts] == [ReasoningDelta(text="hm"), TextDelta(text="So.")]
    assert stitcher.message() == {
        "role": "assistant",
        "content": "So.",
        "reasoning_content": "hm",
        "reasoning_details": [{"type": "reasoning.encrypted", "data": "s"}],
    }
    assert (stitcher.tokens.prompt, stitcher.tokens.output) == (5, 2)


def test_a_thought_under_two_names_is_shown_once_and_kept_twice() -> None:
    stitcher, found = fed(delta(reasoning="hm", reasoning_content="hm"), delta("stop"))
    assert found[0] == [ReasoningDelta(text="hm")]
    assert stitcher.message()["reasoning"] == stitcher.message()["reasoning_content"] == "hm"


def test_a_whole_answer_reads_like_one_chunk() -> None:
    call = {"id": "x", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    message = {"role": "assistant", "content": "So.", "tool_calls": [call]}
    stitcher, _ = fed({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]})
    assert stitcher.end() == [Call(0, "x", "look", "{}")]


def test_errors_and_missing_ends() -> None:
    with pytest.raises(StitchError, match="broken"):
        fed({"error": {"message": "broken"}})
    with pytest.raises(StitchError, match="before the turn did"):
        fed(delta(content="half"))[0].end()
    with pytest.raises(StitchError, match="index"):
        fed(delta(tool_calls=[{"index": "zero", "function": {}}]))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["", "named"]), st.text(max_size=5)), max_size=6), st.integers(1, 7))
def test_events_cut_anywhere_are_the_same_events(events: list[tuple[str, str]], size: int) -> None:
    wire = ": comment\n\n"
    for name, text in events:
        wire += (f"event: {name}\r\n" if name else "") + f"data: {json.dumps({'t': text})}\r\n\r\n"
    wire += "data: [DONE]\n\n"
    data, reader = wire.encode(), FrameReader()
    found = [event for at in range(0, len(data), size) for event in reader.feed(data[at : at + size])]
    assert found == [(name, {"t": text}) for name, text in events]
    assert reader.done


def test_several_data_lines_are_one_payload_and_nonsense_is_an_error() -> None:
    assert FrameReader().feed(b'data: {"a":\ndata: 1}\n\n') == [("", {"a": 1})]
    with pytest.raises(FrameError):
        FrameReader().feed(b"data: nonsense\n\n")
