"""The scripted engine: plays model output from a file, so that every client and every failure can be tested without a
model.

Promise: behaves as an engine does above the interface: tokens of the given tokenizer, max_tokens and stop strings
honoured, a prefix cache whose hits shorten the time to the first token, failures of every kind at a chosen token. Its
own cost per token is small enough to measure the rest of the house on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec

from turnwire.engines.bridge import refuse
from turnwire.engines.interface import (
    Capabilities,
    Completion,
    EngineError,
    EngineInfo,
    GenerateRequest,
    Generation,
    Receiver,
    TokenBatch,
)
from turnwire.engines.scripted.hashed_words import hashed_words
from turnwire.engines.scripted.prefix_cache_model import CachedSequence, PrefixCache
from turnwire.engines.scripted.script import Line, Script, ScriptTokenizer
from turnwire.engines.scripted.timer_wheel import Due, TimerWheel

__all__ = ["ScriptedEngine"]

_CAPABILITIES = Capabilities(yields="tokens", cached_tokens=True, cache_salt=True)


class ScriptedEngine:
    """Plays the lines of a script; docs/engines.md has the file's format."""

    def __init__(
        self,
        script: str | Path | Sequence[Line],
        tokenizer: ScriptTokenizer,
        *,
        window: int | None = None,
        prefill_tokens_per_s: float | None = None,
    ) -> None:
        if isinstance(script, (str, Path)):
            self._script = Script.load(script, tokenizer)
        else:
            self._script = Script(script, tokenizer)
        self._window = window
        self._prefill = prefill_tokens_per_s
        self.cache = PrefixCache()
        self.wheel = TimerWheel()
        self._playing: set[_Play] = set()
        self._closed = False

    @property
    def capabilities(self) -> Capabilities:
        return _CAPABILITIES

    async def start(self) -> EngineInfo:
        warnings = tuple(
            f"line {number} of the script does not survive the tokenizer unchanged; what it spells is played"
            for number in self._script.changed_by_tokenizer
        )
        return EngineInfo(name="scripted", window=self._window, embedding_models=("hashed-words",), warnings=warnings)

    def submit(self, request: GenerateRequest, receiver: Receiver) -> Generation:
        """Play the line that answers the request's conversation; see the interface's promise."""
        try:
            play = self._play(request, receiver)
        except EngineError as error:
            return refuse(error, receiver)
        self._playing.add(play)
        play.begin()
        return play

    def _play(self, request: GenerateRequest, receiver: Receiver) -> _Play:
        self._alive()
        prompt, resumed, sampling = request.prompt_ids, request.resumed, request.sampling
        if self._window is not None and len(prompt) >= self._window:
            raise EngineError(
                "context_overflow", f"the prompt has {len(prompt)} tokens; the window holds {self._window}"
            )
        origin = prompt[: len(prompt) - resumed] if resumed else prompt
        line = self._script.after_prompt(self._script.line_for(request.conversation), origin)
        if resumed and sampling.max_tokens is not None:
            sampling = msgspec.structs.replace(sampling, max_tokens=sampling.max_tokens + resumed)
        performance = self._script.perform(line, sampling)
        sequence = self.cache.sequence(prompt, request.hints.cache_salt)
        cached = self.cache.match(sequence)
        wait = line.first_delay_ms / 1000
        rate = line.prefill_tokens_per_s or self._prefill
        if rate:
            wait += (len(prompt) - cached) / rate
        batches = _after(performance.batches, resumed) if resumed else performance.batches
        end: Completion | None = None
        if performance.reason is not None:
            said = len(performance.ids) - resumed
            end = Completion(performance.reason, len(prompt), said, cached, performance.stop_sequence)
        said_ids = performance.ids[resumed:]
        return _Play(self, receiver, line, batches, wait=wait, prompt=(sequence, cached), said=said_ids, end=end)

    def over(self, play: _Play) -> None:
        """A play came to its end."""
        self._playing.discard(play)

    def _alive(self) -> None:
        if self._closed:
            raise _closed()

    async def health(self) -> bool:
        return not self._closed

    async def embed(self, inputs: Sequence[str]) -> list[list[float]]:
        """Stand-ins that know words but no meaning; see hashed_words."""
        self._alive()
        return [hashed_words(text) for text in inputs]

    async def close(self) -> None:
        self._closed = True
        self.wheel.close()
        for play in tuple(self._playing):
            play.fail(_closed())


