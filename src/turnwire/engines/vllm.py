"""The vLLM adapter: token ids in and out over `/v1/completions`, or `/inference/v1/generate` where that is on.

Promise: exactly the prompt ids given are prefilled, and the ids that come back are the ones sampled; special tokens are
spelled out; cached tokens, priority, cache salt and guided decoding are used where the server has them, and `start`
says which flag turns on what it lacks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import to_builtins

from turnwire.engines.http.completions import Chunk, CompletionsReading
from turnwire.engines.http.engine import Call, HTTPEngine, Reading
from turnwire.engines.http.served import Models
from turnwire.engines.http.spelled_completions import SpelledCompletions
from turnwire.engines.http.spelling import Speller, SpellingTokenizer
from turnwire.engines.images import sample_image
from turnwire.engines.interface import (
    Capabilities,
    Constraint,
    EngineError,
    EngineInfo,
    GenerateRequest,
    ImageWriting,
)
from turnwire.engines.kv_source import KVSource, kv_source
from turnwire.engines.upstream.chat_body import chat_body
from turnwire.engines.upstream.thinking import Switches
from turnwire.token_ids import ids_json
from turnwire.turns import Note

__all__ = ["VLLMEngine"]

_MIN_VERSION = (0, 10, 2)
_NATIVE = "/inference/v1/generate"
_CHAT = "/v1/chat/completions"
_BY_CHAT = "With images vLLM writes the prompt by its chat route: earlier turns are not replayed token for token."


class _Version(msgspec.Struct):
    version: str


class VLLMEngine(HTTPEngine):
    """A vLLM server. It takes images by its chat route only, which gives the sampled ids all the same: `tokenizer`
    spells them, and `switches` says what the model's template calls thinking. Without it no images are sent."""

    name = "vLLM"
    capabilities = Capabilities(yields="tokens")

    def __init__(
        self,
        base_url: str,
        *,
        tokenizer: SpellingTokenizer | None = None,
        model: str | None = None,
        api_key: str | None = None,
        switches: Callable[[str], Switches | None] | None = None,
    ) -> None:
        super().__init__(base_url, model=model, api_key=api_key)
        self._tokenizer = tokenizer
        self._switches_of = switches
        self._structured = True
        self._native = False

    async def _discover(self) -> EngineInfo:
        version = await self._maybe("/version", _Version)
        models = (await self._ask("/v1/models", Models)).data
        known = next((model for model in models if model.id == self._model), None) if self._model else None
        warnings: list[str] = []
        if known is None and models:
            known = models[0]
            if self._model is not None:
                names = ", ".join(model.id for model in models)
                raise EngineError(
                    "invalid_request",
                    f"vLLM at {self._base} serves no model {self._model!r} but {names}; name it by --served-model-name",
                )
        if known is None:
            raise EngineError("internal", f"vLLM at {self._base} serves no model")
        self._model, self._window = known.id, known.max_model_len
        number = version.version if version else None
        if number and _version(number) < _MIN_VERSION:
            raise EngineError(
                "invalid_request",
                f"vLLM {number} cannot return token ids; use {'.'.join(map(str, _MIN_VERSION))} or newer",
            )
        self._structured = not number or _version(number) >= (0, 11, 0)
        self._native = await self._probe_native()
        metrics = await self._metrics()
        block, caching = _cache_facts(metrics)
        if not metrics:
            warnings.append("/metrics does not answer, so it could not be checked whether prefix caching is on")
        if caching is False:
            warnings.append("prefix caching is off: start vLLM with --enable-prefix-caching")
        priority = await self._probe_priority()
        if not priority:
            warnings.append("priorities are ignored: start vLLM with --scheduling-policy priority")
        cached = caching is not False and await self._probe_cached(block)
        sees = await self._probe_images()
        if sees is None:
            warnings.append("whether its model sees images could not be found out: it did not answer to one in time")
        if self._tokenizer is not None:
            warnings += await self._compared(self._tokenizer, "prompt")
        if not cached:
            warnings.append("cached tokens are not reported: start vLLM with --enable-prompt-tokens-details")
        self.capabilities = Capabilities(
            yields="tokens",
            guided=frozenset({"json_schema", "regex", "lark", "gbnf"}),
            priority=priority,
            cache_salt=True,
            cached_tokens=cached,
            images=bool(sees) and self._tokenizer is not None,
        )
        return EngineInfo(
            name="vllm",
            version=number,
            model=self._model,
            window=self._window,
            kv_events=await self._kv_events(),
            sees=sees,
            images=ImageWriting(mark="[image]", resumes=False) if self.capabilities.images else None,
            warnings=tuple(warnings),
        )

    async def _kv_events(self) -> tuple[KVSource, ...]:
        """Where it publishes what its cache holds; it says so in its development mode only."""
        told = await self._maybe("/kv_event_sources", dict[str, dict[str, Any]]) or {}
        host = urlsplit(self._base).hostname or "127.0.0.1"
        found = (kv_source(config, host, int(rank)) for rank, config in sorted(told.items()) if rank.isdecimal())
        return tuple(source for source in found if source is not None)

    async def _metrics(self) -> str:
        try:
            return (await self._ask_bytes("/metrics")).decode("utf-8", "replace")
        except EngineError as error:
            if error.kind == "unreachable":
                raise
            return ""

    async def _probe_native(self) -> bool:
        """Whether the tokens-in, tokens-out route is on and gives text too. It is leaner: `/v1/completions` sends the
        whole prompt back with the first token."""
        probe = {"token_ids": [1], "sampling_params": {"max_tokens": 1}, "output_mode": "text", "model": self._model}
        try:
            answer = await self._ask(_NATIVE, Chunk, probe)
        except EngineError as error:
            if error.kind == "unreachable":
                raise
            return False
        return bool(answer.choices and answer.choices[0].token_ids)

    async def _probe_priority(self) -> bool:
        """One token at another priority; a server without priority scheduling refuses it."""
        try:
            await self._ask("/v1/completions", Chunk, self._probe([1], priority=1))
        except EngineError as error:
            if error.kind != "invalid_request":
                raise
            return False
        return True

    async def _probe_cached(self, block: int) -> bool:
        """Whether usage has cached tokens. Some versions report them only where there are any, so it is asked twice."""
        prompt = [1] * min(2 * block + 1, (self._window or 4096) - 1)
        for _ in range(2):
            answer = await self._ask("/v1/completions", Chunk, self._probe(prompt))
            details = answer.usage.prompt_tokens_details if answer.usage else None
            if details is not None and details.cached_tokens is not None:
                return True
        return False

    async def _probe_images(self) -> bool | None:
        """Whether the model sees: vLLM tells it nowhere, but refuses an image that its model cannot take. None where it
        takes too long to say."""
        parts = [{"type": "image_url", "image_url": {"url": sample_image()}}, {"type": "text", "text": "?"}]
        try:
            await self._ask_bytes(
                _CHAT,
                {
                    "model": self._model,
                    "messages": [{"role": "user", "content": parts}],
                    "max_tokens": 1,
                    "temperature": 0,
                },
            )
        except EngineError as error:
            return None if error.kind == "unreachable" else False
        return True

    def _probe(self, prompt: list[int], **options: object) -> dict[str, object]:
        return {"model": self._model, "prompt": prompt, "max_tokens": 1, "temperature": 0, **options}

    def _call(self, request: GenerateRequest) -> Call:
        sampling, hints, room = request.sampling, request.hints, self._room(request)
        # Its names for sampling wishes are ours, and a wish that was not made is left out.
        options: dict[str, object] = to_builtins(sampling)
        options["skip_special_tokens"] = options["spaces_between_special_tokens"] = False
        if room is not None:
            options["max_tokens"] = room
        if request.stop_token_ids:
            options["stop_token_ids"] = request.stop_token_ids
        if request.constraint is not None:
            options |= self._guidance(request.constraint)
        body: dict[str, object] = {
            "model": self._model,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if hints.cache_salt:
            body["cache_salt"] = hints.cache_salt
        if hints.priority and self.capabilities.priority:
            # vLLM serves lower numbers earlier.
            body["priority"] = -hints.priority
        if request.images:
            return self._by_chat(request, body | options)
        # None, not left out: the default is 16.
        options.setdefault("max_tokens", None)
        prompt = ids_json(request.prompt_ids)
        if self._native and sampling.logprobs is None:
            body |= {"token_ids": prompt, "sampling_params": options, "output_mode": "text"}
            return Call(_NATIVE, body)
        body |= options
        body |= {"prompt": prompt, "return_token_ids": True, "add_special_tokens": False}
        return Call("/v1/completions", body)

    def _by_chat(self, request: GenerateRequest, options: dict[str, object]) -> Call:
        """A turn with images: the conversation in Chat Completions' words. Calls are not asked for, so that vLLM, with
        or without parsers of its own, shows the tools to the model and leaves its answer alone."""
        if request.resumed:
            raise EngineError("disconnected", "vLLM's chat route cannot go on with a turn that was begun elsewhere")
        switches = self._switches_of(self._model or "") if self._switches_of is not None else None
        body, notes = chat_body(request, self._model, "reasoning", "vllm", switches)
        for name in ("response_format", "parallel_tool_calls", "logprobs", "top_logprobs"):
            body.pop(name, None)
        options.pop("logprobs", None)
        body |= options | {"return_token_ids": True}
        if "tools" in body:
            body["tool_choice"] = "none"
        if request.conversation.messages and request.conversation.messages[-1].role == "assistant":
            body |= {"continue_final_message": True, "add_generation_prompt": False}
        return Call(_CHAT, body, (Note("engine.images_by_chat", _BY_CHAT), *notes))

    def _guidance(self, constraint: Constraint) -> dict[str, object]:
        kinds = {
            "json": constraint.json_schema,
            "regex": constraint.regex,
            "grammar": constraint.lark or constraint.gbnf,
        }
        wanted = {name: value for name, value in kinds.items() if value is not None}
        if self._structured:
            return {"structured_outputs": wanted}
        return {f"guided_{name}": value for name, value in wanted.items()}

    def _reading(self, request: GenerateRequest) -> Reading:
        if request.images and self._tokenizer is not None:
            speller = Speller(self._tokenizer, request.sampling.stop)
            return SpelledCompletions(self.name, len(request.prompt_ids), speller)
        return CompletionsReading(self.name, len(request.prompt_ids))


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def _cache_facts(metrics: str) -> tuple[int, bool | None]:
    """Block size, and whether prefix caching is on (None: unknown)."""
    for line in metrics.splitlines():
        if line.startswith("vllm:cache_config_info{"):
            facts = dict(re.findall(r'(\w+)="([^"]*)"', line))
            block = facts.get("block_size", "")
            caching = facts.get("enable_prefix_caching")
            return int(block) if block.isdigit() else 16, None if caching is None else caching == "True"
    return 16, None
