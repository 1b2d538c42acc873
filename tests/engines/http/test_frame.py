"""A completions stream read by its frame: what comes out is what its payloads say, and no odd event is passed over."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.engines.http.completions import CompletionsReading
from turnwire.engines.http.frame import frame_of
from turnwire.engines.http.sse import EventReader
from turnwire.engines.interface import TokenBatch

HEAD = {"id": "cmpl-1", "object": "text_completion", "created": 7, "model": "m {}]"}
TEXTS = st.text(max_size=5) | st.sampled_from(['"', "}]}", "]}\n\ndata: {", '{"id"', "\\", "\u2028", '"choices":[{'])


def choice(text: str, ids: Sequence[int], **more: Any) -> dict[str, Any]:
    said = {"index": 0, "text": text, "logprobs": None, "finish_reason": None, "stop_reason": None}
    return {**said, "token_ids": list(ids), "prompt_token_ids": None, **more}


def event(*choices: dict[str, Any], head: dict[str, Any] = HEAD, **after: Any) -> bytes:
    payload = {**head, "choices": choices, **after}
    return b"data: " + json.dumps(payload, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


PLAIN = event(choice(" a", [264]))
LOGPROBS = {"tokens": [" b"], "token_logprobs": [-0.5], "top_logprobs": [{" b": -0.5}]}
ODD = {
    "the end": event(choice("", [9], finish_reason="stop")),
    "usage": event(usage={"prompt_tokens": 3, "completion_tokens": 2}),
    "an error": b'data: {"error":{"message":"boom","code":500}}\n\n',
    "a failure beside the choice": event(choice("x", [1]), message="boom", code=500),
    "no choice": event(),
    "two choices": event(choice("x", [1]), choice("y", [2], index=1)),
    "another id": event(choice("x", [1]), head={**HEAD, "id": "cmpl-2"}),
    "other spacing": b'data: {"choices": [{"text": "x", "token_ids": [1]}]}\n\n',
    "log probabilities": event(choice(" b", [5], logprobs=LOGPROBS)),
    "a comment": b": ping\n\n",
    "a named event": b"event: x\n" + PLAIN,
    "the mark of the end": b"data: [DONE]\n\n",
    "a wrong type": event(choice("x", [1]) | {"text": 5}),
    "not JSON": PLAIN.replace(b"[264]", b"[264"),
    "too deep": PLAIN.replace(b"[264]", b"[264]}"),
    "no UTF-8": PLAIN.replace(b" a", b"\xff"),
}
SPLIT = (PLAIN.replace(b"null}", b'null,"z":[{}'), PLAIN.replace(b'{"index"', b'{}]},{"index"'))
"""Two events that are malformed, each by itself, and are not if they are joined."""


class Told:
    """What a stream said in all. `framed` counts the reads that were taken by their frame, `lone` those that were taken
    as one chunk."""

    def __init__(self, reads: Sequence[bytes], *, by_frame: bool, by_chunk: bool = False) -> None:
        self.reading = CompletionsReading("E", 3)
        self.batches: list[TokenBatch] = []
        self.malformed = False
        self.framed = self.lone = 0
        events = EventReader()
        for read in reads:
            batch = self.reading.chunk(chunked(read)) if by_chunk else None
            if batch is not None:
                self.lone += 1
                self.batches.append(batch)
                continue
            batch = self.reading.running(read) if by_frame else None
            self.framed += batch is not None
            try:
                if batch is None and (array := events.array(read)) is not None:
                    batch = self.reading.feed(array)
            except (msgspec.DecodeError, UnicodeDecodeError):
                self.malformed = True
                return
            if batch is not None:
                self.batches.append(batch)

    @property
    def all(self) -> tuple[Any, ...]:
        error = self.reading.error
        return self.batches, self.malformed, self.reading.close(), error and (error.kind, str(error))


@given(st.lists(st.lists(st.tuples(TEXTS, st.lists(st.integers(0, 2**32), max_size=3)), min_size=1), min_size=1))
def test_all_that_has_the_frame_is_read_by_it(reads: list[list[tuple[str, list[int]]]]) -> None:
    stream = [PLAIN, *(b"".join(event(choice(text, ids)) for text, ids in read) for read in reads)]
    told = Told(stream, by_frame=True)
    assert told.all == Told(stream, by_frame=False).all
    assert told.framed == 1 + sum(any(text or ids for text, ids in read) for read in reads)
    chunked = Told(stream, by_frame=True, by_chunk=True)
    assert chunked.all == told.all
    alone = [read[0] for read in reads if len(read) == 1]
    assert chunked.lone == sum(bool(text or ids) for text, ids in alone)


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("around", [(), (PLAIN,), (PLAIN, PLAIN)])
def test_an_odd_event_says_what_its_payload_says(name: str, around: Sequence[bytes]) -> None:
    beside = b"".join(around)
    for read in (beside + ODD[name], ODD[name] + beside, beside + ODD[name] + beside):
        for stream in ([read], [PLAIN, read], [PLAIN, read, PLAIN], [read, PLAIN]):
            assert Told(stream, by_frame=True).all == Told(stream, by_frame=False).all
            assert Told(stream, by_frame=True, by_chunk=True).all == Told(stream, by_frame=False).all


@pytest.mark.parametrize(
    "data",
    [
        chunked(PLAIN + PLAIN),
        chunked(PLAIN)[:-1],
        chunked(PLAIN) + b"0",
        chunked(PLAIN) * 2,
        b"0" + chunked(PLAIN),
        chunked(PLAIN).replace(b"\r\n", b";a=b\r\n", 1),
        chunked(PLAIN[:-1]),
        chunked(b":\n\n" + PLAIN),
        chunked(event(choice("x", [1], finish_reason="stop"))),
        b"\r\n",
        b"5\n",
        b"",
    ],
)
def test_only_a_whole_chunk_with_one_plain_event_is_taken_as_one(data: bytes) -> None:
    reading = CompletionsReading("E", 3)
    assert reading.chunk(chunked(PLAIN)) is None
    assert reading.running(PLAIN) is not None
    assert reading.chunk(chunked(PLAIN)) == TokenBatch(" a", (264,))
    assert reading.chunk(data) is None


def test_a_frame_holds_nothing_that_matters() -> None:
    assert frame_of(PLAIN) is not None
    assert frame_of(PLAIN * 100) is not None
    assert frame_of(event(choice("x", [1]), usage=None, service_tier=None)) is not None
    for name in ("usage", "an error", "a failure beside the choice", "no choice", "other spacing", "a comment"):
        assert frame_of(ODD[name]) is None
    assert frame_of(event(choice("x", [1]), head={**HEAD, "error": "boom"})) is None
    assert frame_of(event(choice("x", [1]), head={**HEAD, "id": 'a"b'})) is None


@pytest.mark.parametrize("read", [b"".join(SPLIT), PLAIN + b"".join(SPLIT) + PLAIN])
def test_malformed_events_do_not_mend_each_other_by_the_frame(read: bytes) -> None:
    reading = CompletionsReading("E", 3)
    assert reading.running(PLAIN) is not None
    assert reading.running(read) is None
