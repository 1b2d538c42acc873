"""The vocabulary: frozen, equal by content, and able to survive a round trip through JSON."""

from __future__ import annotations

import msgspec
import pytest

from turnwire.turns import (
    BlockDelta,
    BlockOpened,
    Conversation,
    Event,
    Finished,
    ImageBlock,
    Message,
    Note,
    OpaqueBlock,
    ReasoningBlock,
    TextBlock,
    Thinking,
    Tool,
    ToolCallBlock,
    ToolCallClosed,
    ToolResultBlock,
    Usage,
)


def conversation() -> Conversation:
    return Conversation(
        model="m",
        messages=(
            Message(role="system", blocks=(TextBlock(text="Be brief."),)),
            Message(role="user", blocks=(TextBlock(text="List "), TextBlock(text="files"))),
            Message(
                role="assistant",
                blocks=(
                    ReasoningBlock(text="ls", seal="s1"),
                    ToolCallBlock(id="c1", name="Bash", arguments='{"command": "ls"}'),
                    ReasoningBlock(text="", redacted=True, seal="s2"),
                ),
            ),
            Message(
                role="user",
                blocks=(
                    ToolResultBlock(
                        call_id="c1", content=(TextBlock(text="a.py"), ImageBlock(data="aGk=")), is_error=True
                    ),
                    OpaqueBlock(wire_type="hologram", payload='{"type":"hologram"}'),
                ),
            ),
        ),
        tools=(Tool(name="Bash", schema={"type": "object"}),),
        thinking=Thinking(mode="on", budget=100),
    )


def test_values_are_equal_by_content_and_frozen() -> None:
    assert conversation() == conversation()
    assert conversation() != msgspec.structs.replace(conversation(), model="other")
    with pytest.raises(AttributeError):
        conversation().model = "x"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        BlockDelta(0, "a").text = "b"  # type: ignore[misc]


def test_a_conversation_survives_json() -> None:
    value = conversation()
    assert msgspec.json.decode(msgspec.json.encode(value), type=Conversation) == value


def test_events_survive_json_with_their_kind() -> None:
    events: list[Event] = [
        BlockOpened(0, "tool_call", "Bash", "c1", "<tool_call>"),
        BlockDelta(0, "{", "{"),
        ToolCallClosed(0, "Bash", "{}", "c1", raw="}"),
        Note("rescue.missing_closer", "closed at the end"),
        Usage(10, 4, 2, 1),
        Finished("tool_calls"),
    ]
    assert msgspec.json.decode(msgspec.json.encode(events), type=list[Event]) == events


def test_turn_counting_merges_adjacent_assistant_messages() -> None:
    value = conversation()
    assert value.assistant_turns == 1
    twice = (*value.messages[:3], value.messages[2], value.messages[3], value.messages[2])
    assert msgspec.structs.replace(value, messages=twice).assistant_turns == 2


def test_the_last_user_text_skips_messages_that_only_hold_results() -> None:
    assert conversation().last_user_text == "List files"
    assert Conversation(model="m", messages=()).last_user_text == ""
