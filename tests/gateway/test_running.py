"""More of an open block is written without asking each stage: nothing that anybody gets or keeps may show it."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from turnwire.engines.interface import (
    Capabilities,
    Completion,
    EngineError,
    GenerateRequest,
    Generation,
    Receiver,
    TokenBatch,
    TokenLogprob,
)
from turnwire.gateway.turns.endings import ClientGone
from turnwire.gateway.turns.output.running import MOST_GATHERED
from turnwire.gateway.turns.sink import Reader
from turnwire.gateway.turns.turn import Turn
from turnwire.protocols.anthropic.answer.stream import StreamEncoder as MessagesStream
from turnwire.protocols.anthropic.echo import Echo as MessagesEcho
from turnwire.protocols.chat.echo import Echo as ChatEcho
from turnwire.protocols.chat.stream import StreamEncoder as ChatStream
from turnwire.protocols.framing import LINES, SSE, Framing
from turnwire.protocols.responses.answer.stream import StreamEncoder as ResponsesStream
from turnwire.protocols.responses.echo import Echo as ResponsesEcho
from turnwire.protocols.responses.tools import Toolbox
from turnwire.protocols.wire import Delta, Encoder, TurnFacts
from turnwire.turns import Conversation, Message, Sampling, TextBlock, Thinking, Tool

from .turn_record import TOKENIZER, turn_record

TOOLS = (
    Tool(name="Write", schema={"type": "object", "properties": {"content": {"type": "string"}}}),
    Tool(name="apply", schema={"type": "object"}),
)
SAID = {
    "hermes": (
        "<think>\nFirst, I look: is it “there”?\n\n  Yes.\n</think>\n\nI will write é, \u2028 and 日本 now. It takes "
        'a moment.\n<tool_call>\n{"name": "Write", "arguments": {"content": "a = \\"b\\"\\nc\\\\d \\u00e9", "n": 1}}\n'
        '</tool_call>\n<tool_call>\n{"name": "apply", "arguments": {"input": "*** Begin \\"Patch\\""}}\n</tool_call>'
    ),
    "qwen3_coder": (
        "<think>\nA thought that goes on for a few words.\n</think>\n\nSome words <b>in</b> between.\n\n<tool_call>\n"
        "<function=Write>\n<parameter=content>\nline one\nline two of it\n</parameter>\n</function>\n</tool_call>"
    ),
    "harmony": (
        "<|channel|>analysis<|message|>Let me think about this one.<|end|><|start|>assistant<|channel|>commentary "
        'to=functions.Write <|constrain|>json<|message|>{"content":"some words, and \\"more\\" of them"}<|call|>'
    ),
    "none": "Only words, and   blanks \n between them; then < and & and {.",
}


class Engine:
    """Hands its receiver to the test."""

    capabilities = Capabilities(yields="tokens")
    receiver: Receiver
    aborted = False

    def submit(self, request: GenerateRequest, receiver: Receiver) -> Generation:
        self.receiver = receiver
        return self

    def abort(self) -> None:
        self.aborted = True

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class Pages:
    """What a client gets."""

    full = False

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def attach(self, reader: Reader) -> None: ...

    def open(self) -> None: ...

    def write(self, data: bytes) -> None:
        self.written.append(data)

    write_last = write


def _toolbox() -> Toolbox:
    box = Toolbox()
    box.add(
        [
            {"type": "function", "name": "Write", "parameters": {"type": "object"}},
            {"type": "custom", "name": "apply", "description": "A patch."},
        ]
    )
    return box


def _facts(*, dispatch: bool = False) -> TurnFacts:
    return TurnFacts(turn_id="T", model="m", created=0, dispatch=dispatch)


ENCODERS: dict[str, Callable[[Framing], Encoder]] = {
    "chat": lambda framing: ChatStream(_facts(), ChatEcho(usage=True), framing=framing),
    "chat with announced calls": lambda framing: ChatStream(_facts(dispatch=True), framing=framing),
    "chat with log probabilities": lambda framing: ChatStream(_facts(), ChatEcho(logprobs=0), framing=framing),
    "messages": lambda framing: MessagesStream(_facts(), MessagesEcho(thinking=True), framing=framing),
    "messages without thoughts": lambda framing: MessagesStream(
        _facts(), MessagesEcho(thinking=True, omit_thinking=True), framing=framing
    ),
    "responses": lambda framing: ResponsesStream(_facts(), ResponsesEcho(toolbox=_toolbox()), framing=framing),
    "responses without summaries": lambda framing: ResponsesStream(
        _facts(), ResponsesEcho(summaries=False, toolbox=_toolbox()), framing=framing
    ),
}


class Asked:
    """An encoder that wants to be asked for every piece."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    def running(self, index: int) -> Delta | None:
        return None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._encoder, name)


