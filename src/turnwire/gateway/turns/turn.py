"""One turn, from an admitted request to its last byte: the engine pushes batches in, bytes leave at once.

Promise: all tokens that an engine delivers in one wake-up leave as one write, by plain calls from batch to bytes (a
long opening is a write of its own before them); each block reaches the client when its last token arrives; a success is
only ever sent after the engine's own completion; ending early aborts the engine. A slow reader pauses the engine's
stream.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from turnwire.engines.guided.plan import FREE, ConstraintPlan, plan_constraint
from turnwire.engines.interface import (
    Completion,
    EngineError,
    EventBatch,
    GenerateRequest,
    Generation,
    Route,
    RoutedReceiver,
    TokenBatch,
)
from turnwire.gateway.turns.asking import engine_request, stops_here
from turnwire.gateway.turns.endings import ClientGone, ending, failure_of
from turnwire.gateway.turns.output.log import OutputLog, Stamping
from turnwire.gateway.turns.output.report import turn_report
from turnwire.gateway.turns.output.running import MOST_GATHERED, Running
from turnwire.gateway.turns.output.steering import (
    AnswerStops,
    FirstCallOnly,
    ThinkingBudget,
    closing_text,
    thinking_budget,
)
from turnwire.gateway.turns.output.token_places import thought_tokens
from turnwire.gateway.turns.record import TurnOutcome, TurnRecord
from turnwire.gateway.turns.rounds import Rounds
from turnwire.gateway.turns.sink import Sink
from turnwire.parsers import Parser, Start, start_state
from turnwire.prompts.notes import noted
from turnwire.prompts.recall.witness import Witness
from turnwire.protocols.framing import one_line
from turnwire.protocols.reply import Reply
from turnwire.protocols.wire import Encoder, TurnFailure
from turnwire.turns import Event, Finished, FinishReason, Note, SealCarried, TokensScored, Usage

__all__ = ["Turn"]

log = logging.getLogger("turnwire.turn")


_encode = msgspec.json.Encoder().encode

_OVERRUN = 64
"""Tokens that an engine may say beyond what it was asked for: one that writes several in a step may stop late."""

_LONGEST = 128
"""More bytes than the tokens of any text have on average."""

_LONG = 32 * 1024
"""An opening of more bytes is a write of its own, so that it is not copied: a Responses answer begins with the
request's instructions."""


def _scored(batch: TokenBatch) -> TokensScored:
    return TokensScored(tuple((entry.token, entry.logprob, entry.top) for entry in batch.logprobs))


