"""Threads over a store: the whole conversation comes back, or the client is told to repeat it."""

from __future__ import annotations

from typing import Any

import pytest

from turnwire.protocols.anthropic import Reply, ThreadRecord, continue_thread, error_reply, keep_thread, resume_thread
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


class Shelf:
    """A store in a dictionary."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, str], bytes] = {}

    async def get(self, space: str, key: str) -> bytes | None:
        return self.entries.get((space, key))

    async def put(self, space: str, key: str, value: bytes) -> None:
        self.entries[space, key] = value

    async def delete(self, space: str, key: str) -> bool:
        return self.entries.pop((space, key), None) is not None


def going_on(previous: str, content: Any, **fields: Any) -> Inbound:
    thread = {"type": "continue", "previous_message_id": previous}
    return request(thread=thread, messages=[{"role": "user", "content": content}], **fields)


def test_the_seal_behind_a_turn_stays_behind_it() -> None:
    reply = Reply()
    reply.feed([BlockOpened(0, "text"), BlockDelta(0, "Hi"), BlockClosed(0, "text"), SealCarried(-1, "seal")])
    assert [type(block) for block in reply.message().blocks] == [TextBlock, ReasoningBlock]


async def test_three_turns_over_a_store() -> None:
    shelf = Shelf()
    first = await resume_thread(request(system="s", tools=TOOLS, thread={"type": "create"}), shelf, "t")
    reply = Reply()
    reply.feed(INTERLEAVED)
    await keep_thread(first, "one", reply.message(), shelf, "t")

    results = [{"type": "tool_result", "tool_use_id": f"toolu{number}", "content": "x"} for number in (4, 1)]
    second = await resume_thread(going_on("msg_one", results), shelf, "t")
    assert [message.role for message in second.conversation.messages] == ["system", "user", "assistant", "user"]
    assert second.conversation.messages[2] == reply.message()
    names = [block.name for block in second.conversation.messages[3].blocks if isinstance(block, ToolResultBlock)]
    assert names == ["Read", "Read"]
    assert second.conversation.tools == (Tool(name="Read", schema={"type": "object"}),)

    answer = Message(role="assistant", blocks=(TextBlock(text="done"),))
    await keep_thread(second, "two", answer, shelf, "t")
    assert [key for _, key in shelf.entries] == ["msg_two"]
    third = await resume_thread(going_on("msg_two", "thanks"), shelf, "t")
    assert third.conversation.messages[:5] == (*second.conversation.messages, answer)


async def test_a_thread_belongs_to_its_tenant() -> None:
    shelf = Shelf()
    await keep_thread(request(thread={"type": "create"}), "one", Message(role="assistant", blocks=()), shelf, "a")
    with pytest.raises(TurnFailure) as caught:
        await resume_thread(going_on("msg_one", "x"), shelf, "b")
    assert caught.value.code == "thread_not_found"


async def test_an_unreadable_record_is_lost() -> None:
    shelf = Shelf()
    shelf.entries["t/threads", "msg_one"] = b"from another time"
    with pytest.raises(TurnFailure) as caught:
        await resume_thread(going_on("msg_one", "x"), shelf, "t")
    reply = error_reply(caught.value)
    assert reply.status == 404


async def test_requests_without_a_thread_touch_no_store() -> None:
    shelf = Shelf()
    plain = request()
    assert await resume_thread(plain, shelf, "t") is plain
    await keep_thread(plain, "one", Message(role="assistant", blocks=()), shelf, "t")
    assert shelf.entries == {}
    assert continue_thread(plain, None) is plain


def test_a_forced_tool_is_checked_against_the_threads_tools() -> None:
    short = going_on("m", "x", tool_choice={"type": "tool", "name": "Read"})
    with pytest.raises(TurnFailure) as caught:
        continue_thread(short, ThreadRecord(messages=()))
    assert caught.value.param == "tool_choice.name"
    joined = continue_thread(short, ThreadRecord(messages=(), tools=(Tool(name="Read"),)))
    assert joined.conversation.tool_choice == ToolChoice(mode="named", name="Read")
