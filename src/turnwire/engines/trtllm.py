"""The TensorRT-LLM adapter: token ids in and out over `/v1/completions` of `trtllm-serve`.

Promise: as for every engine. The server gives either text or ids; ids are asked for and our tokenizer spells them.
"""

from __future__ import annotations

import msgspec

from turnwire.engines.failures import ended_by
from turnwire.engines.http.completions import Choice, UsageCounts, decode_chunks, failed, token_logprobs
from turnwire.engines.http.engine import Call
from turnwire.engines.http.served import Models
from turnwire.engines.http.spelled import SpelledReading, SpellingEngine
from turnwire.engines.http.spelling import Speller, SpellingTokenizer
from turnwire.engines.http.wishes import made, sampling_wishes
from turnwire.engines.interface import (
    Capabilities,
    Completion,
    Constraint,
    EngineError,
    EngineInfo,
    GenerateRequest,
    TokenBatch,
    TokenLogprob,
)
from turnwire.turns import FinishReason

__all__ = ["TRTLLMEngine", "TRTLLMReading"]

_PRIORITY_SPAN = 10
"""Priorities from -10 to 10 are spread over the server's 0 to 1; 0 is its default, the middle."""


class TRTLLMReading(SpelledReading):
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


class _Version(msgspec.Struct):
    version: str


class TRTLLMEngine(SpellingEngine):
    """A `trtllm-serve` server."""

    name = "TensorRT-LLM"
    capabilities = Capabilities(
        yields="tokens",
        guided=frozenset({"json_schema", "regex", "gbnf"}),
        priority=True,
        cached_tokens=True,
    )

    def __init__(
        self,
        base_url: str,
        tokenizer: SpellingTokenizer,
        *,
        model: str | None = None,
        api_key: str | None = None,
        window: int | None = None,
    ) -> None:
        super().__init__(base_url, tokenizer, model=model, api_key=api_key)
        self._window = window

    async def _discover(self) -> EngineInfo:
        version = await self._maybe("/version", _Version)
        models = (await self._ask("/v1/models", Models)).data
        if self._model is None and models:
            self._model = models[0].id
        if self._model is None:
            raise EngineError("internal", f"TensorRT-LLM at {self._base} serves no model")
        warnings = []
        if self._window is None:
            warnings.append("trtllm-serve does not report its window (--max_seq_len): set the window in the profile")
        return EngineInfo(
            name="trtllm",
            version=version.version if version else None,
            model=self._model,
            window=self._window,
            warnings=tuple(warnings),
        )

    def _call(self, request: GenerateRequest) -> Call:
        sampling, hints = request.sampling, request.hints
        body: dict[str, object] = {
            "model": self._model,
            "prompt": list(request.prompt_ids),
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            "detokenize": False,
            "add_special_tokens": False,
        }
        body |= made(
            {
                "max_tokens": self._room(request),
                **sampling_wishes(sampling),
                "seed": sampling.seed,
                "logprobs": sampling.logprobs,
                "stop_token_ids": list(request.stop_token_ids) or None,
            }
        )
        if sampling.stop:
            # With the stop string left in, the ids add up and our own search decides where the text ends.
            body |= {"stop": list(sampling.stop)}
        if sampling.stop or request.stop_token_ids:
            body["include_stop_str_in_output"] = True
        if hints.priority:
            bounded = max(-_PRIORITY_SPAN, min(_PRIORITY_SPAN, hints.priority))
            body["priority"] = 0.5 + bounded / (2 * _PRIORITY_SPAN)
        if request.constraint is not None:
            body["response_format"] = _guidance(request.constraint)
        return Call("/v1/completions", body)

    def _reading(self, request: GenerateRequest) -> TRTLLMReading:
        return TRTLLMReading(self.name, len(request.prompt_ids), self._speller(request))


def _guidance(constraint: Constraint) -> dict[str, object]:
    if constraint.json_schema is not None:
        return {"type": "json", "schema": constraint.json_schema}
    if constraint.regex is not None:
        return {"type": "regex", "regex": constraint.regex}
    if constraint.gbnf is not None:
        return {"type": "ebnf", "ebnf": constraint.gbnf}
    raise EngineError("invalid_request", "TensorRT-LLM follows no Lark grammars; give json_schema, regex or gbnf")