class Turn:
    """A single generation: what the engine pushes into, what the heartbeat watches, and what the sink reports to.
    `finished` is awaited once the engine has finished and before the last bytes leave. `cut` is true once it ended
    without a final event: a clean end would look like a success."""

    __slots__ = (
        "__weakref__",
        "_between",
        "_budget",
        "_ended",
        "_finished",
        "_first_call",
        "_generation",
        "_head",
        "_ids",
        "_left",
        "_log",
        "_loop",
        "_mint",
        "_most",
        "_parser",
        "_plan",
        "_prefilled",
        "_rounds",
        "_running",
        "_runs",
        "_stamping",
        "_stops",
        "_tools",
        "_witness",
        "cut",
        "encoder",
        "opened",
        "outcome",
        "record",
        "silent",
        "sink",
        "usage",
    )

    # How long the opening bytes wait for the engine's first step: a refusal that arrives sooner can still be a status.
    GRACE_S = 0.02

    def __init__(
        self,
        record: TurnRecord[Any],
        encoder: Encoder,
        sink: Sink,
        *,
        mint: Callable[[], str],
        finished: Callable[[TurnRecord[Any]], Awaitable[None]] | None = None,
        rounds: Rounds | None = None,
    ) -> None:
        self.record = record
        self.encoder = encoder
        self.sink = sink
        self._between: RoutedReceiver | None = None
        self.silent = True
        self.opened = False
        self.cut = False
        self._finished = finished
        self._mint = mint
        self._rounds = rounds
        self._tools: asyncio.Task[None] | None = None
        self._left: str | None = None
        self._log = OutputLog()
        self._ids = self._log.ids
        runtime, prompt = record.runtime, record.prompt
        self._witness = Witness(prompt.begun.text if prompt.begun is not None else "")
        seals = runtime.seals_for(record.tenant, record.turn_id, prompt, self._witness) if record.exact else None
        # An engine that parses by itself finds its own ids in the next request; those in a model's text are not unique.
        self._stamping = Stamping(self._log, record.blocks, mint, seals, keeps_ids=not runtime.writes_prompts)
        # What the engine will find in its cache is only foreseen here; the engine's own count replaces it at the end.
        foreseen = record.continuity.shared if runtime.engine.capabilities.cached_tokens else 0
        size = len(prompt.ids)
        self.usage = Usage(size, min(foreseen, size))
        self.outcome = TurnOutcome(usage=self.usage, witness=self._witness, output_ids=self._log.ids)
        self._plan: ConstraintPlan = FREE
        # How many tokens of the output the engine was given with its prompt.
        self._prefilled = 0
        # How many tokens it may have before the engine is stopped, which has not stopped where it was told to.
        self._most = sys.maxsize
        self._parser: Parser | None = None
        self._running = Running(self._log, self._witness, encoder)
        # Set once the stream is open, where nothing is asked of its running text but to run.
        self._runs = False
        self._first_call: FirstCallOnly | None = None
        self._stops: AnswerStops | None = None
        self._budget: ThinkingBudget | None = None
        self._head = b""
        self._generation: Generation | None = None
        # Asked once: to find the running loop takes a system call.
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[Completion] = self._loop.create_future()

    # ------------------------------------------------------------------------------------------------- running

    @property
    def receiver(self) -> RoutedReceiver:
        """What engines push into: the turn, or what a capture puts in between."""
        return self if self._between is None else self._between

    @receiver.setter
    def receiver(self, between: RoutedReceiver) -> None:
        self._between = between

    def request(self, prefill: Sequence[int] = ()) -> GenerateRequest:
        """What the engine is asked for. `prefill` follows the prompt and counts as the model's own output."""
        said = len(self._ids)
        request = engine_request(self.record, self._plan.constraint, prefill, said)
        if request.sampling.max_tokens is not None:
            self._most = said + request.sampling.max_tokens + _OVERRUN
        return request

    async def run(self) -> TurnOutcome:
        """Run to the end. Raises TurnFailure if nothing was sent yet; later failures are written to the sink. Raises
        ClientGone where there is nobody left to answer."""
        timer = self._loop.call_later(self.GRACE_S, self.open_stream)
        try:
            self._start()
            await self._complete(await self._ended)
        except EngineError as error:
            self._fail(failure_of(error))
        except TurnFailure as failure:
            self._fail(failure)
        except (asyncio.CancelledError, ClientGone):
            raise
        except Exception:
            log.exception("turn %s: a defect", self.record.turn_id)
            self._fail(TurnFailure("internal", "The gateway failed in the middle of this turn."))
        finally:
            timer.cancel()
            if self._generation is not None:
                self._generation.abort()
            if self.outcome.finish is None:
                self._note_outcome()
                if self.record.exact and self.record.first_token is not None:
                    self.record.runtime.remember_cut(self.record)
            self._let_go()
        return self.outcome

    def _let_go(self) -> None:
        """Open the circles in which a turn that is over would stay, with its prompt and its output, until the collector
        looks at what has lived for long."""
        self._generation = self._parser = self._between = None
        self._running.end()
        if self.outcome.finish is None:
            # An error that ended the turn knows the frames it went through, and they know the turn.
            self._ended = self._loop.create_future()
            self._ended.cancel()

    def _start(self) -> None:
        record = self.record
        if record.overflow is not None:
            raise record.overflow
        runtime, conversation = record.runtime, record.inbound.conversation
        capabilities = runtime.engine.capabilities
        start = start_state(record.prompt.tail, record.dialect)
        plan = self._plan = plan_constraint(conversation, record.dialect, capabilities, start)
        prefill = runtime.tokenizer.encode(plan.prefill) if plan.prefill else []
        self._prefilled = len(prefill)
        # First, so that the engine reads the prompt while the rest is made ready: it is heard by the event loop only,
        # which goes on once this is done.
        self._generation = runtime.engine.submit(self.request(prefill), self.receiver)
        self._stamping.notes.extend(plan.notes)
        if plan.check is not None and record.reply is None:
            record.reply = Reply()
        if capabilities.yields != "events":
            # Where the client forbids calls, what the model writes as a call stays text, and no tool runs.
            forbidden = conversation.tool_choice.mode == "none"
            dialect = record.dialect.without_calls() if forbidden else record.dialect
            self._parser = Parser(dialect, conversation.tools, start)
            if conversation.thinking.budget is not None and conversation.thinking.mode != "off":
                self._bound_thoughts(start)
            if stops_here(record):
                self._stops = AnswerStops(conversation.sampling.stop)
        if not conversation.tool_choice.parallel:
            self._first_call = FirstCallOnly(record.dialect)
        self._head = self.encoder.start(self.usage)
        if prefill:
            self._put(self.encoder.feed(self._heard(plan.prefill, prefill)))

    # ------------------------------------------------------------------------------------------ what engines push

    def tokens(self, batch: TokenBatch) -> None:
        """More output; see engines.interface.Receiver."""
        self.silent = False
        running, text = self._running, batch.text
        # Held by the object, not by its class: from local names they are called without a search.
        search = running.search
        try:
            if search is None or not text or batch.logprobs or search(text) is not None:
                self._take(batch)
                return
            # Nearly every token comes here, in one function: each call within it would cost as much as its longest
            # step.
            data = _encode(text)
            if not text.isascii():
                data = one_line(data)
            ids, gathered = batch.ids, running.gathered
            if len(ids) == 1:
                self._ids.append(ids[0])
            else:
                self._ids.extend(ids)
            # Only what was kept has a number: an id that no token can have has failed by now.
            gathered.append(batch)
            tail, number = running.tail, running.number
            if number >= 0:
                tail = tail % number
                running.number = number + 1
            write = self.sink.write
            write(running.head + data + tail)
            if len(gathered) >= MOST_GATHERED:
                running.settle()
                self._bound()
            budget = self._budget
            if budget is not None and budget.inside:
                budget.left -= len(ids)
                if budget.left <= 0:
                    self._close_thought()
        except Exception as error:
            self._end(error)

    def _take(self, batch: TokenBatch) -> None:
        """Take output that may be anything."""
        if self.record.first_token is None:
            self.record.called()
        events = self._heard(batch.text, batch.ids)
        if batch.logprobs:
            events = [*events, _scored(batch)]
        if events:
            self._put(self.encoder.feed(events))
        if self._budget is not None and self._budget.spend(events, len(batch.ids)):
            self._close_thought()
        elif self._runs and self._parser is not None:
            self._running.begin(self._parser)
        self._bound()

    def events(self, batch: EventBatch) -> None:
        """More output of an engine that parses by itself."""
        self.silent = False
        self.record.called()
        try:
            self._running.end()
            self._put(self.encoder.feed(self._stamped(batch.events)))
        except Exception as error:
            self._end(error)

    def routed(self, route: Route) -> None:
        """Where the turn runs."""
        self.record.route = route

    def done(self, completion: Completion) -> None:
        """The engine's own end."""
        if self.record.first_token is None:
            self.record.called()
        if not self._ended.done():
            self._ended.set_result(completion)

    def failed(self, error: EngineError) -> None:
        """Any other end."""
        self._end(error)

    def _end(self, error: Exception) -> None:
        if not self._ended.done():
            self._ended.set_exception(error)
        if self._generation is not None:
            self._generation.abort()

    def _heard(self, text: str, ids: Sequence[int]) -> Sequence[Event]:
        """The stamped events of more output."""
        self._running.end()
        self._log.add(text, ids)
        if self._parser is None:
            return ()
        events = self._parser.feed(text)
        return self._stamped(events) if events else ()

    def _stamped(self, events: Sequence[Event]) -> Sequence[Event]:
        if self._first_call is not None:
            events = self._first_call.take(events)
            if self._first_call.over:
                self._stop_at(self._first_call.kept)
        if self._stops is not None and self._stops.found is None:
            events = self._stops.take(events)
            if self._stops.found is not None:
                self._stop_at(self._stops.kept, self._stops.found)
        self._witness.feed(events)
        stamped = self._stamping.stamp(events)
        if self.record.reply is not None:
            self.record.reply.feed(stamped)
        return stamped

    # ----------------------------------------------------------------------------------- what the client asked for

    def _stop_at(self, kept: int, stop: str | None = None) -> None:
        """What comes after a stop string, or after the one call that the client wants at a time, is not part of the
        turn."""
        ended, record = self._ended.done(), self.record
        if self._parser is not None and (stop is not None or not ended):
            self._log.cut(kept, record.runtime.tokenizer)
            self._parser = None
        if ended:
            return
        if stop is None:
            self._stamping.notes.append(Note("calls.first_only", "The client asked for one call at a time."))
        self._stop("stop", stop)

    def _stop(self, reason: FinishReason, stop: str | None = None) -> None:
        """End the turn here, without the engine's word."""
        # Where nobody says ids, a batch is nearly always a token.
        output = max((len(self._ids) or len(self._log.sizes)) - self._prefilled, 0)
        prompt = len(self.record.prompt.ids) + self._prefilled
        self.done(Completion(reason, prompt, output, self.usage.cached, stop))
        if self._generation is not None:
            self._generation.abort()

    def _bound(self) -> None:
        """An engine that goes on behind the tokens it was asked for is stopped. One that says no ids is held to as much
        text as so many tokens can be."""
        over = len(self._ids) > self._most or self._log.size > self._most * _LONGEST
        if over and not self._ended.done():
            log.warning("turn %s: its engine did not stop where it was told to", self.record.turn_id)
            self._stop("length")

    def _bound_thoughts(self, start: Start) -> None:
        record = self.record
        conversation = record.inbound.conversation
        self._budget = thinking_budget(conversation, record.dialect, start)
        images = record.runtime.images
        tokens = record.runtime.engine.capabilities.yields == "tokens"
        once = not tokens or (images is not None and not images.resumes and record.runtime.shown(conversation))
        if self._budget is None or self._plan.constraint is not None or once:
            self._budget = None
            self._stamping.notes.append(
                Note("thinking.budget_unbounded", "The thinking budget cannot be held with this model and format.")
            )

    def _close_thought(self) -> None:
        """The budget is spent: close the thought in the model's own way and let the model go on from there."""
        runtime, text = self.record.runtime, closing_text(self.record.dialect)
        assert self._generation is not None
        assert text is not None
        self._running.end()
        self._generation.abort()
        self._budget = None
        self._stamping.notes.append(Note("thinking.budget_reached", "The thought was closed at its budget."))
        self._put(self.encoder.feed(self._heard(text, runtime.tokenizer.encode(text))))
        self._prefilled = len(self._log.ids)
        self._generation = runtime.engine.submit(self.request(self._log.ids), self.receiver)
        if self.sink.full:
            self._generation.pause()

    def _put(self, data: bytes, *, last: bool = False) -> None:
        if not data:
            return
        if not self.opened:
            head = self._opening()
            if len(head) > _LONG:
                self.sink.write(head)
            else:
                data = head + data
        write = self.sink.write_last if last else self.sink.write
        closed = self._stamping.closed
        if closed == len(self.record.dispatches):
            write(data)
            return
        parsed = time.perf_counter()
        write(data)
        took = time.perf_counter() - parsed
        self.record.dispatches.extend([took] * (closed - len(self.record.dispatches)))

    # ------------------------------------------------------------------------------------- what the client does

    def pause(self) -> None:
        """The client is slow: stop reading from the engine."""
        if self._generation is not None:
            self._generation.pause()

    def resume(self) -> None:
        """The client has caught up."""
        if self._generation is not None:
            self._generation.resume()

    def gone(self) -> None:
        """The client has left."""
        self.expire("gone")

    # --------------------------------------------------------------------------------------- what the heartbeat does

    @property
    def produced(self) -> int:
        """How many tokens the model has written so far."""
        return len(self._log.ids)

    @property
    def writing(self) -> bool:
        """Whether bytes wait for the client."""
        return self.sink.full

    def beat(self) -> None:
        """Write a sign of life."""
        self._running.end()
        if self.opened and (data := self.encoder.keepalive()):
            self.record.beats.append(time.monotonic())
            self.sink.write(data)

    def expire(self, reason: str) -> None:
        """End the turn early: `idle`, `stalled`, `shutdown`, `cancelled` or `gone`."""
        if self.record.ended_by is None and not self._ended.done():
            self.record.ended_by = reason
            self._end(ending(reason))
        elif self._rounds is not None and self._left is None:
            # Whatever would still follow this round does not.
            self._left = reason
            if self._tools is not None:
                self._tools.cancel()

    def _go_on(self) -> None:
        """Go on with the answer behind the engine's end, or raise why not."""
        if self._left is not None:
            self.record.ended_by = self._left
            raise ending(self._left)

    # ------------------------------------------------------------------------------------------------- the end

    async def _complete(self, completion: Completion) -> None:
        record, runtime = self.record, self.record.runtime
        self._running.end()
        last, finished = self._closed(completion)
        trailing = self._trailing_seal()
        if trailing is not None:
            last.append(SealCarried(-1, trailing))
            if record.reply is not None:
                record.reply.feed(last[-1:])
        self.usage = self._counted(completion)
        if record.inbound.report:
            last.append(turn_report(record, completion, self._log.ids, [*record.notes, *self._stamping.notes]))
        last += (self.usage, finished)
        data = self.encoder.feed(last)
        if trailing is not None and not self.encoder.carried:
            self._stamping.notes.append(noted("replay.store_only"))
        self.outcome.usage, self.outcome.finish = self.usage, finished
        self._note_outcome()
        # Before the client can know that the turn is over, and ask for the next one.
        if record.exact and (written := runtime.remember(record)) is not None:
            # So that a client that asks another process next finds its turn there.
            await runtime.written(written)
        if self._finished is not None:
            await self._finished(record)
        self._put(data, last=self._rounds is None)
        if self._rounds is not None and self._rounds.pending:
            await self._run_tools(self._rounds)
        elif self.encoder.streams:
            # A document of several answers is begun by the last of them, and may still be refused before.
            self._open()

    def _closed(self, completion: Completion) -> tuple[list[Event], Finished]:
        """The events that close the output, with what the client demanded and did not get, and the finish."""
        last: list[Event] = []
        if self._plan.suffix and completion.reason == "stop":
            last += self._heard(self._plan.suffix, self.record.runtime.tokenizer.encode(self._plan.suffix))
        if self._parser is not None:
            *events, finished = self._parser.finish(completion.reason)
        else:
            events, finished = [], Finished(self._reason(completion))
        assert isinstance(finished, Finished)
        last += self._stamped(events)
        stop = completion.stop_sequence or (self._stops.found if self._stops is not None else None)
        if stop is not None:
            finished = msgspec.structs.replace(finished, reason="stop_sequence", stop_sequence=stop)
        if self._plan.check is not None:
            last += self._violations()
        return last, finished

    def _trailing_seal(self) -> str | None:
        """The seal of what came after the last thought, where the next turn needs it."""
        record, seals = self.record, self._stamping.seals
        if seals is None or record.runtime.restores(record.prompt, self._witness, self._log.ids.tolist(), seals.sealed):
            return None
        return self._stamping.trailing_seal()

    def _counted(self, completion: Completion) -> Usage:
        """The engine's counts, with what it was given as prefill on the side of the output."""
        output, spans, thoughts = self._log, self._witness.thoughts, 0
        if spans:
            tokenizer = self.record.runtime.tokenizer
            thoughts = thought_tokens(spans, output.lengths, output.sizes, output.ids, tokenizer)
        prompt = max(completion.prompt_tokens - self._prefilled, 0)
        return Usage(
            prompt,
            min(completion.cached_tokens, prompt),
            completion.output_tokens + self._prefilled,
            thoughts or completion.reasoning_tokens,
        )

    async def _run_tools(self, rounds: Rounds) -> None:
        """Answer the calls that are the gateway's to run; without another round the answer ends here."""
        self._go_on()
        self._tools = asyncio.create_task(rounds.answer(self._put))
        try:
            await self._tools
        except asyncio.CancelledError:
            self._go_on()
            raise
        finally:
            self._tools.cancel()
        if not rounds.follows:
            self._put(await rounds.close())
            self._open()

    async def following(self) -> Turn | None:
        """The turn that goes on with this answer; None where it is over."""
        rounds = self._rounds
        if rounds is None or not rounds.follows:
            return None
        try:
            self._go_on()
            record = await rounds.following()
            self._go_on()
        except TurnFailure as failure:
            self._fail(failure)
            return None
        turn = Turn(record, self.encoder, self.sink, mint=self._mint, finished=self._finished, rounds=rounds)
        turn.opened = self.opened
        return turn

    def _reason(self, completion: Completion) -> FinishReason:
        """An engine that parses by itself may say `stop` after a call; a call in the stream decides."""
        return "tool_calls" if completion.reason == "stop" and self._stamping.calls else completion.reason

    def _violations(self) -> list[Note]:
        """Notes on what the client demanded and did not get."""
        check, reply = self._plan.check, self.record.reply
        if check is None or reply is None:
            return []
        calls = [(call.name, call.text) for call in reply.calls]
        notes = [Note("constraint.violated", fault) for fault in check.faults(calls, reply.joined("text"))]
        self._stamping.notes.extend(notes)
        return notes

    def _note_outcome(self) -> None:
        """Bring the outcome up to date, also of a turn that ends early."""
        self._running.end()
        outcome = self.outcome
        outcome.text = self._log.text
        outcome.notes = self._stamping.notes
        outcome.call_ids = list(self._stamping.calls.values())
        if outcome.finish is None:
            outcome.usage = msgspec.structs.replace(outcome.usage, output=len(self._log.ids))
        self.record.outcome = outcome

    def _fail(self, failure: TurnFailure) -> None:
        """End with a failure: raised while it can still be a status, else written as the API wants it."""
        self._running.end()
        self.outcome.failure = failure
        # A success that could not be kept is none.
        self.outcome.finish = None
        if not self.opened:
            raise failure
        data = self.encoder.fail(failure)
        if data:
            self.sink.write(data)
        else:
            self.cut = True

    # ------------------------------------------------------------------------------------------------- opening

    def open_stream(self) -> None:
        """Send the answer's head, if it streams and nothing speaks against it yet."""
        if self.encoder.streams and not self._ended.done():
            self._open()

    def _open(self) -> None:
        if not self.opened and (data := self._opening()):
            self.sink.write(data)

    def _opening(self) -> bytes:
        """Open the answer; what it begins with goes out with the first of the output, if that is there."""
        self.opened = True
        self.sink.open()
        steered = not (self._first_call is None and self._stops is None and self.record.reply is None)
        self._runs = not steered
        # Let go: a Responses answer begins with the instructions, twice.
        head, self._head = self._head, b""
        return head
