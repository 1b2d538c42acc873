"""The event stream: order, early closing, equal to the document, and the shapes that Codex needs."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from turnwire.protocols import responses
from turnwire.protocols.wire import Inbound, TurnFacts, TurnFailure
from turnwire.turns import (
    BlockClosed,
    BlockDelta,
    BlockOpened,
    Event,
    Finished,
    Note,
    SealCarried,
    ToolCallClosed,
    Usage,
)

from .conformance import check_events, parse_stream

Answer = Callable[..., tuple[list[dict[str, Any]], dict[str, Any]]]
Decode = Callable[..., Inbound]
FACTS = TurnFacts(turn_id="t1", model="m", created=1)

TOOLS = [
    {"type": "function", "name": "exec_command", "parameters": {"type": "object"}},
    {"type": "custom", "name": "apply_patch"},
    {"type": "namespace", "name": "mcp__mail", "tools": [{"type": "function", "name": "send"}]},
    {"type": "tool_search", "execution": "client"},
]


def call(index: int, name: str, arguments: str, call_id: str) -> list[Event]:
    middle = len(arguments) // 2
    return [
        BlockOpened(index, "tool_call", name, call_id),
        BlockDelta(index, arguments[:middle]),
        BlockDelta(index, arguments[middle:]),
        ToolCallClosed(index, name, arguments, call_id),
    ]


TURN: list[Event] = [
    BlockOpened(0, "reasoning"),
    BlockDelta(0, "think "),
    BlockDelta(0, 'of "it"\n'),
    BlockClosed(0, "reasoning", seal="SEAL0"),
    BlockOpened(1, "text"),
    BlockDelta(1, "I look \U0001f642"),
    BlockClosed(1, "text"),
    *call(2, "exec_command", '{"cmd":"ls"}', "callA"),
    *call(3, "mcp__mail__send", "{}", "callB"),
    *call(4, "apply_patch", '{"input":"*** Begin\\n"}', "callC"),
    *call(5, "tool_search", '{"query":"x"}', "callD"),
    Note("parser.rescued", "not for the wire"),
    SealCarried(6, "SEAL1"),
    Usage(100, 60, 20, 8),
    Finished("tool_calls"),
]


def types(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


def test_the_whole_sequence(answer: Answer) -> None:
    events, document = answer(TURN, tools=TOOLS)
    assert types(events) == [
        "created",
        "in_progress",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        *["output_item.added", *["function_call_arguments.delta"] * 2, "function_call_arguments.done"],
        "output_item.done",
        *["output_item.added", *["function_call_arguments.delta"] * 2, "function_call_arguments.done"],
        "output_item.done",
        *["output_item.added", *["custom_tool_call_input.delta"] * 2, "custom_tool_call_input.done"],
        "output_item.done",
        *["output_item.added", "output_item.done"],
        *["output_item.added", "output_item.done"],
        "completed",
    ]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    thought, message, run, send, patch, search, carrier = document["output"]
    assert thought["summary"] == [{"type": "summary_text", "text": 'think of "it"\n'}]
    assert thought["encrypted_content"] == "SEAL0"
    assert message["content"][0]["text"] == "I look \U0001f642"
    assert (run["name"], run["arguments"], run["call_id"]) == ("exec_command", '{"cmd":"ls"}', "callA")
    assert "namespace" not in run
    assert (send["name"], send["namespace"]) == ("send", "mcp__mail")
    assert (patch["type"], patch["input"]) == ("custom_tool_call", "*** Begin\n")
    assert (search["type"], search["arguments"], search["execution"]) == ("tool_search_call", {"query": "x"}, "client")
    assert (carrier["type"], carrier["summary"], carrier["encrypted_content"]) == ("reasoning", [], "SEAL1")
    assert document["usage"] == {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 0},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 8},
        "total_tokens": 120,
    }
    assert (document["status"], document["completed_at"]) == ("completed", 1_700_000_009)
    assert document["model"] == "m1"


def test_any_batching_gives_the_same_bytes(decode: Decode, facts: TurnFacts) -> None:
    echo = decode(tools=TOOLS).echo

    def run(cuts: list[int]) -> bytes:
        encoder = responses.StreamEncoder(facts, echo)
        borders = [0, *sorted(cuts), len(TURN)]
        return b"".join(encoder.feed(TURN[a:b]) for a, b in itertools.pairwise(borders))

    whole = run([])
    dice = random.Random(1)
    for cuts in [list(range(1, len(TURN))), *([dice.randrange(len(TURN)) for _ in range(4)] for _ in range(30))]:
        assert run(cuts) == whole


def test_an_item_is_done_before_the_next_opens(decode: Decode, facts: TurnFacts) -> None:
    """The first of two calls is complete on the wire before anything of the second exists."""
    encoder = responses.StreamEncoder(facts, decode(tools=TOOLS).echo)
    encoder.start(Usage(1))
    first = encoder.feed(call(0, "exec_command", '{"cmd":"a"}', "one"))
    assert b'"type":"response.output_item.done"' in first
    assert b'"call_id":"one"' in first.split(b"response.output_item.done")[-1]


def test_what_was_sent_comes_back_as_the_same_turn(answer: Answer, decode: Decode) -> None:
    """Output items sent back as input give the model's turn in its order, with both seals."""
    _, document = answer(TURN, tools=TOOLS)
    messages = decode(tools=TOOLS, input=[{"role": "user", "content": "q"}, *document["output"]]).conversation.messages
    assert len(messages) == 2
    shown = [(type(b).__name__, getattr(b, "name", getattr(b, "text", None))) for b in messages[1].blocks]
    assert shown == [
        ("ReasoningBlock", 'think of "it"\n'),
        ("TextBlock", "I look \U0001f642"),
        ("ToolCallBlock", "exec_command"),
        ("ToolCallBlock", "mcp__mail__send"),
        ("ToolCallBlock", "apply_patch"),
        ("ToolCallBlock", "tool_search"),
        ("ReasoningBlock", ""),
    ]
    assert [b.seal for b in messages[1].blocks if hasattr(b, "seal")] == ["SEAL0", "SEAL1"]
    assert messages[1].blocks[4].arguments == "*** Begin\n"  # type: ignore[union-attr]


