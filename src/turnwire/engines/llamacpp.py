"""The llama.cpp adapter: token ids in and out over `/completion` of `llama-server`.

Promise: as for every engine. llama.cpp hides control tokens in its text, so ids are spelled by our own tokenizer. It
also reports only the last id of tokens that together make one character; these are the ids our tokenizer writes for
that character, so the ids always spell the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from turnwire.engines.failures import ended_by
from turnwire.engines.http.completions import failed_with
from turnwire.engines.http.engine import Call, HTTPEngine, Reading
from turnwire.engines.http.spelling import SpellingTokenizer
from turnwire.engines.http.stops import StopFinder
from turnwire.engines.http.wishes import made, sampling_wishes
from turnwire.engines.images import PromptTokenizer, as_text, retokenized
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
from turnwire.token_ids import ids_json
from turnwire.turns import FinishReason, Note

__all__ = ["LlamaCppEngine", "LlamaCppReading", "LlamaCppTokenizer"]


class LlamaCppTokenizer(SpellingTokenizer, PromptTokenizer, Protocol):
    """The part of a tokenizer that this adapter needs."""


class _Rival(msgspec.Struct, gc=False):
    token: str = ""
    logprob: float = 0.0
    top_logprobs: list[_Rival] = []


class _Progress(msgspec.Struct, gc=False):
    cache: int = 0


class _Timings(msgspec.Struct, gc=False):
    cache_n: int | None = None


class _Chunk(msgspec.Struct, gc=False):
    content: str = ""
    tokens: list[int] = []
    stop: bool = False
    stop_type: str = ""
    tokens_predicted: int = 0
    tokens_evaluated: int = 0
    prompt_progress: _Progress | None = None
    timings: _Timings | None = None
    completion_probabilities: list[_Rival] = []
    error: dict[str, Any] | str | None = None


_CHUNKS = msgspec.json.Decoder(list[_Chunk])
_FINISH: Mapping[str, FinishReason] = {"eos": "stop", "word": "stop", "limit": "length"}


class LlamaCppReading(Reading):
    """A `/completion` stream. Stop strings are looked for here, because llama.cpp forgets the ids of what it holds back
    for them. A control token may be the one that ends the turn, which only the next chunk shows: it waits that long."""

    def __init__(self, request: GenerateRequest, tokenizer: LlamaCppTokenizer, specials: frozenset[int]) -> None:
        self._prompt = len(request.prompt_ids)
        self._images = bool(request.images)
        self._tokenizer = tokenizer
        self._detokenizer = tokenizer.detokenizer()
        self._finder = StopFinder(request.sampling.stop)
        self._stop_ids = frozenset(request.stop_token_ids)
        self._specials = specials
        self._cached = 0
        self._predicted = 0
        self._doubtful: int | None = None

    def feed(self, events: bytes) -> TokenBatch | None:
        texts: list[str] = []
        ids: list[int] = []
        logprobs: list[TokenLogprob] = []
        for chunk in _CHUNKS.decode(events):
            if chunk.error is not None:
                self.error = failed_with("llama.cpp", chunk.error)
                break
            if chunk.prompt_progress is not None:
                self._cached = chunk.prompt_progress.cache
                continue
            if chunk.stop:
                self._finish(chunk, texts, ids)
                break
            count, self._predicted = chunk.tokens_predicted - self._predicted, chunk.tokens_predicted
            self._settle(texts, ids)
            logprobs += map(_logprob, chunk.completion_probabilities)
            self._take(chunk, count, texts, ids)
            if self._finder.found is not None:
                self.end = self._completion("stop_sequence")
                break
            if ids and ids[-1] in self._stop_ids:
                self._doubtful = ids.pop()
            if self._doubtful is not None and self._doubtful in self._stop_ids:
                texts.append(self._finder.flush())
                self.end = self._completion("stop")
                break
        text = "".join(texts)
        return TokenBatch(text, tuple(ids), tuple(logprobs[: len(ids)])) if text or ids else None

    def _take(self, chunk: _Chunk, count: int, texts: list[str], ids: list[int]) -> None:
        told = chunk.tokens
        if count <= len(told):
            if len(told) == 1 and told[0] in self._specials and _may_end(chunk.content):
                self._doubtful = told[0]
                return
            ids += told
            texts.append(self._finder.feed(self._detokenizer.feed(told)))
            return
        # Almost always these are the sampled ids. Where the model spelled a character in an unusual way they are not,
        # but they still spell the same text, which a gap would not.
        ids += self._tokenizer.encode(chunk.content)
        texts.append(self._finder.feed(chunk.content))

    def _settle(self, texts: list[str], ids: list[int]) -> None:
        """The doubtful token was not the last: it is text."""
        if self._doubtful is not None:
            ids.append(self._doubtful)
            texts.append(self._finder.feed(self._detokenizer.feed((self._doubtful,))))
            self._doubtful = None

    def _finish(self, chunk: _Chunk, texts: list[str], ids: list[int]) -> None:
        reason = _FINISH.get(chunk.stop_type)
        if reason is None:
            self.error = ended_by("llama.cpp", chunk.stop_type)
            return
        if chunk.stop_type == "eos":
            if self._doubtful is None and ids and ids[-1] in self._specials:
                ids.pop()
            self._doubtful = None
        self._settle(texts, ids)
        if self._finder.found is None:
            texts.append(self._finder.flush())
        if chunk.timings is not None and chunk.timings.cache_n is not None:
            self._cached = chunk.timings.cache_n
        self._predicted = chunk.tokens_predicted or self._predicted
        if self._images:
            self._prompt = chunk.tokens_evaluated or self._prompt
        if self._finder.found is not None:
            self.end = self._completion("stop_sequence")
        else:
            self.end = self._completion(reason)

    def _completion(self, reason: FinishReason) -> Completion:
        return Completion(reason, self._prompt, self._predicted, self._cached, self._finder.found)


def _may_end(content: str) -> bool:
    """Whether a special token may end the turn: control tokens are hidden, or, under --special, spelled like one."""
    return not content or content.startswith(("<|", "</s", "<end", "<eo"))


def _logprob(entry: _Rival) -> TokenLogprob:
    return TokenLogprob(entry.token, entry.logprob, tuple((rival.token, rival.logprob) for rival in entry.top_logprobs))


class _Settings(msgspec.Struct):
    n_ctx: int | None = None


class _Modalities(msgspec.Struct):
    vision: bool = False


class _Tokens(msgspec.Struct):
    tokens: list[int]


class _Props(msgspec.Struct):
    modalities: _Modalities = msgspec.field(default_factory=_Modalities)
    media_marker: str = "<__media__>"
    default_generation_settings: _Settings = msgspec.field(default_factory=_Settings)
    model_alias: str | None = None
    model_path: str | None = None
    build_info: str | None = None


class LlamaCppEngine(HTTPEngine):
    """A `llama-server`. A prompt with images goes as text, with a mark for each; the others go as ids."""

    name = "llama.cpp"
    capabilities = Capabilities(yields="tokens", guided=frozenset({"json_schema", "gbnf"}), cached_tokens=True)

    def __init__(
        self,
        base_url: str,
        tokenizer: LlamaCppTokenizer,
        *,
        model: str | None = None,
        api_key: str | None = None,
    ) -> None:
        super().__init__(base_url, model=model, api_key=api_key)
        self._tokenizer = tokenizer
        self._specials = frozenset(tokenizer.special_tokens.values())
        self._media_mark = ""
        # What it puts before every text by itself.
        self._added: list[int] = []

    async def _discover(self) -> EngineInfo:
        props = await self._ask("/props", _Props)
        self._window = props.default_generation_settings.n_ctx
        self._model = self._model or props.model_alias or props.model_path
        sees = props.modalities.vision
        if sees:
            self._media_mark = props.media_marker
            empty = {"content": "", "add_special": True}
            self._added = (await self._maybe("/tokenize", _Tokens, empty) or _Tokens([])).tokens
        self.capabilities = msgspec.structs.replace(self.capabilities, images=sees)
        warnings = await self._compared(self._tokenizer, "content")
        return EngineInfo(
            name="llamacpp",
            version=props.build_info,
            model=self._model,
            window=self._window,
            sees=sees,
            images=ImageWriting(mark=self._media_mark) if sees else None,
            warnings=tuple(warnings),
        )

    def _call(self, request: GenerateRequest) -> Call:
        sampling = request.sampling
        room = self._room(request)
        prompt: object = ids_json(request.prompt_ids)
        notes: tuple[Note, ...] = ()
        if request.images:
            prompt, notes = self._illustrated(request)
        body: dict[str, object] = {
            "prompt": prompt,
            "n_predict": -1 if room is None else room,
            "stream": True,
            "return_tokens": True,
            "return_progress": True,
            "cache_prompt": True,
        }
        wishes = sampling_wishes(sampling)
        wishes["repeat_penalty"] = wishes.pop("repetition_penalty")
        wishes |= {
            "seed": sampling.seed,
            "n_probs": None if sampling.logprobs is None else max(1, sampling.logprobs),
            "logit_bias": [[int(token), bias] for token, bias in sampling.logit_bias.items()] or None,
        }
        body |= made(wishes)
        if request.constraint is not None:
            body.update(_guidance(request.constraint))
        return Call("/completion", body, notes)

    def _illustrated(self, request: GenerateRequest) -> tuple[dict[str, object], tuple[Note, ...]]:
        """A prompt with its images, and a note where its tokens will not be those it was written with."""
        ids, added = list(request.prompt_ids), len(self._added)
        begins = ids[:added] == self._added
        text, exact = as_text(self._tokenizer, ids[added:] if begins else ids)
        if text.count(self._media_mark) != len(request.images):
            raise EngineError(
                "invalid_request", f"the text {self._media_mark!r} stands for an image here; leave it out of messages"
            )
        if any(image.url for image in request.images):
            raise EngineError("invalid_request", "llama.cpp fetches no images here; send the image itself as base64")
        illustrated: dict[str, object] = {
            "prompt_string": text,
            "multimodal_data": [image.data for image in request.images],
        }
        return illustrated, () if exact and begins else (retokenized(),)

    def _reading(self, request: GenerateRequest) -> LlamaCppReading:
        return LlamaCppReading(request, self._tokenizer, self._specials)


def _guidance(constraint: Constraint) -> dict[str, object]:
    if constraint.gbnf is not None:
        return {"grammar": constraint.gbnf}
    if constraint.json_schema is not None:
        return {"json_schema": constraint.json_schema}
    raise EngineError("invalid_request", "llama.cpp follows json_schema and gbnf constraints only")
