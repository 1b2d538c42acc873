"""What every engine adapter must do, whatever stands behind it: one list of checks, run against each.

A subject opens an engine that will play one script line; a check drives it through the interface only.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Protocol

import msgspec
import pytest

from turnwire.engines.bridge import pull
from turnwire.engines.interface import (
    Completion,
    Engine,
    EngineError,
    EventBatch,
    GenerateRequest,
    Hints,
    Step,
    TokenBatch,
)
from turnwire.engines.scripted.script import Line
from turnwire.turns import BlockDelta, Conversation, Message, Sampling, TextBlock

from .toytokenizer import ToyTokenizer

TEXT = "<think>Ünïcode 日本 and 😀 emoji</think> then words, more words and a last word."
PROMPT = list(range(100, 180))


class Watch(Protocol):
    """The far side of an engine: what it saw."""

    @property
    def aborts(self) -> int: ...

    header_delay: float


class Subject(Protocol):
    """An engine under test."""

    name: str

    def open(self, line: Line) -> AbstractAsyncContextManager[tuple[Engine, Watch | None]]:
        """A started engine that plays `line`, and its far side where there is one."""
        ...


def request(prompt: list[int] | None = None, **sampling: object) -> GenerateRequest:
    return GenerateRequest(
        prompt_ids=PROMPT if prompt is None else prompt,
        sampling=Sampling(**sampling),  # type: ignore[arg-type]
        hints=Hints(request_id="req-1"),
        conversation=Conversation(model="toy", messages=(Message(role="user", blocks=(TextBlock(text="hi"),)),)),
    )


async def collect(engine: Engine, wanted: GenerateRequest) -> tuple[list[Step], Completion]:
    """All steps; the last must be the one completion."""
    steps = [step async for step in pull(engine, wanted)]
    completions = [step for step in steps if isinstance(step, Completion)]
    assert len(completions) == 1
    assert steps[-1] is completions[0]
    return steps[:-1], completions[0]


def text_of(steps: list[Step]) -> str:
    parts: list[str] = []
    for step in steps:
        if isinstance(step, TokenBatch):
            parts.append(step.text)
        elif isinstance(step, EventBatch):
            parts += [event.text for event in step.events if isinstance(event, BlockDelta)]
    return "".join(parts)


def ids_of(steps: list[Step]) -> list[int]:
    return [token for step in steps if isinstance(step, TokenBatch) for token in step.ids]


async def fails(engine: Engine, wanted: GenerateRequest) -> tuple[EngineError, str]:
    """The error that ends a generation, and the text before it."""
    steps: list[Step] = []

    async def read() -> None:
        async for step in pull(engine, wanted):
            steps.append(step)  # noqa: PERF401 (the steps before the failure are wanted)

    with pytest.raises(EngineError) as caught:
        await read()
    assert not any(isinstance(step, Completion) for step in steps)
    assert caught.value.message
    return caught.value, text_of(steps)


async def soon(condition: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


# ------------------------------------------------------------------------------------------------------ checks


async def order_and_ids(subject: Subject) -> None:
    async with subject.open(Line(text=TEXT, burst=1)) as (engine, _):
        steps, completion = await collect(engine, request())
        assert text_of(steps) == TEXT
        if engine.capabilities.yields == "tokens":
            assert ids_of(steps) == ToyTokenizer().encode(TEXT)
        assert completion.reason == "stop"
        assert completion.stop_sequence is None


async def unicode_across_chunks(subject: Subject) -> None:
    text = "🇯🇵👩‍👩‍👧‍👦 日本語 é " * 3
    async with subject.open(Line(text=text, burst=1, delay_ms=1)) as (engine, _):
        steps, _completion = await collect(engine, request())
        assert text_of(steps) == text
        assert len(steps) > 3
        for step in steps:
            if isinstance(step, TokenBatch):
                assert "\ufffd" not in step.text
        if engine.capabilities.yields == "tokens":
            assert ids_of(steps) == ToyTokenizer().encode(text)


async def everything_at_once(subject: Subject) -> None:
    text = "".join(f"{number}. {TEXT} " for number in range(20))
    async with subject.open(Line(text=text, cut="all")) as (engine, _):
        steps, _completion = await collect(engine, request())
        assert text_of(steps) == text


async def nothing_said(subject: Subject) -> None:
    async with subject.open(Line(text="")) as (engine, _):
        steps, completion = await collect(engine, request())
        assert text_of(steps) == ""
        assert completion.reason == "stop"


async def stop_strings(subject: Subject) -> None:
    for stop, kept in (("more", "and a b, "), ("e w", "and a b, mor"), ("b", "and a "), ("wo", "and a b, more ")):
        async with subject.open(Line(text="and a b, more words and more", burst=1)) as (engine, _):
            steps, completion = await collect(engine, request(stop=("zzz", stop)))
            assert text_of(steps) == kept, stop
            assert completion.reason == "stop_sequence"
            assert completion.stop_sequence == stop


async def a_stop_string_that_never_comes(subject: Subject) -> None:
    async with subject.open(Line(text="almost STO but no", burst=1)) as (engine, _):
        steps, completion = await collect(engine, request(stop=("STOP", "nob")))
        assert text_of(steps) == "almost STO but no"
        assert completion.reason == "stop"


async def length(subject: Subject) -> None:
    async with subject.open(Line(text="one two three four five", burst=1)) as (engine, _):
        steps, completion = await collect(engine, request(max_tokens=3))
        assert text_of(steps) == "one two three "
        assert completion.reason == "length"
        assert completion.output_tokens == 3


async def usage(subject: Subject) -> None:
    async with subject.open(Line(text="one two three")) as (engine, _):
        _steps, completion = await collect(engine, request())
        assert completion.prompt_tokens == len(PROMPT)
        assert completion.output_tokens in (3, 4), "the end token may count"
        assert completion.cached_tokens == 0
        _steps, completion = await collect(engine, request())
        assert completion.cached_tokens == (64 if engine.capabilities.cached_tokens else 0)


async def the_end_token_is_told_apart(subject: Subject) -> None:
    async with subject.open(Line(text="a </tool_call>", burst=1)) as (engine, _):
        steps, completion = await collect(engine, request())
        assert text_of(steps) == "a </tool_call>"
        if engine.capabilities.yields == "tokens":
            assert ids_of(steps) == ToyTokenizer().encode("a </tool_call>")
            assert completion.output_tokens - len(ids_of(steps)) in (0, 1)


async def logprobs(subject: Subject) -> None:
    async with subject.open(Line(text="one two three", burst=1)) as (engine, _):
        if engine.capabilities.yields == "events":
            return
        steps, _completion = await collect(engine, request(logprobs=1))
        told = [entry for step in steps if isinstance(step, TokenBatch) for entry in step.logprobs]
        assert [entry.token for entry in told] == ["one ", "two ", "three"]
        assert all(entry.top for entry in told)


async def errors_before_the_first_token(subject: Subject) -> None:
    for kind in ("overloaded", "invalid_request", "internal", "context_overflow"):
        async with subject.open(Line(text="one two", finish="error", error=kind, after=0)) as (engine, _):  # type: ignore[arg-type]
            error, text = await fails(engine, request())
            assert error.kind == kind
            assert text == ""


async def an_error_after_the_first_token(subject: Subject) -> None:
    async with subject.open(Line(text="one two three four", finish="error", after=2, burst=1)) as (engine, _):
        error, text = await fails(engine, request())
        assert error.kind == "internal"
        assert text == "one two "


async def a_disconnect_after_the_first_token(subject: Subject) -> None:
    async with subject.open(Line(text="one two three four", finish="disconnect", after=2, burst=1)) as (engine, _):
        error, text = await fails(engine, request())
        assert error.kind == "disconnected"
        assert text == "one two "


async def a_disconnect_before_the_answer(subject: Subject) -> None:
    async with subject.open(Line(text="one two", finish="disconnect", after=0)) as (engine, watch):
        error, _text = await fails(engine, request())
        assert error.kind == ("unreachable" if watch is not None else "disconnected")


async def leaving_mid_stream(subject: Subject) -> None:
    async with subject.open(Line(text="word " * 200, delay_ms=5)) as (engine, watch):
        async with aclosing(pull(engine, request())) as stream:
            async for _step in stream:
                break
        if watch is not None:
            await soon(lambda: watch.aborts == 1)


async def leaving_before_the_first_token(subject: Subject) -> None:
    async with subject.open(Line(text="word " * 20, first_delay_ms=30_000)) as (engine, watch):
        await _cancelled(engine, watch)


async def leaving_before_the_answer(subject: Subject) -> None:
    async with subject.open(Line(text="word " * 20)) as (engine, watch):
        if watch is None:
            return
        watch.header_delay = 30
        await _cancelled(engine, watch)


async def leaving_while_the_engine_hangs(subject: Subject) -> None:
    async with subject.open(Line(text="one two three four", finish="hang", after=2)) as (engine, watch):
        await _cancelled(engine, watch)


async def _cancelled(engine: Engine, watch: Watch | None) -> None:
    task = asyncio.ensure_future(collect(engine, request()))
    await asyncio.sleep(0.1)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    if watch is not None:
        await soon(lambda: watch.aborts == 1)


async def leaving_at_the_completion(subject: Subject) -> None:
    async with subject.open(Line(text="one two three")) as (engine, watch):
        async with aclosing(pull(engine, request())) as stream:
            async for step in stream:
                if isinstance(step, Completion):
                    break
        assert watch is None or watch.aborts == 0
        steps, _completion = await collect(engine, request())
        assert text_of(steps) == "one two three"


async def many_at_once(subject: Subject) -> None:
    async with subject.open(Line(text=TEXT, burst=2, delay_ms=1)) as (engine, _):
        results = await asyncio.gather(*(collect(engine, request()) for _ in range(16)))
        assert all(text_of(steps) == TEXT for steps, _completion in results)


async def closing_ends_what_runs(subject: Subject) -> None:
    async with subject.open(Line(text="one two three four", finish="hang", after=2)) as (engine, _):
        task = asyncio.ensure_future(fails(engine, request()))
        await asyncio.sleep(0.1)
        await engine.close()
        error, text = await task
        assert error.kind == "disconnected"
        assert text == "one two "
        assert not await engine.health()


async def health_and_embeddings(subject: Subject) -> None:
    async with subject.open(Line(text="one")) as (engine, _):
        assert await engine.health()
        vectors: list[list[float]] | None = None
        refused: EngineError | None = None
        try:
            vectors = await engine.embed(["text"])
        except EngineError as error:
            refused = error
        assert len(vectors) == 1 if refused is None and vectors else refused and refused.kind == "invalid_request"


CHECKS: tuple[Callable[[Subject], Awaitable[None]], ...] = (
    order_and_ids,
    unicode_across_chunks,
    everything_at_once,
    nothing_said,
    stop_strings,
    a_stop_string_that_never_comes,
    length,
    usage,
    the_end_token_is_told_apart,
    logprobs,
    errors_before_the_first_token,
    an_error_after_the_first_token,
    a_disconnect_after_the_first_token,
    a_disconnect_before_the_answer,
    leaving_mid_stream,
    leaving_before_the_first_token,
    leaving_before_the_answer,
    leaving_while_the_engine_hangs,
    leaving_at_the_completion,
    many_at_once,
    closing_ends_what_runs,
    health_and_embeddings,
)


class ScriptedSubject:
    """The scripted engine itself."""

    name = "scripted"

    @asynccontextmanager
    async def open(self, line: Line) -> AsyncIterator[tuple[Engine, Watch | None]]:
        from turnwire.engines.scripted.engine import ScriptedEngine

        engine = ScriptedEngine([line], ToyTokenizer())
        await engine.start()
        yield engine, None
        await engine.close()


class ServerSubject:
    """An HTTP adapter in front of one of our servers."""

    def __init__(
        self, name: str, server: Callable[[Line], object], engine: Callable[[str], Engine], **options: object
    ) -> None:
        self.name = name
        self._server = server
        self._engine = engine
        self._options = options

    @asynccontextmanager
    async def open(self, line: Line) -> AsyncIterator[tuple[Engine, Watch | None]]:
        from .servers import FakeServer

        server = self._server(line)
        assert isinstance(server, FakeServer)
        for name, value in self._options.items():
            setattr(server, name, value)
        url = await server.start()
        engine = self._engine(url)
        try:
            info = await engine.start()
            assert msgspec.structs.asdict(info)["name"]
            yield engine, server
        finally:
            await engine.close()
            await server.stop()
