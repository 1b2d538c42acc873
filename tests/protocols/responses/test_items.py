"""Input items become messages in the client's order; bookkeeping never reaches them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from turnwire.protocols.responses import Stored, compaction_item
from turnwire.protocols.wire import Inbound, TurnFailure
from turnwire.turns import (
    ImageBlock,
    Message,
    OpaqueBlock,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
)

Decode = Callable[..., Inbound]

THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "why"}], "content": None}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "call1", "name": "ls", "arguments": '{"a": 1}'}
RESULT = {"type": "function_call_output", "id": "fco_1", "call_id": "call1", "output": "ok"}


def text(value: str) -> tuple[TextBlock, ...]:
    return (TextBlock(text=value),)


def codes(inbound: Inbound) -> list[str]:
    return [note.code for note in inbound.notes]


def test_assistant_items_that_stand_together_are_one_turn_in_order(decode: Decode) -> None:
    inbound = decode(
        input=[
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "base"}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
            {**THOUGHT, "encrypted_content": "S1"},
            {
                "type": "message",
                "role": "assistant",
                "phase": "commentary",
                "content": [{"type": "output_text", "text": "I look.", "annotations": []}],
            },
            CALL,
            {**CALL, "call_id": "call2", "arguments": "{}"},
            {"type": "reasoning", "summary": [], "encrypted_content": "S2"},
            RESULT,
            {**RESULT, "call_id": "call2", "output": [{"type": "input_text", "text": "two"}]},
            {"type": "message", "role": "assistant", "content": "Done."},
            {"role": "user", "content": "thanks"},
        ]
    )
    assert inbound.conversation.messages == (
        Message(role="developer", blocks=text("base")),
        Message(role="user", blocks=text("go")),
        Message(
            role="assistant",
            blocks=(
                ReasoningBlock(text="why", seal="S1"),
                TextBlock(text="I look."),
                ToolCallBlock(id="call1", name="ls", arguments='{"a": 1}'),
                ToolCallBlock(id="call2", name="ls", arguments="{}"),
                ReasoningBlock(text="", seal="S2", redacted=True),
            ),
        ),
        Message(
            role="user",
            blocks=(
                ToolResultBlock(call_id="call1", content=text("ok"), name="ls"),
                ToolResultBlock(call_id="call2", content=text("two"), name="ls"),
            ),
        ),
        Message(role="assistant", blocks=text("Done.")),
        Message(role="user", blocks=text("thanks")),
    )
    assert codes(inbound) == []


def test_instructions_and_a_leading_developer_item_are_the_same_place(decode: Decode) -> None:
    old = decode(instructions="base", input=[{"role": "user", "content": "hi"}])
    new = decode(input=[{"role": "developer", "content": "base"}, {"role": "user", "content": "hi"}])
    assert old.conversation.messages == new.conversation.messages


def test_ids_status_and_annotations_do_not_reach_the_conversation(decode: Decode) -> None:
    item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]}
    bare = decode(input=[{"role": "user", "content": "q"}, item, THOUGHT, CALL, RESULT])
    full = decode(
        input=[
            {"type": "message", "id": "msg_9", "role": "user", "status": "completed", "content": "q"},
            {
                **item,
                "id": "msg_1",
                "status": "completed",
                "phase": "final_answer",
                "internal_chat_message_metadata_passthrough": {"a": 1},
                "content": [{"type": "output_text", "text": "x", "annotations": [], "logprobs": []}],
            },
            {k: v for k, v in THOUGHT.items() if k != "id"},
            {**CALL, "id": "fc_2", "status": "completed"},
            {**RESULT, "id": "other_1"},
        ]
    )
    assert bare.conversation == full.conversation


@pytest.mark.parametrize(
    ("item", "block"),
    [
        ({"summary": [], "encrypted_content": "S"}, ReasoningBlock(text="", seal="S", redacted=True)),
        ({"summary": [{"type": "summary_text", "text": "s"}]}, ReasoningBlock(text="s")),
        (
            {"summary": [], "content": [{"type": "reasoning_text", "text": "raw"}], "encrypted_content": None},
            ReasoningBlock(text="raw"),
        ),
        (
            {
                "summary": [{"type": "summary_text", "text": "s"}],
                "content": [{"type": "reasoning_text", "text": "raw"}],
                "encrypted_content": "S",
            },
            ReasoningBlock(text="raw", seal="S"),
        ),
    ],
)
def test_reasoning_in_every_form(decode: Decode, item: dict[str, Any], block: ReasoningBlock) -> None:
    inbound = decode(input=[{"role": "user", "content": "q"}, {"type": "reasoning", **item}, CALL, RESULT])
    assert inbound.conversation.messages[1].blocks[0] == block


def test_empty_reasoning_says_nothing(decode: Decode) -> None:
    inbound = decode(input=[{"role": "user", "content": "q"}, {"type": "reasoning", "summary": []}])
    assert len(inbound.conversation.messages) == 1


def test_a_thought_that_a_broken_stream_left_behind_is_not_asked_upon(decode: Decode) -> None:
    asked = [{"role": "user", "content": "q"}, THOUGHT, CALL, RESULT]
    again = decode(input=[*asked, {"type": "reasoning", "summary": [], "encrypted_content": "S"}])
    assert again.conversation == decode(input=asked).conversation
    assert codes(again) == ["turn.unfinished"]
    said = decode(input=[*asked, THOUGHT, {"role": "assistant", "content": "so"}])
    assert len(said.conversation.messages[-1].blocks) == 2


def test_a_thought_replayed_as_assistant_text_is_a_thought_again(decode: Decode) -> None:
    inbound = decode(
        input=[{"role": "user", "content": "q"}, {"role": "assistant", "content": "<think>\nbecause\n</think>"}, CALL]
    )
    assert inbound.conversation.messages[1].blocks[0] == ReasoningBlock(text="because")
    assert codes(inbound) == ["reasoning.from_text"]


def test_text_that_we_sent_is_never_read_as_a_thought(decode: Decode) -> None:
    ours = {"type": "message", "id": "msg_T1_0", "role": "assistant", "content": "<think>loud</think>"}
    inbound = decode(input=[{"role": "user", "content": "q"}, ours, CALL])
    assert inbound.conversation.messages[1].blocks[0] == TextBlock(text="<think>loud</think>")
    assert codes(inbound) == []
    kept = decode(input=[{"role": "assistant", "content": "Use <think> and </think>"}])
    assert kept.conversation.messages[0].text == "Use <think> and </think>"


def test_custom_calls_and_outputs(decode: Decode) -> None:
    inbound = decode(
        tools=[{"type": "custom", "name": "apply_patch"}],
        input=[
            {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "*** Begin\n"},
            {"type": "custom_tool_call_output", "call_id": "c", "output": "Success"},
        ],
    )
    call, result = inbound.conversation.messages
    assert call.blocks == (ToolCallBlock(id="c", name="apply_patch", arguments="*** Begin\n", kind="custom"),)
    assert result.blocks == (ToolResultBlock(call_id="c", content=text("Success"), name="apply_patch"),)


def test_images_inline_and_by_url(decode: Decode) -> None:
    inbound = decode(
        input=[
            {
                "role": "user",
                "content": [
                    {"type": "input_image", "image_url": "data:image/png;base64,QUJD", "detail": "high"},
                    {"type": "input_image", "image_url": "https://h/x.png"},
                    {"type": "input_image", "file_id": "file_1"},
                    {"type": "input_audio", "data": "x"},
                ],
            },
            CALL,
            {**RESULT, "output": [{"type": "input_image", "image_url": "data:image/png;base64,QUJD"}]},
        ]
    )
    first = inbound.conversation.messages[0].blocks
    assert first[:2] == (
        ImageBlock(media_type="image/png", data="QUJD", detail="high"),
        ImageBlock(url="https://h/x.png"),
    )
    assert [block.wire_type for block in first[2:] if isinstance(block, OpaqueBlock)] == ["input_image", "input_audio"]
    assert codes(inbound) == ["content.opaque"] * 2
    assert inbound.conversation.messages[2].blocks[0].content[0] == ImageBlock(media_type="image/png", data="QUJD")  # type: ignore[union-attr]


def test_item_references_resolve_or_are_dropped_with_a_note(decode: Decode) -> None:
    items = [
        {"role": "user", "content": "q"},
        {"type": "item_reference", "id": "rs_1"},
        {"type": "item_reference", "id": "rs_gone"},
        {"id": "fc_1"},
        RESULT,
    ]
    inbound = decode(input=items, stored=Stored(items={"rs_1": {**THOUGHT, "encrypted_content": "S"}, "fc_1": CALL}))
    assert inbound.conversation.messages[1].blocks == (
        ReasoningBlock(text="why", seal="S"),
        ToolCallBlock(id="call1", name="ls", arguments='{"a": 1}'),
    )
    assert codes(inbound) == ["item.reference_missing"]
    assert [item.get("type") for item in inbound.echo.input_items][1] == "reasoning"  # type: ignore[attr-defined]
    assert codes(decode(input=items)) == ["item.reference_missing"] * 3


def test_tool_search_loads_tools_by_reference(decode: Decode) -> None:
    inbound = decode(
        tools=[
            {"type": "tool_search", "execution": "client", "description": "Find.", "parameters": {"type": "object"}}
        ],
        input=[
            {"role": "user", "content": "q"},
            {"type": "tool_search_call", "call_id": "s1", "execution": "client", "arguments": {"query": "mail"}},
            {
                "type": "tool_search_output",
                "call_id": "s1",
                "tools": [{"type": "namespace", "name": "mail", "tools": [{"type": "function", "name": "send"}]}],
            },
            {"type": "function_call", "call_id": "c", "name": "send", "namespace": "mail", "arguments": "{}"},
        ],
    )
    assert [(t.name, t.deferred) for t in inbound.conversation.tools] == [("tool_search", False), ("mail__send", True)]
    _, search, loaded, call = inbound.conversation.messages
    assert search.blocks[0] == ToolCallBlock(id="s1", name="tool_search", arguments='{"query":"mail"}')
    assert loaded.blocks[0].references == ("mail__send",)  # type: ignore[union-attr]
    assert call.blocks[0].name == "mail__send"  # type: ignore[union-attr]


def test_additional_tools_are_tools(decode: Decode) -> None:
    item = {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "late"}]}
    inbound = decode(input=[item, {"role": "user", "content": "q"}])
    assert [tool.name for tool in inbound.conversation.tools] == ["late"]
    assert len(inbound.conversation.messages) == 1


def test_agent_messages_are_heard(decode: Decode) -> None:
    item = {
        "type": "agent_message",
        "author": "/root",
        "recipient": "/root/a",
        "content": [{"type": "input_text", "text": "look here"}],
    }
    inbound = decode(input=[item])
    assert inbound.conversation.messages[0].text == "Message from /root to /root/a:\nlook here"


def test_a_compaction_is_shown_as_its_summary_and_a_foreign_one_is_kept(decode: Decode) -> None:
    ours = decode(input=[compaction_item("cmp_1", "we fixed the bug"), {"role": "user", "content": "go on"}])
    assert ours.conversation.messages[0].text.endswith("we fixed the bug")
    foreign = decode(input=[{"type": "compaction", "encrypted_content": "gAAAA"}, {"role": "user", "content": "x"}])
    assert isinstance(foreign.conversation.messages[0].blocks[0], OpaqueBlock)
    assert codes(foreign) == ["compaction.foreign"]


@pytest.mark.parametrize("kind", ["image_generation_call", "local_shell_call", "brand_new_item"])
def test_items_we_cannot_show_are_kept_and_noted(decode: Decode, kind: str) -> None:
    inbound = decode(input=[{"role": "user", "content": "q"}, {"type": kind, "id": "x_1", "extra": {"k": 1}}])
    block = inbound.conversation.messages[1].blocks[0]
    assert isinstance(block, OpaqueBlock)
    assert '"extra":{"k":1}' in block.payload
    assert codes(inbound) == ["item.opaque"]


def test_a_search_made_elsewhere_is_left_out_and_noted(decode: Decode) -> None:
    search = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "x"},
    }
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "found"}]}
    inbound = decode(input=[{"role": "user", "content": "q"}, search, said, {"role": "user", "content": "more"}])
    assert [message.text for message in inbound.conversation.messages] == ["q", "found", "more"]
    assert codes(inbound) == ["item.opaque"]


@pytest.mark.parametrize(
    ("items", "param"),
    [
        ([3], "input[0]"),
        ([{}], "input[0].type"),
        ([{"role": "robot", "content": "x"}], "input[0].role"),
        ([{"role": "user", "content": 3}], "input[0].content"),
        ([{"role": "user", "content": [{"text": "x"}]}], "input[0].content[0].type"),
        ([{"role": "user", "content": [{"type": "input_text"}]}], "input[0].content[0].text"),
        (
            [{"role": "user", "content": [{"type": "input_image", "image_url": "data:x"}]}],
            "input[0].content[0].image_url",
        ),
        ([{"type": "function_call", "call_id": "c", "arguments": "{}"}], "input[0].name"),
        ([{"type": "reasoning", "summary": [], "encrypted_content": 1}], "input[0].encrypted_content"),
    ],
)
def test_a_wrong_item_is_refused_by_its_path(decode: Decode, items: list[Any], param: str) -> None:
    with pytest.raises(TurnFailure) as caught:
        decode(input=items)
    assert caught.value.kind == "invalid_request"
    assert caught.value.param == param
