"""The pipeline itself, without sockets: special tokens by id, forced calls by prefill, no success without an end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec
import pytest

from turnwire.engines.bridge import push
from turnwire.engines.interface import (
    Capabilities,
    Completion,
    EngineError,
    EngineInfo,
    EventBatch,
    GenerateRequest,
    Generation,
    Receiver,
    Step,
    TokenBatch,
)
from turnwire.gateway.turns.endings import ClientGone
from turnwire.gateway.turns.heartbeat import Heartbeat
from turnwire.gateway.turns.record import TurnRecord
from turnwire.gateway.turns.sink import Reader
from turnwire.gateway.turns.turn import Turn
from turnwire.gateway.turns.watching import run_watched
from turnwire.protocols import chat
from turnwire.protocols.wire import TurnFacts, TurnFailure
from turnwire.turns import (
    BlockClosed,
    BlockDelta,
    BlockOpened,
    Conversation,
    Message,
    OutputFormat,
    TextBlock,
    Tool,
    ToolChoice,
)

from .turn_record import TOKENIZER, turn_record

OUTPUT = "Look.\n</think>\n\n<tool_call>\n<function=ls>\n</function>\n</tool_call>"


class Engine:
    """Says what it is told to, step by step."""

    def __init__(self, steps: Sequence[Step | Exception], **can: Any) -> None:
        self.capabilities = Capabilities(**({"yields": "tokens"} | can))
        self.steps = steps
        self.seen: list[GenerateRequest] = []
        self.left = 0

    async def start(self) -> EngineInfo:
        return EngineInfo(name="fake")

    def submit(self, request: GenerateRequest, receiver: Receiver) -> Generation:
        return push(self._steps(request), receiver)

    async def _steps(self, request: GenerateRequest) -> AsyncGenerator[Step, None]:
        self.seen.append(request)
        try:
            for step in self.steps:
                if isinstance(step, Exception):
                    raise step
                yield step
        finally:
            self.left += 1

    async def health(self) -> bool:
        return True

    async def embed(self, inputs: Sequence[str]) -> list[list[float]]:
        return []

    async def close(self) -> None:
        pass


class Pages:
    def __init__(self) -> None:
        self.opened = False
        self.written = b""

    full = False

    def attach(self, reader: Reader) -> None:
        pass

    def open(self) -> None:
        self.opened = True

    def write(self, data: bytes) -> None:
        assert self.opened
        self.written += data

    write_last = write


def turn(engine: Engine, pages: Pages | None = None, **over: Any) -> Turn:
    window = over.pop("window", 4096)
    fields = {"model": "m", "messages": (Message(role="user", blocks=(TextBlock(text="List."),)),)}
    conversation = Conversation(**(fields | {"tools": (Tool(name="ls", schema={"type": "object"}),)} | over))
    record = turn_record(engine, conversation, dialect="qwen3_coder", window=window)
    encoder = chat.DocumentEncoder(TurnFacts(turn_id="T", model="m", created=0))
    return Turn(record, encoder, pages or Pages(), mint=lambda: "call_1")


async def answer(engine: Engine, **over: Any) -> dict[str, Any]:
    pages = Pages()
    await turn(engine, pages, **over).run()
    message: dict[str, Any] = msgspec.json.decode(pages.written)["choices"][0]["message"]
    return message


async def test_a_batch_becomes_blocks_and_the_engine_is_left_once() -> None:
    ids = TOKENIZER.encode(OUTPUT)
    spell = TOKENIZER.detokenizer()
    steps: list[Step] = [TokenBatch(spell.feed([token]), (token,)) for token in ids]
    engine = Engine([*steps, Completion("stop", 1, len(ids))])
    message = await answer(engine)
    assert message["reasoning_content"] == "Look."
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["ls"]
    assert engine.left == 1


async def test_a_stream_that_just_stops_is_no_success() -> None:
    pages = Pages()
    with pytest.raises(TurnFailure) as caught:
        await turn(Engine([TokenBatch("Look", (1,))]), pages).run()
    assert caught.value.kind == "engine_failed"
    assert pages.written == b""


@pytest.mark.parametrize(
    ("kind", "expected"), [("overloaded", "overloaded"), ("timeout", "timeout"), ("invalid_request", "invalid_request")]
)
async def test_an_engines_error_is_told_in_the_words_of_the_wire(kind: Any, expected: str) -> None:
    with pytest.raises(TurnFailure) as caught:
        await turn(Engine([EngineError(kind, "no", retry_after=3)])).run()
    assert (caught.value.kind, caught.value.retry_after) == (expected, 3)


async def test_a_defect_of_an_engine_is_its_failure_and_says_nothing_of_its_inside() -> None:
    engine = Engine([ZeroDivisionError("oops")])
    with pytest.raises(TurnFailure) as caught:
        await turn(engine).run()
    assert caught.value.kind == "engine_failed"
    assert "oops" not in caught.value.message
    assert engine.left == 1


async def test_a_defect_of_ours_is_an_internal_failure_and_the_engine_is_left() -> None:
    engine = Engine([TokenBatch("Look", (1,)), Completion("stop", 1, 1)])
    broken = turn(engine)
    broken.encoder.feed = lambda events: 1 // 0  # type: ignore[method-assign]
    with pytest.raises(TurnFailure) as caught:
        await broken.run()
    assert caught.value.kind == "internal"
    await asyncio.sleep(0)
    assert engine.left == 1


async def test_max_tokens_is_clamped_to_what_fits() -> None:
    engine = Engine([Completion("stop", 1, 0)])
    running = turn(engine, window=200)
    await running.run()
    assert engine.seen[0].sampling.max_tokens == 200 - len(running.record.prompt.ids)
    with pytest.raises(TurnFailure) as caught:
        await turn(engine, window=10).run()
    assert caught.value.kind == "context_overflow"


async def test_a_structured_engines_events_are_trusted_as_they_are() -> None:
    events = (BlockOpened(0, "text"), BlockDelta(0, "<think>not parsed</think>"), BlockClosed(0, "text"))
    engine = Engine([EventBatch(events), Completion("stop", 1, 1)], yields="events")
    assert (await answer(engine))["content"] == "<think>not parsed</think>"


async def test_a_structured_engine_counts_its_thoughts_itself() -> None:
    events = (BlockOpened(0, "reasoning"), BlockDelta(0, "Hm."), BlockClosed(0, "reasoning"))
    engine = Engine([EventBatch(events), Completion("stop", 1, 9, reasoning_tokens=7)], yields="events")
    outcome = await turn(engine).run()
    assert outcome.usage.reasoning == 7


async def test_a_format_that_was_demanded_and_not_kept_is_noted() -> None:
    wanted = OutputFormat(kind="json_schema", schema={"type": "object", "required": ["a"]})
    for text, kept in (("not json", False), ('{"b": 1}', False), ('{"a": 1}', True)):
        engine = Engine([TokenBatch(f"Hm.\n</think>\n\n{text}", (1, 2)), Completion("stop", 1, 2)])
        outcome = await turn(engine, tools=(), format=wanted).run()
        assert ("constraint.violated" in [note.code for note in outcome.notes]) is not kept


async def test_a_forced_call_is_put_into_the_models_mouth_where_nothing_guides_it() -> None:
    engine = Engine([TokenBatch("\n</function>\n</tool_call>", (1, 2)), Completion("stop", 99, 2)])
    pages = Pages()
    running = turn(engine, pages, tool_choice=ToolChoice(mode="named", name="ls"))
    outcome = await running.run()
    message = msgspec.json.decode(pages.written)["choices"][0]["message"]
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["ls"]
    prefilled = len(engine.seen[0].prompt_ids) - len(running.record.prompt.ids)
    assert prefilled > 0
    assert list(outcome.output_ids[:prefilled]) == list(engine.seen[0].prompt_ids[-prefilled:])
    assert (outcome.usage.prompt, outcome.usage.output) == (99 - prefilled, 2 + prefilled)


async def test_a_forbidden_call_stays_text() -> None:
    text = "No tools.\n</think>\n\n<tool_call>\n<function=ls>\n</function>\n</tool_call>"
    engine = Engine([TokenBatch(text, (1, 2)), Completion("stop", 9, 2)])
    message = await answer(engine, tool_choice=ToolChoice(mode="none"))
    assert "tool_calls" not in message
    assert "<function=ls>" in message["content"]
    assert message["reasoning_content"] == "No tools."


async def test_a_tokenizer_is_used_on_the_loop_and_in_a_thread_before_the_first_turn() -> None:
    runtime = turn(Engine([])).record.runtime
    used: list[str] = []

    class Named:
        def encode(self, text: str) -> list[int]:
            used.append(threading.current_thread().name)
            return []

    runtime.tokenizer = Named()  # type: ignore[assignment]
    await runtime.warm()
    assert used[0] == threading.current_thread().name
    assert used[1].startswith("prompt")


class Round:
    """Of an answer with tools: `follows` says that another round comes, which is admitted once `admitted` is set."""

    pending = True

    def __init__(self, engine: Engine) -> None:
        self.follows = False
        self.engine = engine
        self.admitting = asyncio.Event()
        self.admitted = asyncio.Event()

    async def answer(self, put: Any) -> None:
        self.follows = not self.admitting.is_set()

    async def close(self) -> bytes:
        return b""

    async def following(self) -> TurnRecord[Any]:
        self.follows = False
        self.admitting.set()
        await self.admitted.wait()
        return turn(self.engine).record


class Watching:
    heartbeat = Heartbeat(keepalive_s=10, idle_s=10, stall_s=10)

    def begun(self, turn: Turn) -> None: ...

    def finished(self, turn: TurnRecord[Any]) -> None: ...


@pytest.mark.parametrize("reason", ["shutdown", "cancelled", "gone"])
@pytest.mark.parametrize("moment", ["between", "before"])
async def test_who_ends_an_answer_between_two_rounds_is_heard(reason: str, moment: str) -> None:
    """`before`: the engine has finished the round, and its tools have not begun."""
    engine, later = Engine([Completion("stop", 1, 1)]), Engine([Completion("stop", 1, 1)])

    async def kept(record: TurnRecord[Any]) -> None:
        if moment == "before":
            running.expire(reason)

    one = turn(engine)
    rounds = Round(later)
    running = Turn(one.record, one.encoder, Pages(), mint=lambda: "c", finished=kept, rounds=rounds)
    task = asyncio.ensure_future(run_watched(Watching(), running))
    if moment == "between":
        await rounds.admitting.wait()
        running.expire(reason)
    rounds.admitted.set()
    if reason == "gone":
        with pytest.raises(ClientGone):
            await task
    else:
        await task
        assert running.cut
        assert running.record.finish == reason
    assert later.seen == []
    assert running.record.ended_by == reason
