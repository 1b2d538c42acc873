"""Threads over a store: the whole conversation comes back, or the client is told to repeat it."""

from __future__ import annotations

from typing import Any

import pytest

from turnwire.protocols.anthropic import (
    ThreadRecord,
    continue_thread,
    error_reply,
    kept_thread,
    read_record,
    thread_key,
)
from turnwire.protocols.reply import Reply
from turnwire.protocols.wire import Inbound, TurnFailure
from turnwire.turns import (
    BlockClosed,
    BlockDelta,
    BlockOpened,
    Message,
    ReasoningBlock,
    SealCarried,
    TextBlock,
    Tool,
    ToolChoice,
    ToolResultBlock,
)

from .pipeline import INTERLEAVED, request

TOOLS = [{"name": "Read", "input_schema": {"type": "object"}}]


def going_on(previous: str, content: Any, **fields: Any) -> Inbound:
    thread = {"type": "continue", "previous_message_id": previous}
    return request(thread=thread, messages=[{"role": "user", "content": content}], **fields)


def test_the_seal_behind_a_turn_stays_behind_it() -> None:
    reply = Reply()
    reply.feed([BlockOpened(0, "text"), BlockDelta(0, "Hi"), BlockClosed(0, "text"), SealCarried(-1, "seal")])
    assert [type(block) for block in reply.message().blocks] == [TextBlock, ReasoningBlock]


def test_three_turns() -> None:
    first = request(system="s", tools=TOOLS, thread={"type": "create"})
    assert thread_key(first) is None
    reply = Reply()
    reply.feed(INTERLEAVED)
    kept = kept_thread(first, "one", reply.message())
    assert kept is not None
    assert (kept.key, kept.replaces) == ("msg_one", None)

    results = [{"type": "tool_result", "tool_use_id": f"toolu{number}", "content": "x"} for number in (4, 1)]
    asked = going_on("msg_one", results)
    assert thread_key(asked) == "msg_one"
    second = continue_thread(asked, read_record(kept.value))
    assert [message.role for message in second.conversation.messages] == ["system", "user", "assistant", "user"]
    assert second.conversation.messages[2] == reply.message()
    names = [block.name for block in second.conversation.messages[3].blocks if isinstance(block, ToolResultBlock)]
    assert names == ["Read", "Read"]
    assert second.conversation.tools == (Tool(name="Read", schema={"type": "object"}),)

    answer = Message(role="assistant", blocks=(TextBlock(text="done"),))
    kept = kept_thread(second, "two", answer)
    assert kept is not None
    assert (kept.key, kept.replaces) == ("msg_two", "msg_one")
    third = continue_thread(going_on("msg_two", "thanks"), read_record(kept.value))
    assert third.conversation.messages[:5] == (*second.conversation.messages, answer)


@pytest.mark.parametrize("data", [None, b"from another time"])
def test_a_record_that_is_gone_or_unreadable_is_lost(data: bytes | None) -> None:
    with pytest.raises(TurnFailure) as caught:
        continue_thread(going_on("msg_one", "x"), read_record(data))
    assert caught.value.code == "thread_not_found"
    assert error_reply(caught.value).status == 404


def test_requests_without_a_thread_need_and_keep_nothing() -> None:
    plain = request()
    assert thread_key(plain) is None
    assert kept_thread(plain, "one", Message(role="assistant", blocks=())) is None
    assert continue_thread(plain, None) is plain


def test_a_forced_tool_is_checked_against_the_threads_tools() -> None:
    short = going_on("m", "x", tool_choice={"type": "tool", "name": "Read"})
    with pytest.raises(TurnFailure) as caught:
        continue_thread(short, ThreadRecord(messages=()))
    assert caught.value.param == "tool_choice.name"
    joined = continue_thread(short, ThreadRecord(messages=(), tools=(Tool(name="Read"),)))
    assert joined.conversation.tool_choice == ToolChoice(mode="named", name="Read")
