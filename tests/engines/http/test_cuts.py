"""An engine's answer cut into reads anywhere: its receiver hears the same, whichever way each read is taken."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engines.http.test_frame import ODD, PLAIN, choice, chunked, event

from turnwire.engines.http.completions import CompletionsReading
from turnwire.engines.http.connections import Connections
from turnwire.engines.http.stream import Stream
from turnwire.engines.interface import Completion, EngineError, TokenBatch

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
END = event(choice("", [2], finish_reason="stop")) + event(usage={"prompt_tokens": 3, "completion_tokens": 9})
REST = chunked(END + b"data: [DONE]\n\n") + b"0\r\n\r\n"


class Line:
    """Connections that have one, and that connection: what is sent on it is nobody's business here."""

    used = False
    exchange: Stream | None = None

    def take(self) -> Line:
        return self

    def send(self, request: bytes) -> None: ...

    def resume(self) -> None: ...

    def drop(self) -> None: ...

    def give_back(self) -> None: ...


class Heard:
    """A receiver; `said` is all that it was told, however it was cut."""

    def __init__(self) -> None:
        self.text, self.ids, self.batches = "", [], 0
        self.end: Completion | tuple[str, str] | None = None

    def tokens(self, batch: TokenBatch) -> None:
        assert self.end is None
        self.text += batch.text
        self.ids += batch.ids
        self.batches += 1

    def events(self, batch: Any) -> None:
        raise AssertionError(batch)

    def done(self, completion: Completion) -> None:
        assert self.end is None
        self.end = completion

    def failed(self, error: EngineError) -> None:
        assert self.end is None
        self.end = error.kind, str(error)

    @property
    def said(self) -> tuple[Any, ...]:
        return self.text, self.ids, self.end


class CountingReading(CompletionsReading):
    lone = 0

    def chunk(self, data: bytes) -> TokenBatch | None:
        batch = super().chunk(data)
        self.lone += batch is not None
        return batch


def hear(reads: Sequence[bytes]) -> tuple[Heard, CountingReading]:
    async def run() -> tuple[Heard, CountingReading]:
        line, receiver, reading = Line(), Heard(), CountingReading("E", 3)
        stream = Stream("E", cast(Connections, line), b"", reading, receiver)
        stream.begin()
        for read in reads:
            stream.received(read)
        if receiver.end is None:
            stream.lost(None)
        return receiver, reading

    return asyncio.run(run())


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    places = sorted({place % (len(data) + 1) for place in places})
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True) if a < b]


# Odd ones, of which none ends the stream.
MEANT = ("no choice", "two choices", "another id", "other spacing", "log probabilities", "a comment", "a named event")
EVENTS = st.lists(
    st.sampled_from([PLAIN, PLAIN, PLAIN, event(choice("\u00e9 \u2028", [7, 8])), *(ODD[name] for name in MEANT)]),
    max_size=8,
)


@given(EVENTS, st.lists(st.integers(0, 1 << 16), max_size=12), st.booleans())
def test_an_answer_cut_anywhere_says_the_same(events: list[bytes], places: list[int], whole: bool) -> None:
    answer = b"".join((HEAD, *map(chunked, events), REST if whole else b""))
    by_byte, _ = hear([answer[at : at + 1] for at in range(len(answer))])
    by_chunk, _ = hear([HEAD, *map(chunked, events), *([REST] if whole else [])])
    assert hear(cut(answer, places))[0].said == by_chunk.said == by_byte.said


def test_a_token_in_each_read_is_taken_as_a_chunk_and_a_cut_one_is_not() -> None:
    lone = chunked(PLAIN)
    reads = [HEAD + lone, lone, lone, lone[:30], lone[30:], lone, lone + lone, lone, lone, REST]
    told, reading = hear(reads)
    assert told.text == " a" * 9
    assert told.batches == 8
    assert reading.lone == 4
    assert isinstance(told.end, Completion)


@pytest.mark.parametrize("read", [b"zz\r\n", b"5\r\n12345x\r\n", b"\r\n"])
def test_what_follows_a_lone_chunk_is_still_looked_at(read: bytes) -> None:
    told, _ = hear([HEAD, chunked(PLAIN), chunked(PLAIN), read])
    assert told.text == " a a"
    assert told.end is not None
    assert not isinstance(told.end, Completion)
