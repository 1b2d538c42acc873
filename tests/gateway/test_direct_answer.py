"""What a streamed answer puts on its connection, and in which order."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from turnwire.gateway.door.exchange import Exchange
from turnwire.gateway.transports.sinks import DirectSink

HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncache-control: no-cache\r\nx-accel-buffering: no\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
END = b"0\r\n\r\n"


def opened(written: list[bytes]) -> DirectSink:
    """A sink on a connection of which only what is written is looked at."""
    connection: Any = SimpleNamespace(
        loop=asyncio.get_running_loop(),
        transport=SimpleNamespace(write=lambda data: data and written.append(data)),
        answered=lambda exchange: None,
    )
    sink = DirectSink(Exchange(connection, method="POST", version="1.1", lasts=True), "text/plain", list)
    sink.open()
    return sink


@pytest.mark.parametrize("waits", [False, True])
async def test_an_answer_without_a_body_begins_with_its_head(waits: bool) -> None:
    written: list[bytes] = []
    sink = opened(written)
    if waits:
        await asyncio.sleep(0)
        assert written == [HEAD], "the head waits for nothing but the end of its step"
    await sink.close()
    await asyncio.sleep(0)
    assert written == [HEAD, END]


async def test_head_and_first_words_are_one_write() -> None:
    written: list[bytes] = []
    sink = opened(written)
    sink.write(b"one")
    sink.write(b"two")
    await sink.close()
    await asyncio.sleep(0)
    assert written == [HEAD + b"3\r\none\r\n", b"3\r\ntwo\r\n", END]


async def test_last_words_and_end_are_one_write() -> None:
    written: list[bytes] = []
    sink = opened(written)
    sink.write(b"one")
    sink.write_last(b"two")
    await sink.close()
    assert written == [HEAD + b"3\r\none\r\n", b"3\r\ntwo\r\n" + END]
