"""Context edits are really carried out, and only then reported."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnwire.protocols.anthropic import Echo, continue_thread, decode, record_turn
from turnwire.protocols.anthropic.request.context_management import CLEARED
from turnwire.protocols.wire import Inbound, TurnFailure
from turnwire.turns import Message, ReasoningBlock, TextBlock, ToolCallBlock, ToolResultBlock

from .pipeline import assembled, document, ending, request, stream, text


def turn(number: int) -> list[dict[str, Any]]:
    """A user's question, two thoughts around a call, and an answer."""
    return [
        {"role": "user", "content": f"question {number}"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": f"thought {number}a", "signature": "s"},
                {"type": "tool_use", "id": f"call{number}", "name": f"tool{number % 2}", "input": {"n": number}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": f"call{number}", "content": "r" * 400}],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": f"thought {number}b", "signature": "s"},
                {"type": "text", "text": f"answer {number}"},
            ],
        },
    ]


HISTORY = [message for number in range(5) for message in turn(number)]


def edited(edit: dict[str, Any], messages: list[dict[str, Any]] = HISTORY) -> Inbound:
    return request(messages=messages, context_management={"edits": [edit]})


def thoughts(inbound: Inbound) -> list[str]:
    return [
        block.text
        for message in inbound.conversation.messages
        for block in message.blocks
        if isinstance(block, ReasoningBlock)
    ]


def results(inbound: Inbound) -> dict[str, str]:
    return {
        block.call_id: "".join(part.text for part in block.content if isinstance(part, TextBlock))
        for message in inbound.conversation.messages
        for block in message.blocks
        if isinstance(block, ToolResultBlock)
    }


def report(inbound: Inbound) -> Any:
    assert isinstance(inbound.echo, Echo)
    return inbound.echo.applied_edits


@pytest.mark.parametrize("keep", ["all", {"type": "all"}])
def test_keep_all_thoughts(keep: Any) -> None:
    inbound = edited({"type": "clear_thinking_20251015", "keep": keep})
    assert len(thoughts(inbound)) == 10
    assert report(inbound) == ()
    assert (inbound.conversation.thinking.history, inbound.conversation.thinking.keep_turns) == ("keep", None)


@pytest.mark.parametrize(("keep", "left"), [(None, 1), ({"type": "thinking_turns", "value": 2}, 2)])
def test_clear_old_thoughts(keep: Any, left: int) -> None:
    edit = {"type": "clear_thinking_20251015"} | ({"keep": keep} if keep else {})
    inbound = edited(edit)
    assert thoughts(inbound) == [f"thought {number}{part}" for number in range(5 - left, 5) for part in "ab"]
    (applied,) = report(inbound)
    assert applied["type"] == "clear_thinking_20251015"
    assert applied["cleared_thinking_turns"] == 5 - left
    assert applied["cleared_input_tokens"] > 0
    assert inbound.conversation.thinking.keep_turns == left