class Ran:
    """An encoder that counts what it was told to have run."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self.begun = 0

    def running(self, index: int) -> Delta | None:
        delta = self._encoder.running(index)
        self.begun += delta is not None
        return delta

    def __getattr__(self, name: str) -> Any:
        return getattr(self._encoder, name)


def turn(dialect: str, encoder: Any, pages: Pages, **over: Any) -> tuple[Turn, Engine]:
    engine = Engine()
    asked = (Message(role="user", blocks=(TextBlock(text="Write."),)),)
    conversation = Conversation(model="m", messages=asked, tools=TOOLS, **over)
    record = turn_record(engine, conversation, dialect=dialect, window=65536, stream=True)
    calls = iter(range(100))
    return Turn(record, encoder, pages, mint=lambda: f"call_{next(calls)}"), engine


def pieces(text: str, seed: int) -> list[TokenBatch]:
    """The text in tokens: nearly always one, sometimes none or several, sometimes an empty text."""
    dice = random.Random(seed)
    ids, spell = list(TOKENIZER.encode(text)), TOKENIZER.detokenizer()
    batches: list[TokenBatch] = []
    while ids:
        several = dice.choice((1, 1, 1, 1, 1, 1, 2, 5)) if seed else 1
        taken, ids = tuple(ids[:several]), ids[several:]
        scored = (TokenLogprob("x", -0.5),) if seed % 5 == 4 and dice.random() < 0.2 else ()
        batches.append(TokenBatch(spell.feed(taken), taken, scored))
    return batches


async def said(dialect: str, encoder: Any, seed: int, end: str, **over: Any) -> tuple[Any, ...]:
    """All that anybody gets or keeps of a turn."""
    dice = random.Random(seed)
    pages = Pages()
    running, engine = turn(dialect, encoder, pages, **over)
    task = asyncio.ensure_future(running.run())
    await asyncio.sleep(0)
    batches = pieces(SAID[dialect], seed)
    if end != "stop":
        batches = batches[: dice.randrange(len(batches) // 2, len(batches))]
    counted = []
    for batch in batches:
        engine.receiver.tokens(batch)
        if dice.random() < 0.05:
            running.beat()
        if dice.random() < 0.05:
            counted.append(running.produced)
    if end == "failed":
        engine.receiver.failed(EngineError("disconnected", "gone"))
    elif end == "gone":
        running.gone()
    else:
        engine.receiver.done(Completion(end, 10, sum(len(batch.ids) for batch in batches)))  # type: ignore[arg-type]
    try:
        await task
    except ClientGone:
        counted.append(-1)
    outcome, kept, witness = running.outcome, running._log, running._witness
    return (
        b"".join(pages.written),
        len(pages.written),
        counted,
        (outcome.text, list(outcome.output_ids), outcome.usage, outcome.finish, outcome.call_ids),
        [note.code for note in outcome.notes],
        (list(kept.lengths), list(kept.sizes), kept.text),
        (witness.shape(last=True), witness.thoughts, witness.rest),
    )


@pytest.mark.parametrize("api", ENCODERS)
@pytest.mark.parametrize("dialect", SAID)
@pytest.mark.parametrize("end", ["stop", "length", "failed", "gone"])
async def test_a_block_that_runs_is_as_if_every_piece_were_asked_for(api: str, dialect: str, end: str) -> None:
    begun = 0
    for seed in range(8):
        framing = LINES if seed % 2 and api.startswith("responses") else SSE
        over = {"thinking": Thinking(mode="on", budget=7 + seed)} if seed in (2, 3) else {}
        ran = Ran(ENCODERS[api](framing))
        expected = await said(dialect, Asked(ENCODERS[api](framing)), seed, end, **over)
        assert await said(dialect, ran, seed, end, **over) == expected
        begun += ran.begun
    assert begun > 0


async def test_no_more_than_a_few_pieces_wait_to_be_told() -> None:
    running, engine = turn("none", ENCODERS["chat"](SSE), Pages())
    task = asyncio.ensure_future(running.run())
    await asyncio.sleep(0)
    most = 0
    for number in range(10 * MOST_GATHERED):
        engine.receiver.tokens(TokenBatch(" word", (number,)))
        most = max(most, len(running._running.gathered))
        assert running.produced == number + 1
    assert 0 < most < MOST_GATHERED
    engine.receiver.done(Completion("stop", 1, 10 * MOST_GATHERED))
    assert (await task).text == " word" * 10 * MOST_GATHERED


@pytest.mark.parametrize("ids", [1, 3])
@pytest.mark.parametrize("text", [" word", " \n"])
async def test_an_engine_that_does_not_stop_where_it_was_told_to_is_stopped(ids: int, text: str) -> None:
    running, engine = turn("none", ENCODERS["chat"](SSE), Pages(), sampling=Sampling(max_tokens=200))
    task = asyncio.ensure_future(running.run())
    await asyncio.sleep(0)
    said = 0
    while not engine.aborted:
        assert said < 1000, "it goes on for ever"
        engine.receiver.tokens(TokenBatch(text, (7,) * ids))
        said += ids
    assert said >= 200
    outcome = await task
    assert outcome.finish is not None
    assert outcome.finish.reason == "length"
    assert len(outcome.output_ids) == outcome.usage.output == said


@pytest.mark.parametrize("ended", [True, False])
async def test_an_engine_without_ids_may_cut_its_text_finer_than_its_tokens_but_not_go_on_for_ever(ended: bool) -> None:
    running, engine = turn("none", ENCODERS["chat"](SSE), Pages(), sampling=Sampling(max_tokens=50))
    task = asyncio.ensure_future(running.run())
    await asyncio.sleep(0)
    for _ in range(225):
        engine.receiver.tokens(TokenBatch("a"))
    assert not engine.aborted
    if ended:
        engine.receiver.done(Completion("stop", 10, 45))
    said = 225
    while not ended and not engine.aborted:
        assert said < 100_000, "it goes on for ever"
        engine.receiver.tokens(TokenBatch("a"))
        said += 1
    outcome = await task
    assert outcome.finish is not None
    assert (outcome.finish.reason, outcome.usage.output) == (("stop", 45) if ended else ("length", said))


async def test_a_piece_that_cannot_be_kept_takes_no_number() -> None:
    pages = Pages()
    running, engine = turn("none", ENCODERS["responses"](SSE), pages)
    task = asyncio.ensure_future(running.run())
    await asyncio.sleep(0)
    for text, token in (("a", 1), (" b", 2), (" c", -1), (" d", 4), (" e", 5)):
        engine.receiver.tokens(TokenBatch(text, (token,)))
    await task
    numbers = [int(number) for number in re.findall(rb'"sequence_number":(\d+)', b"".join(pages.written))]
    assert numbers == list(range(len(numbers)))
    assert running.outcome.failure is not None
