"""Frames stay in one piece under every way of splitting lines, and both framings carry the same events."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.protocols import anthropic, chat, completions, responses
from turnwire.protocols.framing import LINES, SSE, Framing, quoted
from turnwire.protocols.wire import Encoder, TurnFacts
from turnwire.turns import (
    BlockClosed,
    BlockDelta,
    BlockOpened,
    Event,
    Finished,
    Sampling,
    SealCarried,
    ToolCallClosed,
    Usage,
)

_TEXT = st.text(max_size=20) | st.text(alphabet="\x85\u2028\u2029\u2027\xc5\x0b\x1c\r\n", max_size=6)
_FACTS = TurnFacts(
    turn_id="t1", model="m\u2028", created=1, dispatch=True, diagnostics={"type": "unavailable", "why": "\x85"}
)


def _anthropic(framing: Framing) -> Encoder:
    return anthropic.StreamEncoder(_FACTS, anthropic.Echo(thinking=True, diagnostics=True), framing=framing)


def _chat(framing: Framing) -> Encoder:
    return chat.StreamEncoder(_FACTS, chat.Echo(usage=True, dispatch="delta"), framing=framing)


def _responses(framing: Framing) -> Encoder:
    body = json.dumps({"model": "m", "input": "x", "instructions": "a\u2028b", "user": "\x85"}).encode()
    return responses.stream_encoder(_FACTS, responses.decode(body, {}).echo, framing=framing)


def _completions(framing: Framing) -> Encoder:
    asked = completions.Asked(model="m", prompts=("p\u2029",), sampling=Sampling(), echo=True, usage=True)
    return completions.StreamEncoder(completions.SharedAnswer(_FACTS, asked), 0, "p\u2029", framing=framing)


ENCODERS: list[Callable[[Framing], Encoder]] = [_anthropic, _chat, _responses, _completions]


def events(text: str) -> Sequence[Event]:
    arguments = json.dumps({"q": text}, ensure_ascii=False)
    return (
        BlockOpened(0, "reasoning"),
        BlockDelta(0, f"so {text}"),
        BlockClosed(0, "reasoning", "seal"),
        BlockOpened(1, "text"),
        BlockDelta(1, f"well {text}"),
        BlockClosed(1, "text"),
        BlockOpened(2, "tool_call", f"look{text}", "call1"),
        BlockDelta(2, arguments),
        ToolCallClosed(2, f"look{text}", arguments, "call1"),
        SealCarried(3, "rest"),
        Usage(5, 1, 4, 1),
        Finished("tool_calls"),
    )


def whole(encoder: Encoder, text: str) -> bytes:
    return encoder.start(Usage(5)) + encoder.keepalive() + encoder.feed(events(text))


@given(_TEXT)
def test_any_text_is_one_line(text: str) -> None:
    data = quoted(text)
    assert json.loads(data) == text
    assert len(data.decode().splitlines()) == 1


@given(_TEXT)
def test_a_frame_is_two_lines(text: str) -> None:
    lines = SSE.event("name", {"text": text}).decode().splitlines()
    assert lines[0] == "event: name"
    assert json.loads(lines[1].removeprefix("data: ")) == {"text": text}
    assert lines[2:] == [""]


@pytest.mark.parametrize("make", ENCODERS)
@given(text=_TEXT)
def test_every_line_of_a_stream_is_a_field_of_its_framing(make: Callable[[Framing], Encoder], text: str) -> None:
    lines = whole(make(SSE), text).decode().splitlines()
    assert all(line == "" or line.startswith(("event: ", "data: ", ": ")) for line in lines)


@pytest.mark.parametrize("make", ENCODERS)
@given(text=_TEXT)
def test_lines_carry_the_events_of_the_sse_stream(make: Callable[[Framing], Encoder], text: str) -> None:
    streamed = [
        json.loads(line.removeprefix("data: "))
        for line in whole(make(SSE), text).decode().splitlines()
        if line.startswith("data: ") and line != "data: [DONE]"
    ]
    lines = [json.loads(line) for line in whole(make(LINES), text).decode().splitlines()]
    assert lines == streamed
    assert len(lines) > 3
