"""A wish for thinking in each server's own words, and thoughts that go back as they came."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnwire.engines.interface import EventBatch
from turnwire.engines.upstream.chat import ChatReading
from turnwire.engines.upstream.chat_body import chat_body
from turnwire.engines.upstream.details import Details, carried
from turnwire.engines.upstream.messages import MessagesReading
from turnwire.engines.upstream.thinking import thinking_fields
from turnwire.profiles import builtin_book
from turnwire.turns import (
    BlockClosed,
    BlockDelta,
    BlockOpened,
    Conversation,
    Event,
    Message,
    ReasoningBlock,
    TextBlock,
    Thinking,
    ToolCallBlock,
)

from .test_openai import asking

OFF, ON = Thinking(mode="off"), Thinking(mode="on")
HIGH, BUDGET = Thinking(mode="on", effort="high"), Thinking(mode="on", budget=4000)
MAX = Thinking(effort="max")


@pytest.mark.parametrize(
    ("server", "wish", "said"),
    [
        *(
            row
            for server in ("vllm", "sglang", "trtllm", "llamacpp", "nim")
            for row in (
                (server, OFF, {"chat_template_kwargs": {"enable_thinking": False, "thinking": False}}),
                (server, ON, {"chat_template_kwargs": {"enable_thinking": True, "thinking": True}}),
                (server, MAX, {"reasoning_effort": "max"}),
            )
        ),
        *(
            row
            for server in ("openai", "lmstudio", "ollama", "unheard-of")
            for row in (
                (server, OFF, {"reasoning_effort": "none"}),
                (server, ON, {"reasoning_effort": "medium"}),
                (server, HIGH, {"reasoning_effort": "high"}),
            )
        ),
        ("openai", BUDGET, {"reasoning_effort": "medium"}),
        ("openai", MAX, {"reasoning_effort": "max"}),
        ("ollama", MAX, {"reasoning_effort": "high"}),
        ("litellm", OFF, {"reasoning_effort": "none", "drop_params": True}),
        ("litellm", BUDGET, {"reasoning_effort": "medium", "drop_params": True}),
        ("openrouter", OFF, {"reasoning": {"enabled": False}}),
        ("openrouter", ON, {"reasoning": {"enabled": True}}),
        ("openrouter", HIGH, {"reasoning": {"effort": "high"}}),
        ("openrouter", MAX, {"reasoning": {"effort": "xhigh"}}),
        ("openrouter", BUDGET, {"reasoning": {"max_tokens": 4000}}),
    ],
)
def test_each_server_hears_its_own_words(server: str, wish: Thinking, said: dict[str, Any]) -> None:
    assert thinking_fields(server, wish)[0] == said


def test_a_wish_that_was_not_made_is_not_sent() -> None:
    for server in ("vllm", "ollama", "openrouter", "openai"):
        assert thinking_fields(server, Thinking(history="keep")) == ({}, [])


def test_the_models_profile_says_what_its_template_calls_it() -> None:
    profile = builtin_book().find("Qwen/Qwen3-235B-A22B")
    assert profile is not None
    fields, _ = thinking_fields("vllm", OFF, profile.template_args)
    assert fields == {"chat_template_kwargs": dict(profile.thinking.off)}


def test_a_budget_that_cannot_be_said_is_noted() -> None:
    for server in ("vllm", "openai", "ollama", "litellm"):
        assert [note.code for note in thinking_fields(server, BUDGET)[1]] == ["upstream.thinking_budget"]
    assert thinking_fields("openrouter", BUDGET)[1] == []


def test_what_the_client_says_to_the_template_itself_wins() -> None:
    conversation = Conversation(
        model="m", messages=(), thinking=OFF, template_args={"enable_thinking": True, "extra": 1}
    )
    body, _ = chat_body(asking(conversation), "m", "reasoning", "vllm")
    assert body["chat_template_kwargs"] == {"enable_thinking": True, "thinking": False, "extra": 1}


def read(*deltas: dict[str, Any]) -> list[Event]:
    reading = ChatReading("E", 0, "events")
    chunks: list[dict[str, Any]] = [{"choices": [{"delta": delta}]} for delta in deltas]
    chunks.append({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    batch = reading.feed(json.dumps(chunks).encode())
    assert isinstance(batch, EventBatch)
    return list(batch.events)


def test_reasoning_details_go_back_as_they_came() -> None:
    pieces = [
        {"type": "reasoning.text", "text": "Let me ", "index": 0, "format": "anthropic-claude-v1", "signature": None},
        {"type": "reasoning.text", "text": "see.", "index": 0},
        {"type": "reasoning.text", "index": 0, "signature": "SIG"},
        {"type": "reasoning.encrypted", "data": "QUJD", "index": 1, "id": "rs_1"},
    ]
    events = read(
        {"reasoning": "Let me ", "reasoning_details": pieces[:1]},
        {"reasoning": "see.", "reasoning_details": pieces[1:2]},
        {"reasoning_details": pieces[2:]},
        {"content": "Hello."},
    )
    assert [type(event) for event in events] == [
        *(BlockOpened, BlockDelta, BlockDelta, BlockClosed),
        *(BlockOpened, BlockDelta, BlockClosed),
    ]
    closed = events[3]
    assert isinstance(closed, BlockClosed)
    thought = ReasoningBlock(text="Let me see.", seal=closed.seal)
    message = Message(role="assistant", blocks=(thought, TextBlock(text="Hello.")))
    body, notes = chat_body(asking(Conversation(model="m", messages=(message,))), "m", "reasoning", "openrouter")
    assert body["messages"] == [
        {
            "role": "assistant",
            "content": "Hello.",
            "reasoning": "Let me see.",
            "reasoning_details": [
                {
                    "type": "reasoning.text",
                    "text": "Let me see.",
                    "index": 0,
                    "format": "anthropic-claude-v1",
                    "signature": "SIG",
                },
                {"type": "reasoning.encrypted", "data": "QUJD", "index": 1, "id": "rs_1"},
            ],
        }
    ]
    assert notes == []


def test_a_thought_in_very_many_pieces_is_read_in_time_that_follows_its_size() -> None:
    """With each piece copied into all before it, this takes minutes."""
    details = Details()
    for _ in range(200_000):
        details.add([{"type": "reasoning.text", "index": 0, "text": "a" * 20, "signature": None}])
    details.add([{"type": "reasoning.text", "index": 0, "signature": "SIG"}, {"type": "other", "text": "b"}])
    text = "a" * 4_000_000
    assert carried(details.carrier()) == [
        {"type": "reasoning.text", "index": 0, "text": text, "signature": "SIG"},
        {"type": "other", "text": "b"},
    ]
    reading = MessagesReading("E")
    signed = {"type": "content_block_delta", "delta": {"type": "signature_delta", "signature": "a" * 20}}
    pieces = json.dumps([signed] * 500).encode()
    for _ in range(400):
        assert reading.feed(pieces) is None
    batch = reading.feed(b'[{"type":"content_block_stop"}]')
    assert isinstance(batch, EventBatch)
    assert batch.events[-1] == BlockClosed(0, "reasoning", text)


def test_a_hidden_thought_is_carried_too() -> None:
    events = read({"reasoning_details": [{"type": "reasoning.encrypted", "data": "QUJD"}]}, {"content": "Hi"})
    closed = next(event for event in events if isinstance(event, BlockClosed))
    assert (closed.kind, carried(closed.seal)) == ("reasoning", [{"type": "reasoning.encrypted", "data": "QUJD"}])


def test_carriers_of_others_are_left_alone() -> None:
    for seal in (None, "", "tw1.abc", "rd1.%%%", "rd1.AAAA", "EqRk..."):
        assert carried(seal) is None
    assert not Details()


def test_order_that_the_wire_cannot_say_is_noted() -> None:
    call = ToolCallBlock(id="c", name="f", arguments="{}")
    thought, said = ReasoningBlock(text="t"), TextBlock(text="s")
    for blocks, codes in (
        ((thought, said, call), []),
        ((thought, call, call), []),
        ((thought, call, thought, call), ["upstream.order"]),
        ((call, said), ["upstream.order"]),
        ((said, thought), ["upstream.order"]),
    ):
        conversation = Conversation(model="m", messages=(Message(role="assistant", blocks=blocks),))
        assert [note.code for note in chat_body(asking(conversation), "m", "reasoning")[1]] == codes
