"""Files that are no captures, were damaged or cut short, or still hold a secret."""

from __future__ import annotations

import gzip
import io

import pytest
import zstandard

from turnwire.capture import reading
from turnwire.capture.format import CapturedRequest, CaptureError, ParsedBlock, encode_line
from turnwire.capture.reading import read_capture
from turnwire.capture.redaction import Redactor, secrets_in

from .made import head, turn


def _written(*, gzipped: bool = False) -> bytes:
    data = encode_line(head()) + encode_line(turn("a", prompt=[1], output=[2])) * 40
    return gzip.compress(data) if gzipped else zstandard.ZstdCompressor().compress(data)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not one whole line|does not have one whole line"),
        (b"\x00" * 99 + b"\n", "not JSON"),
        (b'{"type":"turn","x":"\xff"}\n', "not part of a capture|not JSON"),
        (b"[" * 100_000 + b"\n", "not part of a capture|not JSON"),
        (b"7\n", "not part of a capture"),
        (b'{"type":"head","format":99}\n', "format 99"),
        (_written()[:30] + b"\xff\xff\xff" + _written()[33:], "damaged after"),
        (_written(gzipped=True)[:40] + b"\x00" * 9 + _written(gzipped=True)[49:], "damaged after|not JSON"),
    ],
)
def test_a_file_that_is_none_or_was_damaged_is_refused_in_words(data: bytes, said: str) -> None:
    with pytest.raises(CaptureError, match=said):
        read_capture(io.BytesIO(data))


def test_a_file_that_was_cut_short_is_read_as_far_as_it_goes() -> None:
    data = encode_line(head()) + encode_line(turn("a", prompt=[1], output=[2])) * 2
    assert len(read_capture(io.BytesIO(data[:-5])).turns) == 1
    assert len(read_capture(io.BytesIO(gzip.compress(data)[:-6])).turns) <= 2


def test_a_line_without_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_LONGEST", 1 << 20)
    bomb = zstandard.ZstdCompressor().compress(encode_line(head()) + b"a" * (8 << 20))
    with pytest.raises(CaptureError, match="Line 2 has more than 1 MiB"):
        read_capture(io.BytesIO(bomb))


@pytest.mark.parametrize("name", ["x-auth-token", "x-amz-security-token", "openai-api-key", "x-functions-key", "auth"])
def test_headers_that_are_secret_by_their_name(name: str) -> None:
    made = turn("a", prompt=[1], output=[2], request=CapturedRequest(headers={name: "hunter2"}, body="{}"))
    assert secrets_in(made) == [f"header {name}"]
    clean = Redactor().turn(made, lambda _: "", lambda ids: [""] * len(ids))
    assert "hunter2" not in repr(clean)
    assert secrets_in(clean) == []


def test_a_secret_in_what_was_parsed_is_found_on_load() -> None:
    leaked = turn("a", prompt=[1], output=[2], blocks=(ParsedBlock(kind="text", text="sk-" + "a1" * 16),))
    with pytest.raises(CaptureError, match="looks like a secret"):
        read_capture(io.BytesIO(encode_line(head()) + encode_line(leaked)))
