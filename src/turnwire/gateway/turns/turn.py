"""One turn, from a decoded request to the last byte: build the prompt, run the engine, parse, encode, write.

Promise: all tokens that an engine delivers in one wake-up leave as one write; each block reaches the client when its
last token arrives; a success is only ever sent after the engine's own completion; leaving early aborts the engine.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from turnwire.engines.guided.plan import ConstraintPlan, plan_constraint
from turnwire.engines.interface import Completion, EngineError, EventBatch, GenerateRequest, Hints, Step, TokenBatch
from turnwire.gateway.turns.passage import Passage, TurnOutcome
from turnwire.gateway.turns.reasoning_tokens import thought_tokens
from turnwire.parsers import Parser, start_state
from turnwire.prompts.recall.witness import Witness
from turnwire.protocols.wire import Encoder, ErrorKind, TurnFailure
from turnwire.turns import (
    BlockClosed,
    BlockDelta,
    BlockOpened,
    Event,
    Finished,
    FinishReason,
    Note,
    Sampling,
    SealCarried,
    TokensScored,
    ToolCallClosed,
    Usage,
)

__all__ = ["Sink", "Turn", "failure_of"]

log = logging.getLogger("turnwire.turn")

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

    def write(self, data: bytes) -> Awaitable[None]: ...


class Turn:
    """A single generation. The gateway's heartbeat reads `silent` and `writing` to keep it alive or end it. `settle` is
    awaited once the engine has finished and before the last bytes leave."""

    # How long the opening bytes wait for the engine's first step: a refusal that arrives sooner can still be a status.
    GRACE_S = 0.02

    def __init__(
        self,
        passage: Passage,
        encoder: Encoder,
        *,
        mint: Callable[[], str],
        settle: Callable[[Passage], Awaitable[None]] | None = None,
    ) -> None:
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
        self._settle = settle
        self._call_ids: dict[int, str] = {}
        self._parser: Parser | None = None
        self._texts: list[str] = []
        self._witness = self.outcome.witness = Witness()
        self._seals = self.runtime.seals_for(passage.tenant, passage.turn_id, self.prompt.tail, self._witness)
        self._sizes: list[int] = []
        self._opening: asyncio.Task[None] | None = None
        self._head = b""
        self._plan = ConstraintPlan()
        self._prefilled = 0
        self._text_blocks: set[int] = set()
        self._said: list[str] = []
        self._calls: list[tuple[str, str]] = []

    # ------------------------------------------------------------------------------------------------- running

    def request(self, prefill: Sequence[int] = ()) -> GenerateRequest:
        """What the engine is asked for: `max_tokens` clamped to what fits in the window. `prefill` is put into the
        model's mouth: it stands behind the prompt and counts as output."""
        conversation = self.passage.inbound.conversation
        return GenerateRequest(
            prompt_ids=[*self.prompt.ids, *prefill] if prefill else self.prompt.ids,
            constraint=self._plan.constraint,
            sampling=self._bounded(self.runtime.defaults_under(conversation.sampling), len(prefill)),
            hints=Hints(
                request_id=self.passage.turn_id,
                session=conversation.context.session,
                priority=conversation.context.priority,
                cache_salt=self.runtime.cache_salt(self.passage.tenant),
            ),
            conversation=conversation,
            stop_token_ids=self.runtime.stop_token_ids,
        )

    def _bounded(self, sampling: Sampling, prefilled: int) -> Sampling:
        """`max_tokens` within what the window has left. A server that writes and counts the prompt itself sees to that
        by itself."""
        if not self.runtime.writes_prompts:
            return sampling
        room = self.runtime.window - len(self.prompt.ids) - prefilled
        if room <= 0:
            raise TurnFailure(
                "context_overflow",
                f"The prompt has {len(self.prompt.ids)} tokens and the model's window is {self.runtime.window}.",
                prompt_tokens=len(self.prompt.ids),
                window=self.runtime.window,
            )
        wanted = sampling.max_tokens
        return msgspec.structs.replace(sampling, max_tokens=room if wanted is None else min(wanted, room))

    async def run(self, sink: Sink) -> TurnOutcome:
        """Run to the end. Raises TurnFailure if nothing was sent yet; later failures are written to the sink."""
        runtime, conversation = self.runtime, self.passage.inbound.conversation
        start = start_state(self.prompt.tail, runtime.dialect)
        plan = self._plan = plan_constraint(conversation, runtime.dialect, runtime.engine.capabilities, start)
        self.outcome.notes.extend(plan.notes)
        if runtime.engine.capabilities.yields != "events":
            # Who forbade calls gets none: what the model writes all the same stays text, and no tool runs.
            forbidden = conversation.tool_choice.mode == "none"
            dialect = runtime.dialect.without_calls() if forbidden else runtime.dialect
            self._parser = Parser(dialect, conversation.tools, start)
        prefill = runtime.tokenizer.encode(plan.prefill) if plan.prefill else []
        self._prefilled = len(prefill)
        steps = runtime.engine.generate(self.request(prefill))
        self._head = self.encoder.start(self.usage)
        timer = asyncio.get_running_loop().call_later(self.GRACE_S, self._open_soon, sink)
        try:
            await self._drive(steps, sink, TokenBatch(plan.prefill, tuple(prefill)) if prefill else None)
        except EngineError as error:
            await self.fail(failure_of(error), sink)
        except TurnFailure as failure:
            await self.fail(failure, sink)
        except Exception:
            log.exception("turn %s: a defect", self.passage.turn_id)
            await self.fail(TurnFailure("internal", "The gateway failed in the middle of this turn."), sink)
        finally:
            timer.cancel()
            self.outcome.text = "".join(self._texts)
            await steps.aclose()
        return self.outcome

    async def _drive(self, steps: AsyncGenerator[Step, None], sink: Sink, first: TokenBatch | None) -> None:
        feed, encode, seals = self._parser.feed if self._parser else None, self.encoder.feed, self._seals
        # An engine that leaves special tokens out of its text still tells their ids: then the text is spelled here.
        skips = self.runtime.engine.capabilities.skips_special_tokens
        spell = self.runtime.tokenizer.detokenizer().feed if skips else None
        witnessed = self._witness.feed
        texts, sizes, ids = self._texts, self._sizes, self.outcome.output_ids
        if first is not None:
            await self._write(self._heard(first), sink)
        async for step in steps:
            self.silent = False
            if self.passage.first_token is None:
                self.passage.first_token = time.monotonic()
            if type(step) is TokenBatch:
                if spell is not None and step.ids:
                    step = TokenBatch(spell(step.ids), step.ids, step.logprobs)
                ids.extend(step.ids)
                texts.append(step.text)
                sizes.append(len(step.ids))
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

    def _heard(self, batch: TokenBatch) -> Sequence[Event]:
        """The events of text that did not come from the engine's stream (a prefill, a suffix)."""
        self.outcome.output_ids.extend(batch.ids)
        self._texts.append(batch.text)
        self._sizes.append(len(batch.ids))
        if self._seals is not None:
            self._seals.add(batch.ids)
        events = self._parser.feed(batch.text) if self._parser else []
        self._witness.feed(events)
        return self._dressed(events)

    async def _write(self, events: Sequence[Event], sink: Sink) -> None:
        data = self.encoder.feed(events)
        if data:
            await self._open(sink)
            await self._put(data, sink)

    async def _put(self, data: bytes, sink: Sink) -> None:
        """A write that the heartbeat can see."""
        self.writing = True
        await sink.write(data)
        self.writing = False

    async def _complete(self, completion: Completion, sink: Sink) -> None:
        dressed: list[Event] = []
        if self._plan.suffix and completion.reason == "stop":
            ids = tuple(self.runtime.tokenizer.encode(self._plan.suffix))
            dressed += self._heard(TokenBatch(self._plan.suffix, ids))
        if self._parser is not None:
            *events, finished = self._parser.finish(completion.reason)
        else:
            events, finished = [], Finished(self._ended(completion))
        assert isinstance(finished, Finished)
        if completion.stop_sequence is not None:
            finished = msgspec.structs.replace(finished, reason="stop_sequence", stop_sequence=completion.stop_sequence)
        self._witness.feed(events)
        dressed += self._dressed(events)
        dressed += self._checked()
        if self._seals is not None:
            trailing = self._seals.finish()
            if trailing is not None:
                dressed.append(SealCarried(-1, trailing))
        self.usage = Usage(
            completion.prompt_tokens - self._prefilled,
            completion.cached_tokens,
            completion.output_tokens + self._prefilled,
            thought_tokens(
                self._witness.thoughts, self._texts, self._sizes, self.outcome.output_ids, self.runtime.tokenizer
            )
            or completion.reasoning_tokens,
        )
        self.outcome.usage, self.outcome.finish = self.usage, finished
        dressed += (self.usage, finished)
        data = self.encoder.feed(dressed)
        # Before the client can know that the turn is over, and ask for the next one.
        self.outcome.text = "".join(self._texts)
        self.passage.outcome = self.outcome
        self.runtime.remember(self.passage)
        if self._settle is not None:
            await self._settle(self.passage)
        await self._open(sink)
        if data:
            await self._put(data, sink)

    def _ended(self, completion: Completion) -> FinishReason:
        """A structured engine says `stop` or `tool_calls` by its own lights; a call in the stream decides."""
        return "tool_calls" if completion.reason == "stop" and self._call_ids else completion.reason

    def _checked(self) -> list[Event]:
        """Notes on what the client demanded and did not get."""
        check = self._plan.check
        if check is None:
            return []
        faults = check.faults(self._calls, "".join(self._said))
        notes = [Note("constraint.violated", fault) for fault in faults]
        self.outcome.notes.extend(notes)
        return list(notes)

    async def fail(self, failure: TurnFailure, sink: Sink) -> None:
        """End the turn with a failure: raised while it can still be a status, else written as the API wants it."""
        self.outcome.failure = failure
        if self._opening is not None:
            await self._opening
        if not self.opened:
            raise failure
        data = self.encoder.fail(failure)
        if data:
            await self._put(data, sink)
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
        if self._head:
            await sink.write(self._head)
        self.opened = True

    # ----------------------------------------------------------------------------------------- ids, seals, notes

    def _dressed(self, events: Sequence[Event]) -> Sequence[Event]:
        """The same events with call ids minted and reasoning sealed; untouched (and uncopied) when there is only
        running text."""
        if self._plan.check is not None:
            self._listen(events)
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

    def _listen(self, events: Sequence[Event]) -> None:
        """Keep the turn's text and calls, for the check of what was demanded."""
        for event in events:
            if isinstance(event, BlockOpened) and event.kind == "text":
                self._text_blocks.add(event.index)
            elif isinstance(event, BlockDelta) and event.index in self._text_blocks:
                self._said.append(event.text)
            elif isinstance(event, ToolCallClosed):
                self._calls.append((event.name, event.arguments))

    def _dress(self, event: Event) -> Event:
        if isinstance(event, BlockOpened):
            if event.kind == "tool_call":
                # A structured engine finds its own ids in the next request; those in a model's text are not unique.
                given = event.call_id if self._parser is None else ""
                call_id = self._call_ids[event.index] = given or self._mint()
                self.outcome.call_ids.append(call_id)
                return msgspec.structs.replace(event, call_id=call_id)
        elif isinstance(event, ToolCallClosed):
            self.passage.call_parsed()
            return msgspec.structs.replace(event, call_id=self._call_ids[event.index])
        elif isinstance(event, BlockClosed) and event.kind == "reasoning" and self._seals is not None:
            return msgspec.structs.replace(event, seal=self._seals.seal())
        return event
