"""Several turns of one request, run to their common end: `n` choices, or a list of prompts.

Promise: they share one answer and one end; if one of them fails or the client leaves, all of them stop, and a failure
after the first byte is still reported as the API does it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from turnwire.gateway.turns.sink import Reader, Sink
from turnwire.gateway.turns.turn import Turn
from turnwire.gateway.turns.watching import Reporting, run_watched
from turnwire.protocols.wire import TurnFailure

__all__ = ["SharedSink", "run_side_by_side"]


async def run_side_by_side(gateway: Reporting, turns: Sequence[Turn]) -> bool:
    """Run the turns; whether the answer may end cleanly. Raises TurnFailure only while nothing was sent."""
    try:
        async with asyncio.TaskGroup() as group:
            for turn in turns:
                group.create_task(_run(gateway, turn))
    except ExceptionGroup as failures:
        first = failures.exceptions[0]
        told = any(turn.opened and turn.outcome.failure is first for turn in turns)
        opened = [turn for turn in turns if turn.opened]
        if not isinstance(first, TurnFailure) or not opened:
            raise first from None
        if not told:
            data = opened[0].encoder.fail(first)
            if not data:
                return False
            opened[0].sink.write(data)
    return not any(turn.cut for turn in turns)


async def _run(gateway: Reporting, turn: Turn) -> None:
    outcome = await run_watched(gateway, turn)
    if outcome.failure is not None:
        # Told by the turn itself; raised so that the others stop.
        raise outcome.failure


class SharedSink:
    """One answer that several turns write to: opened once, reported to all of them."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._readers: list[Reader] = []
        self._opened = False

    @property
    def full(self) -> bool:
        return self._sink.full

    def attach(self, reader: Reader) -> None:
        self._readers.append(reader)
        self._sink.attach(self)

    def open(self) -> None:
        if not self._opened:
            self._opened = True
            self._sink.open()

    def write(self, data: bytes) -> None:
        self._sink.write(data)

    # The others go on.
    write_last = write

    def pause(self) -> None:
        for reader in self._readers:
            reader.pause()

    def resume(self) -> None:
        for reader in self._readers:
            reader.resume()

    def gone(self) -> None:
        for reader in self._readers:
            reader.gone()
