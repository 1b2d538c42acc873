"""Long pieces of an answer are written as they are, and a long opening leaves with the words behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from turnwire.gateway.door.exchange import Exchange

LONG = b"i" * 200_000


class Connection:
    """A client's connection that notes what is written, and how it was cut."""

    stuck = False

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.transport: Any = self
        self.writes: list[bytes] = []
        self.pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.writelines((data,))

    def writelines(self, pieces: Iterable[bytes]) -> None:
        written = list(pieces)
        self.pieces += written
        self.writes.append(b"".join(written))

    def answered(self, exchange: Exchange) -> None:
        """Nothing follows."""


def opened(version: str = "1.1") -> tuple[Connection, Exchange]:
    connection = Connection()
    exchange = Exchange(connection, method="POST", version=version, lasts=False)  # type: ignore[arg-type]
    exchange.start([(b"x", b"y")])
    return connection, exchange


@pytest.mark.parametrize("version", ["1.1", "1.0"])
async def test_a_long_opening_is_one_write_with_what_is_said_in_the_same_step(version: str) -> None:
    connection, exchange = opened(version)
    exchange.write(LONG)
    assert not connection.writes
    exchange.write(b"words")
    (first,) = connection.writes
    assert first.startswith(b"HTTP/1.1 200 OK\r\n")
    assert first.index(LONG) < first.index(b"words")
    # Not copied: the very object is handed on.
    assert any(piece is LONG for piece in connection.pieces)
    exchange.write_last(LONG)
    exchange.finish()
    body = b"".join(connection.writes).partition(b"\r\n\r\n")[2]
    framed = b"30d40\r\n%b\r\n" % LONG
    whole = framed + b"5\r\nwords\r\n" + framed + b"0\r\n\r\n"
    assert body == (whole if version == "1.1" else LONG + b"words" + LONG)


async def test_a_long_opening_alone_leaves_at_the_end_of_its_step() -> None:
    connection, exchange = opened()
    exchange.write(LONG)
    await asyncio.sleep(0)
    assert len(connection.writes) == 1
    assert LONG in connection.writes[0]
    exchange.write(LONG)
    assert len(connection.writes) == 2


async def test_a_long_opening_for_a_client_that_left_is_dropped() -> None:
    connection, exchange = opened()
    exchange.write(LONG)
    exchange.leave()
    await asyncio.sleep(0)
    exchange.write(LONG)
    exchange.finish()
    assert not connection.writes
