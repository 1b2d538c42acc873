"""The capture engine: answers each request with the captured turn it repeats, batch by batch.

Promise: a request with a captured prompt gets exactly what the engine said then, in the same batches. One with another
prompt (another date, another folder) gets the turn at the same place of the conversation, and a note says so; where
there is none, an error says what was asked for. No turn is played twice before all its likes were played once.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Sequence
from hashlib import blake2b

import msgspec

from turnwire.capture.fingerprint import tokenizer_print
from turnwire.capture.format import CapturedTurn, DoneStep, EventStep, FailedStep, Step, TokenStep
from turnwire.capture.reading import Capture
from turnwire.engines.bridge import refuse
from turnwire.engines.interface import (
    Capabilities,
    Completion,
    EngineError,
    EngineInfo,
    EventBatch,
    GenerateRequest,
    Generation,
    Receiver,
    TokenBatch,
    TokenLogprob,
)
from turnwire.prompts.prompt import Tokenizer
from turnwire.turns import Note

__all__ = ["OTHER_TOKENIZER", "CapturedEngine"]

OTHER_TOKENIZER = "give that model's folder, GGUF file or name with --tokenizer"
"""What to do about a capture that was made with another tokenizer."""


def _named(ids: Sequence[int]) -> bytes:
    return blake2b(array("q", ids).tobytes(), digest_size=16).digest()


class CapturedEngine:
    """Plays a capture's turns of one model. `watcher` is called with a turn's id and the time of each step before it is
    played, and with None when a capture ends before its turn did."""

    def __init__(self, capture: Capture, tokenizer: Tokenizer, *, model: str | None = None) -> None:
        name = model or next(iter(capture.models))
        self._model = capture.models.get(name) or next(iter(capture.models.values()))
        turns = [turn for turn in capture.turns if turn.model == self._model.id and not turn.memory]
        self._by_id = {turn.turn_id: turn for turn in capture.turns}
        self._by_prompt: dict[bytes, list[CapturedTurn]] = {}
        self._by_place: dict[tuple[str, int], list[CapturedTurn]] = {}
        for turn in turns:
            self._by_prompt.setdefault(_named(turn.prompt.ids), []).append(turn)
            self._by_place.setdefault((turn.turn_class, turn.place), []).append(turn)
        self._tokenizer = tokenizer
        self._capabilities = msgspec.convert(self._model.capabilities, Capabilities, strict=False)
        self._played: dict[str, int] = {}
        self._reached: dict[str, tuple[CapturedTurn, int]] = {}
        self._playing: set[_Play] = set()
        self.watcher: Callable[[str, float | None], None] | None = None

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    async def start(self) -> EngineInfo:
        same = tokenizer_print(self._tokenizer) == self._model.tokenizer
        warning = f"the capture was made with another tokenizer; {OTHER_TOKENIZER}"
        return EngineInfo(
            name="capture",
            model=self._model.id,
            window=self._model.window,
            warnings=() if same or self._capabilities.yields == "events" else (warning,),
        )

    def submit(self, request: GenerateRequest, receiver: Receiver) -> Generation:
        """Play the turn that the request repeats; see the interface's promise."""
        name = request.hints.request_id
        exact = True
        if request.resumed and name in self._reached:
            turn, start = self._reached[name]
        else:
            found, exact = self._found(request)
            if found is None:
                context = request.conversation.context
                words = (
                    f"the capture holds no {context.turn_class} turn after {request.conversation.assistant_turns} "
                    f"others; it has {len(self._by_id)} turns"
                )
                return refuse(EngineError("invalid_request", words), receiver)
            turn, start = found, 0
            self._played[turn.turn_id] = self._played.get(turn.turn_id, 0) + 1
        play = _Play(self, receiver, turn, start, name=name, exact=exact)
        self._playing.add(play)
        play.begin()
        return play

    def _found(self, request: GenerateRequest) -> tuple[CapturedTurn | None, bool]:
        named = self._by_id.get(request.hints.request_id)
        if named is not None:
            return named, True
        same = self._by_prompt.get(_named(request.prompt_ids)) if len(request.prompt_ids) else None
        if same:
            return self._least_played(same), True
        context = request.conversation.context
        near = self._by_place.get((context.turn_class, request.conversation.assistant_turns))
        return (self._least_played(near) if near else None), False

    def _least_played(self, turns: Sequence[CapturedTurn]) -> CapturedTurn:
        return min(turns, key=lambda turn: (self._played.get(turn.turn_id, 0), turn.at))

    def reached(self, play: _Play, name: str, step: int) -> None:
        """A play came to its end, or was stopped before this step."""
        self._playing.discard(play)
        self._reached[name] = (play.turn, step)
        while len(self._reached) > 1024:
            del self._reached[next(iter(self._reached))]

    async def health(self) -> bool:
        return True

    async def embed(self, inputs: Sequence[str]) -> list[list[float]]:
        raise EngineError("invalid_request", "a capture holds no embeddings")

    async def close(self) -> None:
        for play in tuple(self._playing):
            play.abort()
            play.receiver.failed(EngineError("disconnected", "the engine was closed"))


