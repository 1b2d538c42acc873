"""The SGLang adapter: token ids in and out over `/generate`.

Promise: as for every engine. SGLang's own text is not used: its stream may already have sent the beginning of a stop
string that it takes back at the end, so our tokenizer spells the ids. Both of its streaming forms (everything so far,
or only what is new) read the same.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec

from turnwire.engines.failures import ended_by, failure
from turnwire.engines.http.completions import failed_with
from turnwire.engines.http.engine import Call
from turnwire.engines.http.served import Models
from turnwire.engines.http.spelled import SpelledReading, SpellingEngine
from turnwire.engines.http.spelling import Speller, SpellingTokenizer
from turnwire.engines.http.wishes import made, sampling_wishes
from turnwire.engines.images import PromptTokenizer, as_text, image_url, retokenized
from turnwire.engines.interface import (
    Capabilities,
    Completion,
    Constraint,
    EngineError,
    EngineInfo,
    GenerateRequest,
    ImageWriting,
    TokenBatch,
    TokenLogprob,
)
from turnwire.engines.kv_source import KVSource, kv_source
from turnwire.engines.vocabulary import check_ids, foreign, id_count, sample
from turnwire.token_ids import ids_json
from turnwire.turns import FinishReason, Note
from turnwire.unreadable import UNREADABLE

__all__ = ["SGLangEngine", "SGLangReading"]


class _Finish(msgspec.Struct, gc=False):
    type: str = ""
    matched: int | str | list[int] | None = None
    message: str | None = None
    status_code: int | None = None


_Logprob = tuple[float | None, int, str | None]


class _Meta(msgspec.Struct, gc=False):
    finish_reason: _Finish | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    output_token_logprobs: list[_Logprob] = []
    output_top_logprobs: list[list[_Logprob] | None] = []


class _Chunk(msgspec.Struct, gc=False):
    output_ids: list[int] = []
    meta_info: _Meta | None = None
    error: dict[str, Any] | str | None = None


_CHUNKS = msgspec.json.Decoder(list[_Chunk])
_FINISH: Mapping[str, FinishReason] = {"stop": "stop", "length": "length"}


class SGLangReading(SpelledReading):
    """A `/generate` stream. A chunk whose ids are as many as the tokens generated so far starts over from the first."""

    def __init__(self, engine: str, prompt_tokens: int, speller: Speller) -> None:
        super().__init__(engine, prompt_tokens, speller)
        self._told = 0

    def feed(self, events: bytes) -> TokenBatch | None:
        ids: list[int] = []
        logprobs: list[TokenLogprob] = []
        last: _Meta | None = None
        for chunk in _CHUNKS.decode(events):
            if chunk.error is not None:
                self.error = failed_with(self._engine, chunk.error)
                break
            meta = chunk.meta_info
            if meta is None:
                continue
            finish = meta.finish_reason
            if finish is not None and finish.type not in _FINISH:
                # Its ids are not the model's: SGLang fills a refusal up with one it made up.
                self.error = self._unfinished(finish)
                break
            last = meta
            new, start = chunk.output_ids, 0
            if len(new) >= meta.completion_tokens:
                start = self._told
            ids += new[start:]
            self._told += len(new) - start
            if meta.output_token_logprobs:
                logprobs += _logprobs(meta, start)
        if last is None:
            return None
        finish = last.finish_reason
        if finish is not None and isinstance(finish.matched, int) and ids and ids[-1] == finish.matched:
            ids.pop()
        text = self._spell(ids, logprobs)
        if self._speller.stopped_by is not None:
            self.end = self._completion(last, "stop_sequence")
        elif finish is not None:
            text += self._speller.flush()
            self.end = self._completion(last, _FINISH[finish.type])
            if self._speller.stopped_by is not None:
                self.end = self._completion(last, "stop_sequence")
        return TokenBatch(text, tuple(ids), tuple(logprobs)) if text or ids else None

    def _unfinished(self, finish: _Finish) -> EngineError:
        if finish.type == "abort" and finish.status_code is not None:
            return failure(self._engine, finish.message or "aborted", status=finish.status_code)
        return ended_by(self._engine, finish.type)

    def _completion(self, meta: _Meta, reason: FinishReason) -> Completion:
        return Completion(
            reason,
            meta.prompt_tokens or self._prompt,
            meta.completion_tokens,
            meta.cached_tokens,
            self._speller.stopped_by,
        )


def _logprobs(meta: _Meta, start: int) -> list[TokenLogprob]:
    tops = meta.output_top_logprobs or [None] * len(meta.output_token_logprobs)
    return [
        TokenLogprob(
            text or "",
            -9999.0 if value is None else value,
            tuple((rival or "", -9999.0 if weight is None else weight) for weight, _, rival in top or ()),
        )
        for (value, _, text), top in list(zip(meta.output_token_logprobs, tops, strict=False))[start:]
    ]


class _ServerInfo(msgspec.Struct):
    version: str | None = None
    enable_priority_scheduling: bool = False
    schedule_low_priority_values_first: bool = False
    disable_radix_cache: bool = False
    incremental_streaming_output: bool | None = None
    stream_output: bool | None = None
    kv_events_config: str | None = None


class _ModelInfo(msgspec.Struct):
    has_image_understanding: bool | None = None


class _Texts(msgspec.Struct):
    text: list[str]


_NO_PROMPT = 7
"""How many tokens of its window SGLang keeps free of prompts."""
_NO_ANSWER = 2
"""How many it never fills at all."""


class SGLangTokenizer(SpellingTokenizer, PromptTokenizer, Protocol):
    """The part of a tokenizer that this adapter needs."""


class SGLangEngine(SpellingEngine):
    """An SGLang server. Images go beside the ids; its processor puts their tokens where the template's mark is."""

    name = "SGLang"
    capabilities = Capabilities(
        yields="tokens",
        guided=frozenset({"json_schema", "regex", "gbnf"}),
        cache_salt=True,
        cached_tokens=True,
    )
    _low_first = False
    _id_count = 0

    def __init__(
        self, base_url: str, tokenizer: SGLangTokenizer, *, model: str | None = None, api_key: str | None = None
    ) -> None:
        super().__init__(base_url, tokenizer, model=model, api_key=api_key)
        self._prompt_tokenizer = tokenizer

    async def _discover(self) -> EngineInfo:
        models = (await self._ask("/v1/models", Models)).data
        if not models:
            raise EngineError("internal", f"SGLang at {self._base} serves no model")
        known = next((model for model in models if model.id == self._model), models[0])
        if self._model is not None and known.id != self._model:
            raise EngineError(
                "invalid_request",
                f"SGLang at {self._base} serves no model {self._model!r} but {known.id}; "
                "name it by --served-model-name",
            )
        self._model, self._window = known.id, known.max_model_len
        info = await self._maybe("/server_info", _ServerInfo) or await self._maybe("/get_server_info", _ServerInfo)
        warnings = []
        if info is None:
            warnings.append("/server_info does not answer, so neither priorities nor the cache could be checked")
            info = _ServerInfo(incremental_streaming_output=True)
        elif not info.enable_priority_scheduling:
            warnings.append("priorities are ignored: start SGLang with --enable-priority-scheduling")
        if info.disable_radix_cache:
            warnings.append("prefix caching is off: start SGLang without --disable-radix-cache")
        if not (info.incremental_streaming_output or info.stream_output):
            warnings.append(
                "every chunk repeats the whole answer so far, which costs quadratic time: "
                "start SGLang with --incremental-streaming-output"
            )
        warnings += await self._compare()
        self._low_first = info.schedule_low_priority_values_first
        told = await self._maybe("/get_model_info", _ModelInfo) or _ModelInfo()
        sees = told.has_image_understanding
        self.capabilities = msgspec.structs.replace(
            self.capabilities, priority=info.enable_priority_scheduling, images=bool(sees)
        )
        return EngineInfo(
            name="sglang",
            version=info.version,
            model=known.id,
            window=self._window,
            kv_events=self._kv_events(info.kv_events_config),
            sees=sees,
            images=ImageWriting() if sees else None,
            warnings=tuple(warnings),
        )

    async def _compare(self) -> list[str]:
        """Whether the server's tokenizer is ours. An id that its model does not have ends the whole server, so what it
        has is found out, and no other id is sent."""
        count = self._id_count = id_count(self._tokenizer)
        ids = sample(count)
        texts = await self._spelled(ids)
        if texts is None:
            return ["the tokenizer could not be compared with the server's: /detokenize does not answer"]
        if found := foreign(self._tokenizer, ids, texts):
            self._id_count = await self._count(count)
        return found

    async def _spelled(self, ids: Sequence[int]) -> list[str] | None:
        question = {"model": self._model, "tokens": [[token] for token in ids], "skip_special_tokens": False}
        answer = await self._maybe("/detokenize", _Texts, question)
        return answer.text if answer is not None and len(answer.text) == len(ids) else None

    async def _count(self, most: int) -> int:
        """How many ids the server's tokenizer has, up to `most`: the ids after its last one have no text."""
        low, high = 0, most
        while low < high:
            middle = (low + high) // 2
            texts = await self._spelled([middle])
            if texts and texts[0]:
                low = middle + 1
            else:
                high = middle
        return low

    def _kv_events(self, told: str | None) -> tuple[KVSource, ...]:
        try:
            config = msgspec.json.decode(told, type=dict[str, Any]) if told else {}
        except UNREADABLE:
            config = {}
        source = kv_source(config, urlsplit(self._base).hostname or "127.0.0.1")
        return (source,) if source is not None else ()

    def _call(self, request: GenerateRequest) -> Call:
        sampling, hints = request.sampling, request.hints
        prompt, window = request.prompt_ids, self._window
        if window is not None and len(prompt) > window - _NO_PROMPT:
            raise EngineError(
                "context_overflow", f"prompt is too long: {len(prompt)} tokens > {window - _NO_PROMPT} maximum"
            )
        check_ids(prompt, self._id_count)
        params = made(
            {
                "max_new_tokens": self._room(request, reserve=_NO_ANSWER),
                **sampling_wishes(sampling),
                "sampling_seed": sampling.seed,
                "stop": list(sampling.stop) or None,
                "stop_token_ids": list(request.stop_token_ids) or None,
            }
        )
        params["skip_special_tokens"] = False
        params["spaces_between_special_tokens"] = False
        if self._window is None and sampling.max_tokens is None:
            params["max_new_tokens"] = None
        if request.constraint is not None:
            params.update(_guidance(request.constraint))
        body: dict[str, object] = {
            # Aborts go to every id that begins like theirs, so each has the same length and an end of its own.
            "rid": f"{hints.request_id}-{secrets.token_hex(8)}",
            "input_ids": ids_json(prompt),
            "sampling_params": params,
            "stream": True,
        }
        if sampling.logprobs is not None:
            body |= {
                "return_logprob": True,
                "logprob_start_len": -1,
                "top_logprobs_num": sampling.logprobs,
                "return_text_in_logprobs": True,
            }
        if hints.cache_salt:
            body["extra_key"] = hints.cache_salt
        if self.capabilities.priority:
            body["priority"] = -hints.priority if self._low_first else hints.priority
        notes: tuple[Note, ...] = ()
        if request.images:
            # Most of its processors read the prompt's text and tokenize it anew.
            exact = as_text(self._prompt_tokenizer, prompt)[1]
            body["image_data"] = [image_url(image) for image in request.images]
            notes = () if exact else (retokenized(),)
        return Call("/generate", body, notes)

    def _reading(self, request: GenerateRequest) -> SGLangReading:
        return SGLangReading(self.name, len(request.prompt_ids), self._speller(request))

    def _abort_call(self, call: Call) -> Call:
        """SGLang looks for closed connections only now and then; asked by name, it stops at once."""
        return Call("/abort_request", {"rid": call.body["rid"]})


def _guidance(constraint: Constraint) -> dict[str, object]:
    if constraint.json_schema is not None:
        return {"json_schema": msgspec.json.encode(constraint.json_schema).decode()}
    if constraint.regex is not None:
        return {"regex": constraint.regex}
    if constraint.gbnf is not None:
        return {"ebnf": constraint.gbnf}
    raise EngineError("invalid_request", "SGLang follows no Lark grammars; give json_schema, regex or gbnf")