def test_keepalive_is_an_event_that_counts(decode: Decode, facts: TurnFacts) -> None:
    encoder = responses.StreamEncoder(facts, decode().echo)
    data = encoder.start(Usage(1)) + encoder.keepalive() + encoder.feed([BlockOpened(0, "text"), BlockDelta(0, "a")])
    data += encoder.keepalive() + encoder.feed([BlockClosed(0, "text"), Usage(1, 0, 1), Finished("stop")])
    events, problems = parse_stream(data)
    assert problems == []
    assert check_events(events) == []
    assert types(events)[2] == "in_progress"
    assert types(events).count("in_progress") == 3


@pytest.mark.parametrize(
    ("reason", "status", "why", "item"),
    [
        ("stop", "completed", None, "completed"),
        ("stop_sequence", "completed", None, "completed"),
        ("tool_calls", "completed", None, "completed"),
        ("length", "incomplete", {"reason": "max_output_tokens"}, "incomplete"),
        ("content_filter", "incomplete", {"reason": "content_filter"}, "incomplete"),
    ],
)
def test_how_a_turn_ends(answer: Answer, reason: Any, status: str, why: Any, item: str) -> None:
    turn = [BlockOpened(0, "text"), BlockDelta(0, "x"), BlockClosed(0, "text"), Usage(1, 0, 1), Finished(reason)]
    events, document = answer(turn)
    assert events[-1]["type"] == f"response.{status}"
    assert (document["status"], document["incomplete_details"]) == (status, why)
    assert document["output"][0]["status"] == item


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_a_broken_generation_is_a_failure(answer: Answer, reason: Any) -> None:
    events, document = answer([Usage(1), Finished(reason)])
    assert events[-1]["type"] == "response.failed"
    assert document["error"]["code"] == "server_error"


def test_a_failure_in_mid_stream_keeps_what_was_finished(decode: Decode, facts: TurnFacts) -> None:
    encoder = responses.StreamEncoder(facts, decode(tools=TOOLS).echo)
    data = encoder.start(Usage(1)) + encoder.feed([*TURN[:4], *TURN[4:6]])
    data += encoder.fail(TurnFailure("engine_failed", "The engine went away."))
    events, _ = parse_stream(data)
    assert check_events(events) == []
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["response"]["error"] == {"code": "server_error", "message": "The engine went away."}
    assert [item["type"] for item in events[-1]["response"]["output"]] == ["reasoning"]


def test_hidden_reasoning_still_carries_its_seal(answer: Answer) -> None:
    events, document = answer(TURN[:4] + TURN[-2:], reasoning={"effort": "low", "summary": "none"})
    assert not [event for event in events if "summary" in event["type"]]
    assert document["output"][0]["summary"] == []
    assert document["output"][0]["encrypted_content"] == "SEAL0"


