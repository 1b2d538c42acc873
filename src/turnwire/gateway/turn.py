"""One turn, from a decoded request to the last byte: build the prompt, run the engine, parse, encode, write.

Promise: all tokens that an engine delivers in one wake-up leave as one write; each block reaches the client when its
last token arrives; a success is only ever sent after the engine's own completion; leaving early aborts the engine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Protocol

import msgspec

from turnwire.engines.interface import Completion, EngineError, EventBatch, GenerateRequest, Hints, Step, TokenBatch
from turnwire.parsers import Parser, start_state
from turnwire.prompts.recall_shape import Witness
from turnwire.protocols.wire import Encoder, ErrorKind, TurnFailure
from turnwire.turns import (
    BlockClosed,
    BlockDelta,
    BlockOpened,
    Event,
    Finished,
    Note,
    SealCarried,
    TokensScored,
    ToolCallClosed,
    Usage,
)

from .passage import Passage, TurnOutcome

__all__ = ["Sink", "Turn", "failure_of"]

_ENGINE_FAILURES: dict[str, ErrorKind] = {
    "unreachable": "overloaded",
    "disconnected": "engine_failed",
    "overloaded": "overloaded",
    "context_overflow": "context_overflow",
    "invalid_request": "invalid_request",
    "timeout": "timeout",
    "internal": "engine_failed",
}


def failure_of(error: EngineError) -> TurnFailure:
    """An engine's failure in the words of the wire."""
    return TurnFailure(_ENGINE_FAILURES[error.kind], error.message, retry_after=error.retry_after)


def _scored(batch: TokenBatch) -> TokensScored:
    return TokensScored(tuple((entry.token, entry.logprob, entry.top) for entry in batch.logprobs))


class Sink(Protocol):
    """Where a turn's bytes go. `open` sends the status line and headers once; `write` waits for a slow reader."""

    async def open(self) -> None: ...

    async def write(self, data: bytes) -> None: ...


