"""Laws of the two encoders, over any turn and any way of cutting it into batches."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwire.protocols.anthropic import Echo, StreamEncoder
from turnwire.protocols.reply import Reply
from turnwire.protocols.wire import TurnFacts, TurnFailure
from turnwire.turns import BlockDelta, BlockOpened, Event, Note, ReasoningBlock, SealCarried, TextBlock, ToolCallBlock

from .conformance import problems
from .pipeline import (
    FACTS,
    INTERLEAVED,
    MODEL,
    START,
    assembled,
    call,
    document,
    ending,
    sent,
    stream,
    text,
    thought,
)

_PIECES = st.lists(
    st.text(max_size=6) | st.sampled_from(["", " ", "\n\n", "\t", '"', "\\", "é😀", "\x00", "\u2028"]), max_size=4
)
_BLOCKS = st.lists(st.tuples(st.sampled_from(["text", "thought", "call"]), _PIECES), max_size=6)
_ECHOES = st.builds(Echo, thinking=st.booleans(), omit_thinking=st.booleans())


def _turn(blocks: list[tuple[str, list[str]]], tail: bool) -> list[Event]:
    events: list[Event] = []
    for index, (kind, pieces) in enumerate(blocks):
        if kind == "text":
            events += text(index, *pieces)
        elif kind == "thought":
            events += thought(index, *pieces, seal="s" if pieces else "")
        else:
            whole = json.dumps({"a": "".join(pieces)}, ensure_ascii=False)
            events += call(index, "N", whole[:3], whole[3:])
    if tail:
        events.append(SealCarried(len(blocks), "dGFpbA"))
    return [*events, Note("some.note", "for the log only"), *ending("stop")]


@settings(max_examples=200, deadline=None)
@given(_BLOCKS, st.booleans(), _ECHOES, st.lists(st.integers(0, 40), max_size=6))
def test_any_turn_in_any_cut(blocks: list[tuple[str, list[str]]], tail: bool, echo: Echo, cuts: list[int]) -> None:
    events = _turn(blocks, tail)
    edges = [0, *sorted(min(cut, len(events)) for cut in cuts), len(events)]
    writes = stream([events[start:end] for start, end in pairwise(edges)], echo)
    assert problems([b"".join(writes)], model=MODEL) == []
    assert assembled(writes) == document(events, echo)


def test_text_is_byte_exact_and_leading_blanks_come_with_it() -> None:
    pieces = ["\n", "\n", "Hello", " ", "\n", ' "quoted" \\ \u2028 😀', ""]
    writes = stream([[event] for event in text(0, *pieces)])
    assert assembled(writes)["content"][0]["text"] == "".join(pieces)
    assert writes[1:4] == [b"", b"", b""]


def test_omitted_thoughts_keep_their_signature() -> None:
    echo = Echo(thinking=True, omit_thinking=True)
    writes = stream([[event] for event in thought(0, "secret", seal="c2VhbA")], echo)
    assert b"secret" not in b"".join(writes)
    assert assembled(writes)["content"] == [{"type": "thinking", "thinking": "", "signature": "c2VhbA"}]


def test_a_blank_thought_is_shown_only_where_thoughts_are_in_play() -> None:
    events = [*thought(0, "\n\n"), *text(1, "hi"), *ending("stop")]
    assert [block["type"] for block in document(events, Echo())["content"]] == ["text"]
    shown = document(events, Echo(thinking=True))["content"]
    assert shown[0] == {"type": "thinking", "thinking": "\n\n", "signature": "c2VhbA"}


def test_thoughts_are_shown_even_if_nobody_asked() -> None:
    assert [block["type"] for block in document(INTERLEAVED, None)["content"]] == [
        "thinking",
        "tool_use",
        "thinking",
        "text",
        "tool_use",
    ]


@pytest.mark.parametrize(
    ("reason", "sequence", "expected"),
    [
        ("stop", None, "tool_use"),
        ("tool_calls", None, "tool_use"),
        ("length", None, "max_tokens"),
        ("stop_sequence", "END", "stop_sequence"),
        ("content_filter", None, "refusal"),
    ],
)
def test_stop_reasons_of_a_turn_with_a_call(reason: str, sequence: str | None, expected: str) -> None:
    whole = document([*call(0, "N", "{}"), *ending(reason, sequence)])  # type: ignore[arg-type]
    assert (whole["stop_reason"], whole["stop_sequence"]) == (expected, sequence)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("overloaded", "overloaded_error"),
        ("rate_limited", "overloaded_error"),
        ("engine_failed", "overloaded_error"),
        ("timeout", "overloaded_error"),
        ("internal", "overloaded_error"),
        ("context_overflow", "invalid_request_error"),
        ("invalid_request", "invalid_request_error"),
    ],
)
def test_a_failure_before_any_content(kind: str, expected: str) -> None:
    encoder = StreamEncoder(FACTS)
    encoder.start(START)
    failure = TurnFailure(kind, "why", prompt_tokens=9, window=8)  # type: ignore[arg-type]
    (event,) = sent([encoder.fail(failure)])
    assert event["error"]["type"] == expected
    if kind == "context_overflow":
        assert event["error"]["message"] == "prompt is too long: 9 tokens > 8 maximum"
    assert encoder.fail(failure) == encoder.keepalive() == b""


def test_two_calls_open_at_once_keep_apart() -> None:
    first, second = call(0, "A", '{"x":', "1}"), call(1, "B", '{"y":', "2}")
    mixed = [first[0], second[0], first[1], second[1], second[2], first[2], second[3], first[3], *ending("tool_calls")]
    built = assembled(stream([mixed]))
    assert [(block["name"], block["input"]) for block in built["content"]] == [("A", {"x": 1}), ("B", {"y": 2})]


def test_dispatch_comes_before_the_stop_of_its_block() -> None:
    facts = TurnFacts(turn_id="x", model=MODEL, created=0, dispatch=True)
    kinds = [data["type"] for data in sent(stream([[*call(0, "N", "{}"), *ending("tool_calls")]], facts=facts))]
    assert kinds == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "tool_call_dispatch",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_one_frame_per_delta_from_prepared_bytes() -> None:
    encoder = StreamEncoder(FACTS)
    encoder.start(START)
    encoder.feed([BlockOpened(0, "text"), BlockDelta(0, "a")])
    assert encoder.feed([BlockDelta(0, "b"), BlockDelta(0, '"c')]) == (
        b"event: content_block_delta\n"
        b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"b"}}\n\n'
        b"event: content_block_delta\n"
        b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\\"c"}}\n\n'
    )


def test_a_reply_is_collected_as_the_client_would_send_it_back() -> None:
    reply = Reply()
    for event in INTERLEAVED:
        reply.feed([event])
    assert reply.message().blocks == (
        ReasoningBlock(text="first look", seal="c2VhbA"),
        ToolCallBlock(id="toolu1", name="Read", arguments='{"path": "a.txt"}'),
        ReasoningBlock(text="then", seal="c2VhbDI"),
        TextBlock(text="\n\nNow the other file."),
        ToolCallBlock(id="toolu4", name="Read", arguments='{"path": "b.txt"}'),
        ReasoningBlock(text="", seal="dGFpbA", redacted=True),
    )