@pytest.mark.parametrize(
    ("include", "last"), [(None, "message"), ([], "message"), (["reasoning.encrypted_content"], "reasoning")]
)
def test_the_answer_is_the_last_item_unless_the_client_carries_its_own_state(
    answer: Answer, include: Any, last: str
) -> None:
    turn = [*TURN[:7], SealCarried(-1, "S"), Usage(1, 0, 1), Finished("stop")]
    assert answer(turn, include=include)[1]["output"][-1]["type"] == last
    assert answer(TURN, include=include, tools=TOOLS)[1]["output"][-1]["encrypted_content"] == "SEAL1"


def test_an_empty_turn_is_still_a_response(answer: Answer) -> None:
    events, document = answer([Usage(3), Finished("stop")])
    assert types(events) == ["created", "in_progress", "completed"]
    assert document["output"] == []


def test_a_call_without_deltas_and_a_malformed_one(answer: Answer) -> None:
    turn = [
        BlockOpened(0, "tool_call", "apply_patch", "c0"),
        ToolCallClosed(0, "apply_patch", '{"input":"late"}', "c0"),
        BlockOpened(1, "tool_call", "exec_command", "c1"),
        ToolCallClosed(1, "exec_command", "{not json", "c1", malformed=True),
        BlockOpened(2, "tool_call", "tool_search", "c2"),
        ToolCallClosed(2, "tool_search", "{not json", "c2", malformed=True),
        Usage(1, 0, 1),
        Finished("tool_calls"),
    ]
    _, document = answer(turn, tools=TOOLS)
    assert document["output"][0]["input"] == "late"
    assert document["output"][1]["arguments"] == "{not json"
    assert document["output"][2]["arguments"] == "{not json"


def test_codex_shapes(answer: Answer) -> None:
    """The rows of the client's own decoder: what it drops or dies of must never be sent."""
    events, document = answer(TURN, tools=TOOLS)
    for event in events:
        if event["type"] == "response.output_item.done":
            item = event["item"]
            assert "_" in item["id"]
            if item["type"] == "reasoning":
                assert isinstance(item["summary"], list)
            if item["type"].endswith("_call"):
                assert item["call_id"]
            if item["type"] == "function_call":
                assert isinstance(item["arguments"], str)
                assert "." not in item["name"]
                assert not item["name"].startswith("mcp__")
    calls = [item["call_id"] for item in document["output"] if "call_id" in item]
    assert len(set(calls)) == len(calls)
    usage = events[-1]["response"]["usage"]
    for name in ("input_tokens", "output_tokens", "total_tokens"):
        assert type(usage[name]) is int
    assert type(usage["input_tokens_details"]["cached_tokens"]) is int
    assert type(usage["output_tokens_details"]["reasoning_tokens"]) is int
    assert events[-1]["response"]["id"].startswith("resp_")
    assert "end_turn" not in events[-1]["response"]


def test_a_background_response_is_queued_before_it_runs(decode: Decode) -> None:
    encoder = responses.stream_encoder(FACTS, decode(background=True).echo)
    assert json.loads(encoder.document)["status"] == "queued"
    data = encoder.start(Usage(1))
    assert json.loads(encoder.document)["status"] == "in_progress"
    events, problems = parse_stream(data + encoder.feed([Usage(1), Finished("stop")]))
    assert problems == []
    assert [(event["type"], event["response"]["status"]) for event in events] == [
        ("response.created", "queued"),
        ("response.queued", "queued"),
        ("response.in_progress", "in_progress"),
        ("response.completed", "completed"),
    ]
    assert check_events(events) == []


def test_completed_calls_are_announced_to_clients_that_opted_in(decode: Decode) -> None:
    tools = [{"type": "namespace", "name": "mcp__calc", "tools": [{"type": "function", "name": "add"}]}]
    loud = TurnFacts(turn_id="t1", model="m", created=1, dispatch=True)
    said: list[Event] = [
        BlockOpened(0, "tool_call", "mcp__calc__add", "call1"),
        BlockDelta(0, '{"a":1}'),
        ToolCallClosed(0, "mcp__calc__add", '{"a":1}', "call1"),
        Usage(1),
        Finished("tool_calls"),
    ]
    for facts, announced in ((loud, 1), (FACTS, 0)):
        encoder = responses.stream_encoder(facts, decode(tools=tools).echo)
        events, problems = parse_stream(encoder.start(Usage(1)) + encoder.feed(said))
        assert problems == []
        found = [event for event in events if event["type"] == "tool_call_dispatch"]
        assert len(found) == announced
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        if announced:
            assert found[0]["tool_call"] == {
                "index": 0,
                "id": "call1",
                "type": "function",
                "function": {"name": "add", "arguments": '{"a":1}', "namespace": "mcp__calc"},
            }