def test_thoughts_of_the_running_loop_stay_together() -> None:
    loop = [*turn(0), *turn(1)[:3]]
    loop += [{"role": "assistant", "content": turn(2)[1]["content"]}, turn(2)[2]]
    inbound = edited({"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}}, loop)
    assert thoughts(inbound) == ["thought 1a", "thought 2a"]


def test_clear_tool_uses_by_count() -> None:
    inbound = edited(
        {
            "type": "clear_tool_uses_20250919",
            "trigger": {"type": "tool_uses", "value": 3},
            "keep": {"type": "tool_uses", "value": 2},
            "exclude_tools": ["tool1"],
        }
    )
    kept = results(inbound)
    assert [call_id for call_id, content in kept.items() if content == CLEARED] == ["call0", "call2"]
    assert kept["call1"] == kept["call3"] == kept["call4"] == "r" * 400
    (applied,) = report(inbound)
    assert applied["cleared_tool_uses"] == 2
    assert applied["cleared_input_tokens"] == 2 * (100 - 8)
    calls = [block for m in inbound.conversation.messages for block in m.blocks if isinstance(block, ToolCallBlock)]
    assert all(call.arguments != "{}" for call in calls)


@pytest.mark.parametrize(("inputs", "cleared"), [(True, ["call0", "call1"]), (["tool1"], ["call1"])])
def test_clear_tool_inputs(inputs: Any, cleared: list[str]) -> None:
    inbound = edited(
        {
            "type": "clear_tool_uses_20250919",
            "trigger": {"type": "tool_uses", "value": 0},
            "clear_tool_inputs": inputs,
        }
    )
    calls = [block for m in inbound.conversation.messages for block in m.blocks if isinstance(block, ToolCallBlock)]
    assert [call.id for call in calls if call.arguments == "{}"] == cleared


@pytest.mark.parametrize(
    "edit",
    [
        {"trigger": {"type": "tool_uses", "value": 5}},
        {"trigger": {"type": "input_tokens", "value": 100_000}},
        {},
        {"trigger": {"type": "tool_uses", "value": 1}, "clear_at_least": {"type": "input_tokens", "value": 10_000}},
        {"trigger": {"type": "tool_uses", "value": 1}, "keep": {"type": "tool_uses", "value": 9}},
    ],
)
def test_an_edit_that_is_not_due_changes_nothing(edit: dict[str, Any]) -> None:
    inbound = edited({"type": "clear_tool_uses_20250919", **edit})
    assert inbound.conversation.messages == request(messages=HISTORY).conversation.messages
    assert report(inbound) == ()


def test_the_token_trigger_asks_the_given_counter() -> None:
    asked: list[str] = []

    def count(model: str, text: str) -> int:
        asked.append(model)
        return len(text)

    body = {
        "model": "m",
        "messages": HISTORY,
        "context_management": {
            "edits": [{"type": "clear_tool_uses_20250919", "trigger": {"type": "input_tokens", "value": 2000}}]
        },
    }
    inbound = decode(json.dumps(body).encode(), {}, count_tokens=count)
    assert set(asked) == {"m"}
    assert report(inbound)[0]["cleared_input_tokens"] == 2 * (400 - len(CLEARED))


def test_other_edits_are_noted() -> None:
    inbound = edited({"type": "compact_20260112"})
    assert [note.code for note in inbound.notes] == ["request.field_ignored"]
    assert report(inbound) == ()


@pytest.mark.parametrize(
    "edit",
    [
        {"type": "clear_thinking_20251015", "keep": "some"},
        {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": -1}},
        {"type": "clear_tool_uses_20250919", "keep": 3},
        {"type": "clear_tool_uses_20250919", "trigger": {"type": "tool_uses", "value": True}},
    ],
)
def test_a_wrong_edit_is_refused(edit: dict[str, Any]) -> None:
    with pytest.raises(TurnFailure) as caught:
        edited(edit)
    assert (caught.value.param or "").startswith("context_management.edits.0.")


def test_applied_edits_are_in_the_answer() -> None:
    inbound = edited({"type": "clear_thinking_20251015"})
    events = [*text(0, "hi"), *ending("stop")]
    whole = document(events, inbound.echo)
    assert whole["context_management"] == {"applied_edits": [dict(report(inbound)[0])]}
    assert assembled(stream([events], inbound.echo)) == whole
    assert "context_management" not in document(events, request().echo)


def test_a_thread_keeps_what_the_edits_hide() -> None:
    edit = {"edits": [{"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}}]}
    first = request(messages=HISTORY, thread={"type": "create"}, context_management=edit)
    assert len(thoughts(first)) == 2
    record = record_turn(first, Message(role="assistant", blocks=(TextBlock(text="ok"),)))
    again = request(
        messages=[{"role": "user", "content": "next"}],
        thread={"type": "continue", "previous_message_id": "msg_1"},
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    )
    joined = continue_thread(again, record)
    assert len(thoughts(joined)) == 10
    assert report(joined) == ()
    edited_again = continue_thread(
        request(
            messages=[{"role": "user", "content": "next"}],
            thread={"type": "continue", "previous_message_id": "msg_1"},
            context_management=edit,
        ),
        record,
    )
    assert thoughts(edited_again) == ["thought 4a", "thought 4b"]
    assert report(edited_again)[0]["cleared_thinking_turns"] == 4
