"""One generation on an engine core: the ids of each step become text for its receiver.

Promise: the receiver is called once per wake-up and ends with exactly one `done` or `failed`; stop strings are found
here and end the core's work. The core's one socket carries every generation, so a single one cannot be paused on the
wire: while it is paused its ids are kept here, and one that grows beyond the bound is aborted with an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from turnwire.engines.http.spelling import Speller
from turnwire.engines.interface import Completion, EngineError, Receiver, TokenBatch, TokenLogprob
from turnwire.engines.vllm_core.cores import Core
from turnwire.engines.vllm_core.layouts import Finish, Output
from turnwire.engines.vllm_core.logprobs import token_logprobs
from turnwire.turns import FinishReason

__all__ = ["HELD", "CoreGeneration"]

HELD = 1 << 16
"""How many ids are kept for a receiver that is paused."""

_REASONS: dict[int, FinishReason] = {Finish.STOP: "stop", Finish.LENGTH: "length", Finish.REPETITION: "stop"}


class Host(Protocol):
    """Who runs a generation: the engine."""

    def drop(self, generation: CoreGeneration, *, running: bool) -> None:
        """The generation is over; `running`: the core still works on it."""
        ...

    def later(self, generation: CoreGeneration) -> None:
        """Deliver what is kept, from the event loop."""
        ...


class CoreGeneration:
    """A running generation; see the interface's Generation."""

    __slots__ = (
        "_cached", "_constrained", "_count", "_error", "_finish", "_host", "_ids", "_logprobs", "_paused", "_plain",
        "_prompt", "_receiver", "_speller", "_spelling", "answered", "asked", "core", "id", "over",
    )  # fmt: skip

    def __init__(
        self,
        host: Host,
        request_id: str,
        core: Core,
        receiver: Receiver,
        speller: Speller,
        spelling: Callable[[int], str],
        *,
        prompt: int,
        constrained: bool,
        asked: float,
    ) -> None:
        self.id = request_id
        self.core = core
        self.asked = asked
        self.answered = False
        self.over = False
        self._host = host
        self._receiver = receiver
        self._speller = speller
        self._plain = speller.plain
        self._spelling = spelling
        self._prompt = prompt
        self._constrained = constrained
        self._ids: list[int] = []
        self._logprobs: list[TokenLogprob] = []
        self._finish: int | None = None
        self._error: EngineError | None = None
        self._cached = self._count = 0
        self._paused = False

    # ------------------------------------------------------------------------------------------- for the submitter

    def abort(self) -> None:
        """Stop the core's work; the receiver gets nothing more."""
        self._end(running=self._finish is None)

    def pause(self) -> None:
        """Keep what comes; see the module's promise."""
        self._paused = True

    def resume(self) -> None:
        """Deliver on."""
        if self._paused:
            self._paused = False
            if not self.over:
                self._host.later(self)

    # ---------------------------------------------------------------------------------------------- for the engine

    def take(self, output: Output, frames: Sequence[bytes]) -> None:
        """Note what a step brought; `deliver` follows when the wake-up has read everything."""
        self.answered = True
        ids = output.new_token_ids
        if self._ids:
            self._ids += ids
        else:
            self._ids = ids
        if output.new_logprobs is not None and self._error is None:
            try:
                self._logprobs += token_logprobs(output.new_logprobs, frames, self._spelling)
            except EngineError as error:
                self._error = error
        if output.prefill_stats is not None:
            self._cached = output.prefill_stats.num_cached_tokens
        if output.finish_reason is not None:
            self._finish = output.finish_reason

    def fail(self, error: EngineError) -> None:
        """The core is gone, or refuses; what it said before is still delivered, also to a receiver that is paused: an
        answer that is whole but for that is a success."""
        if self._error is None and self._finish is None:
            self._error = error
        self._paused = False
        self.deliver()

    def break_off(self, error: EngineError) -> None:
        """What came cannot be delivered."""
        if not self.over:
            self._failed(error, running=self._finish is None)

    def deliver(self) -> None:
        """Give the receiver what came since the last time."""
        if self.over:
            return
        if self._plain and self._finish is None and self._error is None and not self._paused and not self._logprobs:
            # The short way of nearly every step.
            ids, self._ids = self._ids, []
            self._count += len(ids)
            text, _ = self._speller.feed(ids)
            if ids:
                self._receiver.tokens(TokenBatch(text, tuple(ids)))
            return
        if self._paused and self._error is None:
            if len(self._ids) <= HELD:
                return
            self._error = EngineError(
                "overloaded", f"the answer was read too slowly: more than {HELD} tokens waited to be taken"
            )
        ids, self._ids = self._ids, []
        logprobs, self._logprobs = self._logprobs, []
        finish, ended = self._finish, False
        self._count += len(ids)
        if finish == Finish.STOP and ids:
            ids.pop()
            ended = True
            del logprobs[len(ids) :]
        speller = self._speller
        text, taken = speller.feed(ids)
        reason = _REASONS.get(finish) if finish is not None else None
        stopped = speller.stopped_by
        if stopped is None and reason is not None:
            text += speller.flush()
            stopped = speller.stopped_by
        if stopped is not None:
            self._count -= len(ids) - taken + ended
            del ids[taken:], logprobs[taken:]
        if text or ids:
            self._receiver.tokens(TokenBatch(text, tuple(ids), tuple(logprobs)))
            if self.over:
                return
        if stopped is not None:
            self._done("stop_sequence", stopped, running=finish is None)
        elif self._error is not None:
            self._failed(self._error, running=finish is None)
        elif reason is not None:
            self._done(reason, None, running=False)
        elif finish is not None:
            self._failed(self._refused(finish), running=False)

    def _refused(self, finish: int) -> EngineError:
        if finish == Finish.ABORT:
            return EngineError("disconnected", "vLLM aborted the generation: it is being shut down or paused")
        if self._constrained:
            return EngineError("invalid_request", "vLLM cannot follow the output constraint of this request")
        return EngineError("internal", "vLLM ended the generation with an error; its log says which")

    def _done(self, reason: FinishReason, stopped: str | None, *, running: bool) -> None:
        self._end(running=running)
        self._receiver.done(Completion(reason, self._prompt, self._count, self._cached, stopped))

    def _failed(self, error: EngineError, *, running: bool) -> None:
        self._end(running=running)
        self._receiver.failed(error)

    def _end(self, *, running: bool) -> None:
        if not self.over:
            self.over = True
            self._host.drop(self, running=running)