class _Play:
    """One captured turn on its way to a receiver, a step for each turn of the event loop."""

    def __init__(
        self, engine: CapturedEngine, receiver: Receiver, turn: CapturedTurn, start: int, *, name: str, exact: bool
    ) -> None:
        self._engine = engine
        self.receiver = receiver
        self.turn = turn
        self._name = name
        self._exact = exact
        self._at = start
        self._paused = self._over = False
        self._next: asyncio.Handle | None = None

    def begin(self) -> None:
        """Start to play."""
        self._next = asyncio.get_running_loop().call_soon(self._step)

    def abort(self) -> None:
        if not self._over:
            self._over = True
            if self._next is not None:
                self._next.cancel()
            self._engine.reached(self, self._name, self._at)

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        if self._paused and not self._over:
            self._paused = False
            self.begin()

    def _step(self) -> None:
        if self._paused or self._over:
            return
        watcher, steps = self._engine.watcher, self.turn.steps
        if not self._exact:
            self._exact = True
            self.receiver.events(EventBatch((Note("capture.other_prompt", f"played {self.turn.turn_id}"),)))
        if self._at >= len(steps):
            if watcher is not None:
                watcher(self._name, None)
            if not self._over:
                self.abort()
                self.receiver.failed(EngineError("disconnected", "the capture ends here"))
            return
        step = steps[self._at]
        if watcher is not None:
            watcher(self._name, step.at)
        self._at += 1
        if isinstance(step, DoneStep | FailedStep):
            self.abort()
        _push(step, self.receiver)
        if not self._over:
            self.begin()


def _push(step: Step, receiver: Receiver) -> None:
    match step:
        case TokenStep():
            scored = tuple(TokenLogprob(token, value, rivals) for token, value, rivals in step.logprobs)
            receiver.tokens(TokenBatch(step.text, tuple(max(token, 0) for token in step.ids), scored))
        case EventStep():
            receiver.events(EventBatch(step.events))
        case DoneStep():
            receiver.done(
                Completion(
                    step.reason,
                    step.prompt_tokens,
                    step.output_tokens,
                    step.cached_tokens,
                    step.stop_sequence,
                    step.reasoning_tokens,
                )
            )
        case FailedStep():
            # What a file says is data: a kind that this version does not know is an internal failure.
            kind = step.kind if step.kind in _KINDS else "internal"
            receiver.failed(EngineError(kind, step.message, retry_after=step.retry_after))  # type: ignore[arg-type]


_KINDS = frozenset(
    {"unreachable", "disconnected", "overloaded", "context_overflow", "invalid_request", "timeout", "internal"}
)
