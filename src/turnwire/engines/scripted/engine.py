"""The scripted engine: plays model output from a file, so that every client and every failure can be tested without a
model.

Promise: behaves as an engine does above the interface: tokens of the given tokenizer, max_tokens and stop strings
honoured, a prefix cache whose hits shorten the time to the first token, failures of every kind at a chosen token. Its
own cost per token is small enough to measure the rest of the house on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import NoReturn

import msgspec

from turnwire.engines.bridge import push
from turnwire.engines.interface import (
    Capabilities,
    Completion,
    EngineError,
    EngineInfo,
    GenerateRequest,
    Generation,
    Receiver,
    Step,
    TokenBatch,
)
from turnwire.engines.scripted.hashed_words import hashed_words
from turnwire.engines.scripted.prefix_cache_model import PrefixCache
from turnwire.engines.scripted.script import Line, Script, ScriptTokenizer
from turnwire.engines.scripted.timer_wheel import TimerWheel

__all__ = ["ScriptedEngine"]

_CAPABILITIES = Capabilities(yields="tokens", cached_tokens=True, cache_salt=True, logprobs=True, embeddings=True)


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
        self._cache = PrefixCache()
        self._wheel = TimerWheel()
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
        """Start a generation; see the interface's promise."""
        return push(self.generate(request), receiver)

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Step, None]:
        """Play the line that answers the request's conversation."""
        self._alive()
        prompt, salt = request.prompt_ids, request.hints.cache_salt
        if self._window is not None and len(prompt) >= self._window:
            raise EngineError(
                "context_overflow", f"the prompt has {len(prompt)} tokens; the window holds {self._window}"
            )
        resumed, sampling = request.resumed, request.sampling
        origin = prompt[: len(prompt) - resumed] if resumed else prompt
        line = self._script.behind(self._script.line_for(request.conversation), origin)
        if resumed and sampling.max_tokens is not None:
            sampling = msgspec.structs.replace(sampling, max_tokens=sampling.max_tokens + resumed)
        performance = self._script.perform(line, sampling)
        sequence = self._cache.sequence(prompt, salt)
        cached = self._cache.match(sequence)
        first = line.first_delay_ms / 1000
        rate = line.prefill_tokens_per_s or self._prefill
        if rate:
            first += (len(prompt) - cached) / rate
        batches = _behind(performance.batches, resumed) if resumed else performance.batches
        loop, wheel, delay = asyncio.get_running_loop(), self._wheel, line.delay_ms / 1000
        begun = loop.time() + first
        if first:
            await wheel.until(begun)
        else:
            await asyncio.sleep(0)
        self._cache.store(sequence, cached)
        at, count = 0, len(batches)
        while at < count:
            if not delay:
                due = at + 1
                if at:
                    await asyncio.sleep(0)
            else:
                # By the schedule and not by the reader: who comes late gets all that became due, as from a socket.
                due = min(int((loop.time() - begun) / delay + 1e-6) + 1, count)
                if due <= at:
                    await wheel.until(begun + at * delay)
                    due = at + 1
            self._alive()
            yield batches[at] if due == at + 1 else _joined(batches[at:due])
            at = due
        if performance.reason is None:
            await self._fail(line)
            return
        sequence.extend(performance.ids[resumed:])
        self._cache.store(sequence)
        said = len(performance.ids) - resumed
        yield Completion(performance.reason, len(prompt), said, cached, performance.stop_sequence)

    async def _fail(self, line: Line) -> NoReturn:
        if line.finish == "hang":
            await self._wheel.forever()
        if line.finish == "disconnect":
            raise EngineError("disconnected", "the script disconnects here")
        raise EngineError(line.error, line.message)

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
        self._wheel.close(_closed)


def _closed() -> EngineError:
    return EngineError("disconnected", "the engine was closed")


def _behind(batches: Sequence[TokenBatch], resumed: int) -> tuple[TokenBatch, ...]:
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
