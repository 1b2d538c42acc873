"""Frames stay in one piece under every way of splitting lines."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from turnwire.protocols.sse import frame, quoted

_TEXT = st.text(max_size=20) | st.text(alphabet="\x85\u2028\u2029\u2027\xc5\x0b\x1c\r\n", max_size=6)


@given(_TEXT)
def test_any_text_is_one_line(text: str) -> None:
    data = quoted(text)
    assert json.loads(data) == text
    assert len(data.decode().splitlines()) == 1


@given(_TEXT)
def test_a_frame_is_two_lines(text: str) -> None:
    lines = frame("name", {"text": text}).decode().splitlines()
    assert lines[0] == "event: name"
    assert json.loads(lines[1].removeprefix("data: ")) == {"text": text}
    assert lines[2:] == [""]
