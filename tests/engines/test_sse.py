"""The event reader: any cut of the bytes gives the same payloads, whatever dialect of event stream they are in."""

from __future__ import annotations

import json
import random
from itertools import pairwise

import pytest

from turnwire.engines.http import sse
from turnwire.engines.http.sse import EventReader
from turnwire.engines.interface import EngineError


def read(data: bytes, cuts: list[int]) -> tuple[list[object], bool]:
    reader = EventReader()
    payloads: list[object] = []
    edges = [0, *cuts, len(data)]
    for start, end in pairwise(edges):
        payloads += json.loads(reader.array(reader.feed(data[start:end])) or b"[]")
    payloads += json.loads(reader.array(reader.finish()) or b"[]")
    return payloads, reader.done


STREAMS = {
    "plain": (b'data: {"a":1}\n\ndata: {"b":"\xe6\x97\xa5"}\n\ndata: [DONE]\n\n', [{"a": 1}, {"b": "日"}], True),
    "crlf": (b'data: {"a":1}\r\n\r\ndata: {"b":2}\r\n\r\ndata: [DONE]\r\n\r\n', [{"a": 1}, {"b": 2}], True),
    "comments": (b': ping\n\ndata: {"a":1}\n\n: ping\n\ndata: {"b":2}\n\n', [{"a": 1}, {"b": 2}], False),
    "named": (b'event: x\ndata: {"a":1}\n\nevent: y\nid: 7\ndata: {"b":2}\n\n', [{"a": 1}, {"b": 2}], False),
    "no space": (b'data:{"a":1}\n\ndata:[DONE]\n\n', [{"a": 1}], True),
    "two data lines": (b'data: {"a":\ndata: 1}\n\n', [{"a": 1}], False),
    "error field": (b'data: {"a":1}\n\nerror: {"code":500}\n\n', [{"a": 1}, {"error": {"code": 500}}], False),
    "no last blank line": (b'data: {"a":1}\n\ndata: {"b":2}\n', [{"a": 1}, {"b": 2}], False),
    "newlines escaped": (b'data: {"a":"\\n\\ndata: x"}\n\n', [{"a": "\n\ndata: x"}], False),
    "signs of life": (b'data: \n\ndata: {"a":1}\n\ndata: \n\ndata: {"b":2}\n\ndata: \n\n', [{"a": 1}, {"b": 2}], False),
    "byte order mark": (b'\xef\xbb\xbfdata: {"a":1}\n\ndata: {"b":2}\n\n', [{"a": 1}, {"b": 2}], False),
    "done then nothing": (b"data: [DONE]\n\n", [], True),
    "empty": (b"", [], False),
}


@pytest.mark.parametrize("name", STREAMS)
def test_any_cut_is_the_same_stream(name: str) -> None:
    data, payloads, done = STREAMS[name]
    assert read(data, []) == (payloads, done)
    assert read(data, list(range(1, len(data)))) == (payloads, done)
    dice = random.Random(name)
    for _ in range(200):
        cuts = sorted(dice.sample(range(len(data) + 1), min(3, len(data))))
        assert read(data, cuts) == (payloads, done), cuts


def test_all_events_of_one_read_are_one_array() -> None:
    reader = EventReader()
    array = reader.array(reader.feed(b'data: {"a":1}\n\n' * 500))
    assert array is not None
    assert len(json.loads(array)) == 500


def test_an_event_without_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "_LIMIT", 1000)
    reader = EventReader()

    def flood() -> None:
        for _ in range(100):
            reader.feed(b"data: " + b"x" * 100)

    with pytest.raises(EngineError, match="event of more than"):
        flood()