class _Play:
    """One line on its way to a receiver. Batches leave by the schedule and not by the reader: one that was paused gets
    all that became due, as from a socket."""

    def __init__(
        self,
        engine: ScriptedEngine,
        receiver: Receiver,
        line: Line,
        batches: Sequence[TokenBatch],
        *,
        wait: float,
        prompt: tuple[CachedSequence, int],
        said: Sequence[int],
        end: Completion | None,
    ) -> None:
        self._engine = engine
        self._receiver = receiver
        self._line = line
        self._batches = batches
        self._prompt = prompt
        self._said = said
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._begun = self._loop.time() + wait
        self._wait = wait
        self._delay = line.delay_ms / 1000
        self._at = 0
        self._next: Due | asyncio.Handle | None = None
        self._paused = self._held = self._over = False

    def begin(self) -> None:
        """Start the schedule."""
        wheel, begin = self._engine.wheel, self._prefilled
        self._next = wheel.at(self._begun, begin) if self._wait else self._loop.call_soon(begin)

    def abort(self) -> None:
        self._over = True
        if self._next is not None:
            self._next.cancel()
        self._engine.over(self)

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        if self._held and not self._over:
            self._held = False
            self._next = self._loop.call_soon(self._step)

    def fail(self, error: EngineError) -> None:
        """End with a failure."""
        if not self._over:
            self.abort()
            self._receiver.failed(error)

    def _prefilled(self) -> None:
        sequence, cached = self._prompt
        self._engine.cache.store(sequence, cached)
        self._step()

    def _step(self) -> None:
        if self._paused:
            self._held = True
            return
        batches, at, delay = self._batches, self._at, self._delay
        count = len(batches)
        if at < count:
            due = at + 1
            if delay:
                due = max(due, min(int((self._loop.time() - self._begun) / delay + 1e-6) + 1, count))
            self._at = due
            if due < count:
                step = self._step
                self._next = (
                    self._engine.wheel.at(self._begun + due * delay, step) if delay else self._loop.call_soon(step)
                )
            self._receiver.tokens(batches[at] if due == at + 1 else _joined(batches[at:due]))
        if self._at == count and not self._over:
            self._finish()

    def _finish(self) -> None:
        line = self._line
        if self._end is not None:
            sequence, _ = self._prompt
            sequence.extend(self._said)
            self._engine.cache.store(sequence)
            self.abort()
            self._receiver.done(self._end)
        elif line.finish == "disconnect":
            self.fail(EngineError("disconnected", "the script disconnects here"))
        elif line.finish != "hang":
            self.fail(EngineError(line.error, line.message))


def _closed() -> EngineError:
    return EngineError("disconnected", "the engine was closed")


def _after(batches: Sequence[TokenBatch], resumed: int) -> tuple[TokenBatch, ...]:
    """What is left to say of a turn of which another worker has already said `resumed` tokens."""
    left: list[TokenBatch] = []
    for batch in batches:
        if resumed >= len(batch.ids):
            resumed -= len(batch.ids)
        elif resumed:
            left.append(TokenBatch("", batch.ids[resumed:], batch.logprobs[resumed:]))
            resumed = 0
        else:
            left.append(batch)
    return tuple(left)


def _joined(batches: Sequence[TokenBatch]) -> TokenBatch:
    return TokenBatch(
        "".join(batch.text for batch in batches),
        tuple(token for batch in batches for token in batch.ids),
        tuple(entry for batch in batches for entry in batch.logprobs),
    )