class Turn:
    """A single generation. The gateway's heartbeat reads `silent` and `writing` to keep it alive or end it."""

    # How long the opening bytes wait for the engine's first step: a refusal that arrives sooner can still be a status.
    GRACE_S = 0.02

    def __init__(self, passage: Passage, encoder: Encoder, *, mint: Callable[[], str]) -> None:
        self.passage = passage
        self.encoder = encoder
        self.prompt = passage.prompt
        self.runtime = passage.runtime
        # What the engine will find in its cache is only foreseen here; the engine's own count replaces it at the end.
        foreseen = passage.continuity.shared if self.runtime.engine.capabilities.cached_tokens else 0
        self.usage = Usage(len(self.prompt.ids), min(foreseen, len(self.prompt.ids)))
        self.outcome = TurnOutcome(usage=self.usage)
        self.opened = False
        self.silent = True
        self.writing = False
        self.cut = False
        self._mint = mint
        self._call_ids: dict[int, str] = {}
        self._parser: Parser | None = None
        self._texts: list[str] = []
        self._witness = self.outcome.witness = Witness()
        self._seals = self.runtime.seals_for(passage.tenant, passage.turn_id, self._witness)
        self._reasoning_from: int | None = None
        self._reasoning_tokens = 0
        self._opening: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------------------------------------- running

    def request(self) -> GenerateRequest:
        """What the engine is asked for: `max_tokens` clamped to what fits in the window."""
        conversation = self.passage.inbound.conversation
        sampling = conversation.sampling
        room = self.runtime.window - len(self.prompt.ids)
        if room <= 0:
            raise TurnFailure(
                "context_overflow",
                f"The prompt has {len(self.prompt.ids)} tokens and the model's window is {self.runtime.window}.",
                prompt_tokens=len(self.prompt.ids),
                window=self.runtime.window,
            )
        wanted = sampling.max_tokens
        sampling = msgspec.structs.replace(sampling, max_tokens=room if wanted is None else min(wanted, room))
        return GenerateRequest(
            prompt_ids=self.prompt.ids,
            sampling=self.runtime.defaults_under(sampling),
            hints=Hints(
                request_id=self.passage.turn_id,
                session=conversation.context.session,
                priority=conversation.context.priority,
                cache_salt=self.runtime.cache_salt(self.passage.tenant),
            ),
            conversation=conversation,
            stop_token_ids=self.runtime.stop_token_ids,
        )

    async def run(self, sink: Sink) -> TurnOutcome:
        """Run to the end. Raises TurnFailure if nothing was sent yet; later failures are written to the sink."""
        request = self.request()
        capabilities = self.runtime.engine.capabilities
        if capabilities.yields != "events":
            conversation = self.passage.inbound.conversation
            self._parser = Parser(
                self.runtime.dialect, conversation.tools, start_state(self.prompt.tail, self.runtime.dialect)
            )
        steps = self.runtime.engine.generate(request)
        timer = asyncio.get_running_loop().call_later(self.GRACE_S, self._open_soon, sink)
        try:
            await self._drive(steps, sink)
        except EngineError as error:
            await self.fail(failure_of(error), sink)
        except TurnFailure as failure:
            await self.fail(failure, sink)
        finally:
            timer.cancel()
            await steps.aclose()
            self.outcome.text = "".join(self._texts)
        return self.outcome

    async def _drive(self, steps: AsyncGenerator[Step, None], sink: Sink) -> None:
        feed, encode, seals = self._parser.feed if self._parser else None, self.encoder.feed, self._seals
        witnessed = self._witness.feed
        texts, ids = self._texts, self.outcome.output_ids
        async for step in steps:
            self.silent = False
            if self.passage.first_token is None:
                self.passage.first_token = time.monotonic()
            if type(step) is TokenBatch:
                ids.extend(step.ids)
                texts.append(step.text)
                if seals is not None:
                    seals.add(step.ids)
                events: Sequence[Event] = feed(step.text) if feed else ()
                if step.logprobs:
                    events = [*events, _scored(step)]
            elif type(step) is EventBatch:
                events = step.events
            else:
                assert isinstance(step, Completion)
                await self._complete(step, sink)
                return
            if events:
                witnessed(events)
                data = encode(self._dressed(events))
                if data:
                    if not self.opened:
                        await self._open(sink)
                    self.writing = True
                    await sink.write(data)
                    self.writing = False
        raise TurnFailure("engine_failed", "The engine ended its stream without saying how the turn finished.")

    async def _complete(self, completion: Completion, sink: Sink) -> None:
        if self._parser is not None:
            *events, finished = self._parser.finish(completion.reason)
        else:
            events, finished = [], Finished(completion.reason)
        assert isinstance(finished, Finished)
        if completion.stop_sequence is not None:
            finished = msgspec.structs.replace(finished, reason="stop_sequence", stop_sequence=completion.stop_sequence)
        self._witness.feed(events)
        dressed = list(self._dressed(events))
        if self._seals is not None:
            trailing = self._seals.finish()
            if trailing is not None:
                dressed.append(SealCarried(-1, trailing))
        self.usage = Usage(
            completion.prompt_tokens, completion.cached_tokens, completion.output_tokens, self._reasoning_tokens
        )
        self.outcome.usage, self.outcome.finish = self.usage, finished
        dressed += (self.usage, finished)
        data = self.encoder.feed(dressed)
        await self._open(sink)
        if data:
            await sink.write(data)

    async def fail(self, failure: TurnFailure, sink: Sink) -> None:
        """End the turn with a failure: raised while it can still be a status, else written as the API wants it."""
        self.outcome.failure = failure
        if self._opening is not None:
            await self._opening
        if not self.opened:
            raise failure
        data = self.encoder.fail(failure)
        if data:
            await sink.write(data)
        else:
            self.cut = True

    # ------------------------------------------------------------------------------------------------- opening

    def _open_soon(self, sink: Sink) -> None:
        if self._opening is None and self.encoder.media_type == "text/event-stream":
            self._opening = asyncio.ensure_future(self._send_start(sink))

    async def _open(self, sink: Sink) -> None:
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._send_start(sink))
        if not self.opened:
            await self._opening

    async def _send_start(self, sink: Sink) -> None:
        await sink.open()
        data = self.encoder.start(self.usage)
        if data:
            await sink.write(data)
        self.opened = True

    # ----------------------------------------------------------------------------------------- ids, seals, notes

    def _dressed(self, events: Sequence[Event]) -> Sequence[Event]:
        """The same events with call ids minted and reasoning sealed; untouched (and uncopied) when there is only
        running text."""
        if len(events) == 1 and type(events[0]) is BlockDelta:
            return events
        dressed: list[Event] = []
        for event in events:
            kind = type(event)
            if kind is BlockDelta:
                dressed.append(event)
            elif kind is Note:
                self.outcome.notes.append(event)  # type: ignore[arg-type]
                dressed.append(event)
            else:
                dressed.append(self._dress(event))
        return dressed

    def _dress(self, event: Event) -> Event:
        if isinstance(event, BlockOpened):
            if event.kind == "tool_call":
                call_id = self._call_ids[event.index] = self._mint()
                self.outcome.call_ids.append(call_id)
                return msgspec.structs.replace(event, call_id=call_id)
            if event.kind == "reasoning":
                self._reasoning_from = len(self.outcome.output_ids)
        elif isinstance(event, ToolCallClosed):
            return msgspec.structs.replace(event, call_id=self._call_ids[event.index])
        elif isinstance(event, BlockClosed) and event.kind == "reasoning":
            if self._reasoning_from is not None:
                self._reasoning_tokens += len(self.outcome.output_ids) - self._reasoning_from
                self._reasoning_from = None
            if self._seals is not None:
                return msgspec.structs.replace(event, seal=self._seals.seal())
        return event
