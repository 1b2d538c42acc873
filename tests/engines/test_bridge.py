"""The bridge between pushed and pulled generations: nothing lost, and neither side outruns the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from turnwire.engines.bridge import pull, push, refuse
from turnwire.engines.interface import Completion, EngineError, Receiver, Step, TokenBatch

from .conformance import request

END = Completion("stop", 1, 1)


class Pushing:
    """An engine that pushes from a generator and counts what it produced."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.made = 0
        self.closed = False

    async def steps(self) -> AsyncGenerator[Step, None]:
        try:
            for number in range(self.count):
                self.made += 1
                yield TokenBatch(str(number), (number,))
                await asyncio.sleep(0)
            yield END
        finally:
            self.closed = True

    def submit(self, _request: object, receiver: Receiver) -> Any:
        return push(self.steps(), receiver)


async def test_everything_arrives_in_order() -> None:
    steps = [step async for step in pull(Pushing(500), request())]  # type: ignore[arg-type]
    assert [step.ids[0] for step in steps[:-1] if isinstance(step, TokenBatch)] == list(range(500))
    assert steps[-1] == END


async def test_whoever_does_not_read_holds_the_engine_back() -> None:
    engine = Pushing(10_000)
    stream = pull(engine, request())  # type: ignore[arg-type]
    await anext(stream)
    for _ in range(2000):
        await asyncio.sleep(0)
    assert engine.made < 100
    rest = [step async for step in stream]
    assert len(rest) == 10_000


async def test_leaving_ends_the_engines_work() -> None:
    engine = Pushing(10_000)
    stream = pull(engine, request())  # type: ignore[arg-type]
    await anext(stream)
    await stream.aclose()
    await asyncio.sleep(0.01)
    assert engine.closed


async def test_a_refusal_is_heard_after_submit_and_not_after_abort() -> None:
    class Refusing:
        def submit(self, _request: object, receiver: Receiver) -> Any:
            return refuse(EngineError("overloaded", "busy"), receiver)

    with pytest.raises(EngineError, match="busy"):
        await anext(pull(Refusing(), request()))  # type: ignore[arg-type]
    heard: list[object] = []

    class Hearing:
        def failed(self, error: EngineError) -> None:
            heard.append(error)

    generation = refuse(EngineError("overloaded", "busy"), Hearing())  # type: ignore[arg-type]
    assert not heard
    generation.abort()
    await asyncio.sleep(0)
    assert not heard
