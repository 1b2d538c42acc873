"""A turn's events fold into one reply, whatever the batches they come in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from turnwire.protocols.reply import Reply, ReplyBlock
from turnwire.turns import (
    BlockClosed,
    BlockDelta,
    BlockOpened,
    Event,
    Finished,
    Message,
    ReasoningBlock,
    SealCarried,
    TextBlock,
    TokensScored,
    ToolCallBlock,
    ToolCallClosed,
    Usage,
)

SCORED = TokensScored((("Hi", -0.1, ()),))
EVENTS: list[Event] = [
    BlockOpened(0, "reasoning"),
    BlockDelta(0, "why "),
    BlockDelta(0, "not"),
    BlockClosed(0, "reasoning", "s1"),
    BlockOpened(1, "text"),
    BlockDelta(1, "\n"),
    BlockClosed(1, "text"),
    BlockOpened(2, "tool_call", "ls", "c1"),
    BlockDelta(2, '{"a":'),
    BlockDelta(2, "1}"),
    ToolCallClosed(2, "ls", '{"a":1}', "c1"),
    BlockOpened(3, "text"),
    BlockDelta(3, "Hi"),
    SCORED,
    BlockClosed(3, "text"),
    BlockOpened(4, "tool_call", "rm", "c2"),
    ToolCallClosed(4, "rm", "not json", "c2", malformed=True),
    BlockOpened(5, "text"),
    BlockDelta(5, "cut"),
    SealCarried(-1, "s2"),
    Usage(7, 3, 2, 1),
    Finished("length"),
]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=30))
def test_the_reply_does_not_depend_on_the_batches(sizes: list[int]) -> None:
    reply, at = Reply(), 0
    for size in [*sizes, len(EVENTS)]:
        reply.feed(EVENTS[at : at + size])
        at += size
    assert reply.blocks == [
        ReplyBlock("reasoning", "why not", "s1"),
        ReplyBlock("text", "\n"),
        ReplyBlock("tool_call", '{"a":1}', "", "ls", "c1"),
        ReplyBlock("text", "Hi"),
        ReplyBlock("tool_call", "not json", "", "rm", "c2", malformed=True),
        ReplyBlock("seal", "", "s2"),
    ]
    assert (reply.usage, reply.finished, reply.scores) == (Usage(7, 3, 2, 1), Finished("length"), [SCORED])


def test_what_a_client_would_send_back() -> None:
    reply = Reply()
    reply.feed(EVENTS)
    assert reply.message() == Message(
        role="assistant",
        blocks=(
            ReasoningBlock(text="why not", seal="s1"),
            ToolCallBlock(id="c1", name="ls", arguments='{"a":1}'),
            TextBlock(text="Hi"),
            ToolCallBlock(id="c2", name="rm", arguments="not json"),
            ReasoningBlock(text="", seal="s2", redacted=True),
        ),
    )
    assert reply.joined("text") == "\nHi"
    assert [call.name for call in reply.calls] == ["ls", "rm"]
