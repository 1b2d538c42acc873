"""Compaction: one item out, the same summary back in, whatever else the model wrote."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from turnwire.protocols import responses
from turnwire.protocols.responses.compaction.summary import kept_messages
from turnwire.protocols.wire import Inbound, TurnFacts, TurnFailure
from turnwire.turns import BlockClosed, BlockDelta, BlockOpened, Event, Finished, ToolCallClosed, Usage

Decode = Callable[..., Inbound]
Answer = Callable[..., tuple[list[dict[str, Any]], dict[str, Any]]]

HISTORY: list[Any] = [
    {"role": "developer", "content": "base"},
    {"role": "user", "content": "fix it"},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "done"},
]
TOOLS = [{"type": "function", "name": "f"}]
TURN: list[Event] = [
    BlockOpened(0, "reasoning"),
    BlockDelta(0, "let me sum up"),
    BlockClosed(0, "reasoning", seal="S"),
    BlockOpened(1, "text"),
    BlockDelta(1, "We fixed "),
    BlockDelta(1, "it. é\U0001f642\n"),
    BlockClosed(1, "text"),
    BlockOpened(2, "tool_call", "f", "x"),
    ToolCallClosed(2, "f", "{}", "x"),
    Usage(50, 40, 9, 2),
    Finished("stop"),
]


def test_a_trigger_asks_for_a_summary_behind_an_unchanged_history(decode: Decode) -> None:
    plain = decode(input=HISTORY, tools=TOOLS)
    asked = decode(
        input=[*HISTORY, {"type": "compaction_trigger"}], tools=TOOLS, text={"format": {"type": "json_object"}}
    )
    assert asked.conversation.messages[:-1] == plain.conversation.messages
    assert asked.conversation.messages[-1].text == responses.SUMMARY_PROMPT
    assert asked.conversation.tools == plain.conversation.tools
    assert asked.conversation.tool_choice.mode == "none"
    assert asked.conversation.format is None
    assert asked.conversation.context.turn_class == "compaction"


def test_exactly_one_compaction_item_comes_back_and_is_read_again(answer: Answer, decode: Decode) -> None:
    events, _ = answer(TURN, input=[*HISTORY, {"type": "compaction_trigger"}], tools=TOOLS)
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert [item["type"] for item in done] == ["compaction"]
    assert events[-1]["type"] == "response.completed"
    assert events[-1]["response"]["usage"]["total_tokens"] == 59
    assert responses.read_summary(done[0]["encrypted_content"]) == "We fixed it. é\U0001f642"
    again = decode(input=[HISTORY[1], done[0], {"role": "user", "content": "go on"}])
    assert again.conversation.messages[1].text.endswith("We fixed it. é\U0001f642")
    assert again.notes == ()


@pytest.mark.parametrize("ending", [[Finished("stop")], [Finished("error")]])
def test_no_summary_is_a_failure_and_not_an_empty_item(answer: Answer, ending: list[Event]) -> None:
    events, _ = answer([*TURN[:3], Usage(1), *ending], input=[*HISTORY, {"type": "compaction_trigger"}])
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["response"]["output"] == []


def test_the_compact_route_gives_user_messages_and_the_item(decode: Decode, facts: TurnFacts) -> None:
    encoder = responses.CompactedEncoder(facts, decode(input=HISTORY).echo)
    assert encoder.start(Usage(1)) == b""
    body = msgspec.json.decode(encoder.feed(TURN[:5]) + encoder.feed(TURN[5:]))
    assert body["object"] == "response.compaction"
    assert [item["type"] for item in body["output"]] == ["message", "compaction"]
    assert body["output"][0]["content"] == [{"type": "input_text", "text": "fix it"}]
    assert body["usage"]["input_tokens"] == 50


def test_the_compact_route_fails_as_a_status(decode: Decode, facts: TurnFacts) -> None:
    encoder = responses.CompactedEncoder(facts, decode(input=HISTORY).echo)
    with pytest.raises(TurnFailure) as caught:
        encoder.feed([*TURN[:3], Usage(1), Finished("stop")])
    assert caught.value.kind == "engine_failed"


def test_kept_messages_are_the_latest_within_bounds() -> None:
    items = [{"role": "user", "content": str(n) + "x" * 30_000} for n in range(5)]
    assert [item["content"][0] for item in kept_messages(items)] == ["3", "4"]


@pytest.mark.parametrize("carried", ["", "twc1.", "twc1.!!!!", "twc1.AAAA", "gAAAAABo", "twc1.eJw"])
def test_a_damaged_carrier_is_not_read(carried: str) -> None:
    assert responses.read_summary(carried) is None


def test_a_carrier_cannot_grow_without_bound() -> None:
    bomb = responses.compaction_item("cmp_1", "x" * 8_000_000)["encrypted_content"]
    assert len(bomb) < 20_000
    assert responses.read_summary(bomb) is None
