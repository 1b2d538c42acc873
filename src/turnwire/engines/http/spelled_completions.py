"""A completions stream that is read by its token ids alone, whatever text the server makes of them.

Promise: works for `/v1/completions` and for `/v1/chat/completions` of servers that put `token_ids` into every choice;
the token that ended the turn is counted and not spelled.
"""

from __future__ import annotations

from turnwire.engines.failures import ended_by
from turnwire.engines.http.completions import Choice, UsageCounts, decode_chunks, failed, token_logprobs
from turnwire.engines.http.spelled import SpelledReading
from turnwire.engines.http.spelling import Speller
from turnwire.engines.interface import Completion, EngineError, TokenBatch, TokenLogprob
from turnwire.turns import FinishReason

__all__ = ["SpelledCompletions"]


class SpelledCompletions(SpelledReading):
    """A completions stream without text. Usage comes with every chunk, so a stop string ends it at once."""

    def __init__(self, engine: str, prompt_tokens: int, speller: Speller) -> None:
        super().__init__(engine, prompt_tokens, speller)
        self._usage = UsageCounts()
        self._output = 0
        self._reason: FinishReason | None = None

    def feed(self, events: bytes) -> TokenBatch | None:
        ids: list[int] = []
        logprobs: list[TokenLogprob] = []
        final = False
        for chunk in decode_chunks(events):
            if chunk.usage is not None:
                self._usage = chunk.usage
                final = not chunk.choices
            if not chunk.choices:
                if chunk.error is not None or chunk.message is not None:
                    self.error = failed(self._engine, chunk)
                continue
            choice = chunk.choices[0]
            ids += choice.token_ids or ()
            if choice.logprobs is not None:
                logprobs += token_logprobs(choice.logprobs)
            if choice.finish_reason is not None:
                self._finish(choice, ids, logprobs)
        text = self._spell(ids, logprobs)
        self._output += len(ids)
        if self._reason is not None and self._speller.stopped_by is None:
            text += self._speller.flush()
        if self._speller.stopped_by is not None:
            self._reason = "stop_sequence"
            self.end = self._completion(self._output)
        elif self._reason is not None and final:
            self.end = self._completion(self._usage.completion_tokens or self._output)
        return TokenBatch(text, tuple(ids), tuple(logprobs)) if text or ids else None

    def close(self) -> Completion | None:
        if self.end is None and self._reason is not None:
            self.end = self._completion(self._usage.completion_tokens or self._output)
        return self.end

    def _finish(self, choice: Choice, ids: list[int], logprobs: list[TokenLogprob]) -> None:
        said = choice.finish_reason
        if said == "length":
            self._reason = "length"
        elif said == "stop":
            self._reason = "stop"
            if not isinstance(choice.stop_reason, str) and ids:
                ids.pop()
                del logprobs[len(ids) :]
        elif said == "timeout":
            self.error = EngineError("timeout", f"{self._engine}: the generation ran out of its time")
        else:
            self.error = ended_by(self._engine, said)

    def _completion(self, output: int) -> Completion:
        details = self._usage.prompt_tokens_details
        return Completion(
            self._reason or "stop",
            self._usage.prompt_tokens or self._prompt,
            output,
            (details.cached_tokens or 0) if details else 0,
            self._speller.stopped_by,
        )
