"""What a model or a server writes may be nested too deep, or be no UTF-8: nobody who decodes it fails by that."""

from __future__ import annotations

import pytest

from turnwire.agent import stitching
from turnwire.agent.frames import FrameError, FrameReader
from turnwire.capture.parsing import blocks_of
from turnwire.engines.upstream.events import BlockWriter
from turnwire.protocols.reply import Reply
from turnwire.turns import BlockDelta, BlockOpened, ToolCallClosed

DEEP = "[" * 1500 + "]" * 1500


def test_arguments_that_are_too_deep_are_text_in_a_capture() -> None:
    reply = Reply()
    reply.feed([BlockOpened(0, "tool_call", "ls", "c"), BlockDelta(0, DEEP), ToolCallClosed(0, "ls", DEEP)])
    assert [block.arguments for block in blocks_of(reply)] == [DEEP]


def test_arguments_that_are_too_deep_are_malformed_from_a_server_that_parses() -> None:
    writer = BlockWriter()
    writer.call("a", name="ls", arguments=DEEP)
    writer.close()
    closed = writer.events[-1]
    assert isinstance(closed, ToolCallClosed)
    assert closed.malformed


def test_arguments_that_are_too_deep_are_not_whole_to_the_agent() -> None:
    assert not stitching._is_whole(DEEP)


@pytest.mark.parametrize("payload", [DEEP.encode(), b'"\xff"', b"{"], ids=["deep", "not UTF-8", "cut"])
def test_an_event_that_cannot_be_read_is_named_by_the_agent(payload: bytes) -> None:
    with pytest.raises(FrameError):
        FrameReader().feed(b"data: " + payload + b"\n\n")
