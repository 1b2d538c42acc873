"""The TensorRT-LLM adapter: token ids in and out over `/v1/completions` of `trtllm-serve`.

Promise: as for every engine. The server gives either text or ids; ids are asked for and our tokenizer spells them.
"""

from __future__ import annotations

import msgspec

from turnwire.engines.http.engine import Call
from turnwire.engines.http.served import Models
from turnwire.engines.http.spelled import SpellingEngine
from turnwire.engines.http.spelled_completions import SpelledCompletions
from turnwire.engines.http.spelling import SpellingTokenizer
from turnwire.engines.http.wishes import made, sampling_wishes
from turnwire.engines.interface import Capabilities, Constraint, EngineError, EngineInfo, GenerateRequest
from turnwire.token_ids import ids_json

__all__ = ["TRTLLMEngine"]

_PRIORITY_SPAN = 10
"""Priorities from -10 to 10 are spread over the server's 0 to 1; 0 is its default, the middle."""


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
            "prompt": ids_json(request.prompt_ids),
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

    def _reading(self, request: GenerateRequest) -> SpelledCompletions:
        return SpelledCompletions(self.name, len(request.prompt_ids), self._speller(request))


def _guidance(constraint: Constraint) -> dict[str, object]:
    if constraint.json_schema is not None:
        return {"type": "json", "schema": constraint.json_schema}
    if constraint.regex is not None:
        return {"type": "regex", "regex": constraint.regex}
    if constraint.gbnf is not None:
        return {"type": "ebnf", "ebnf": constraint.gbnf}
    raise EngineError("invalid_request", "TensorRT-LLM follows no Lark grammars; give json_schema, regex or gbnf")
