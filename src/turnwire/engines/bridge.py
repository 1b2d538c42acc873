"""Between the two ways to read a generation: pushed into a receiver, or pulled from an async generator.

Promise: nothing is lost, doubled or reordered on the way, and leaving one side ends the other. For engines and callers
where a task switch per batch does not matter.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator

from turnwire.engines.interface import (
    Completion,
    Engine,
    EngineError,
    EventBatch,
    GenerateRequest,
    Generation,
    Receiver,
    Step,
    TokenBatch,
)

__all__ = ["pull", "push", "refuse"]

log = logging.getLogger("turnwire.engines")

_HELD = 64
"""Steps that may wait for a caller before the engine's stream is paused."""


def refuse(error: EngineError, receiver: Receiver) -> Generation:
    """A generation that fails as soon as its receiver can be called."""
    return _Refused(error, receiver)


class _Refused:
    def __init__(self, error: EngineError, receiver: Receiver) -> None:
        self._soon = asyncio.get_running_loop().call_soon(receiver.failed, error)

    def abort(self) -> None:
        self._soon.cancel()

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass


def push(steps: AsyncGenerator[Step, None], receiver: Receiver) -> Generation:
    """Drive `receiver` from an async generator that ends with a Completion or raises EngineError."""
    return _Pushed(steps, receiver)


class _Pushed:
    """A generation that a task reads from its generator."""

    def __init__(self, steps: AsyncGenerator[Step, None], receiver: Receiver) -> None:
        self._steps = steps
        self._receiver = receiver
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._aborted = False
        self._task = asyncio.ensure_future(self._run())

    def abort(self) -> None:
        # A generator that never waits gives the cancellation no place to happen.
        self._aborted = True
        self._task.cancel()

    def pause(self) -> None:
        self._flowing.clear()

    def resume(self) -> None:
        self._flowing.set()

    async def _run(self) -> None:
        receiver = self._receiver
        error = EngineError("disconnected", "The engine ended its stream without a completion.")
        try:
            async for step in self._steps:
                if not self._flowing.is_set():
                    await self._flowing.wait()
                if self._aborted:
                    return
                if type(step) is TokenBatch:
                    receiver.tokens(step)
                elif type(step) is EventBatch:
                    receiver.events(step)
                else:
                    assert isinstance(step, Completion)
                    receiver.done(step)
                    return
        except EngineError as failure:
            error = failure
        except Exception:
            log.exception("a defect in an engine adapter")
            error = EngineError("internal", "The engine adapter failed.")
        finally:
            await self._steps.aclose()
        if not self._aborted:
            receiver.failed(error)


async def pull(engine: Engine, request: GenerateRequest) -> AsyncGenerator[Step, None]:
    """The steps of a generation, to be iterated; leaving the iteration aborts the engine's work."""
    collected = _Collected()
    generation = collected.generation = engine.submit(request, collected)
    try:
        while True:
            step = await collected.next()
            yield step
            if type(step) is Completion:
                return
    finally:
        generation.abort()


class _Collected:
    """A receiver that keeps what was pushed until it is asked for, and holds the engine back when that is much."""

    generation: Generation

    def __init__(self) -> None:
        self._steps: deque[Step | EngineError] = deque()
        self._news = asyncio.Event()
        self._paused = False

    async def next(self) -> Step:
        while not self._steps:
            if self._paused:
                self._paused = False
                self.generation.resume()
            self._news.clear()
            await self._news.wait()
        step = self._steps.popleft()
        if isinstance(step, EngineError):
            raise step
        return step

    def _add(self, step: Step | EngineError) -> None:
        self._steps.append(step)
        self._news.set()
        if len(self._steps) > _HELD and not self._paused:
            self._paused = True
            self.generation.pause()

    tokens = events = done = failed = _add
