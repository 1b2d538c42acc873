"""Ollama by its raw completions: the prompt is written here and sent as text over `/api/generate` with `raw`.

Promise: as for servers that complete text. Ollama applies no template, splits off no thoughts, cuts no prompt and drops
no old tokens; the window is the one that the model is loaded with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from turnwire.engines.failures import ended_by
from turnwire.engines.http.completions import failed_with
from turnwire.engines.http.engine import Call, HTTPEngine, Reading
from turnwire.engines.http.lines import LineReader
from turnwire.engines.http.wishes import made, sampling_wishes
from turnwire.engines.images import PromptTokenizer, as_text
from turnwire.engines.interface import (
    Capabilities,
    Completion,
    EngineError,
    EngineInfo,
    GenerateRequest,
    TokenBatch,
)
from turnwire.turns import FinishReason

__all__ = ["OllamaEngine", "OllamaReading"]

_FINISH: Mapping[str, FinishReason] = {"stop": "stop", "length": "length"}


class _Line(msgspec.Struct, gc=False):
    response: str = ""
    done: bool = False
    done_reason: str = ""
    prompt_eval_count: int = 0
    eval_count: int = 0
    error: str | dict[str, Any] | None = None


_LINES = msgspec.json.Decoder(list[_Line])


class OllamaReading(Reading):
    """A stream of `/api/generate`."""

    def __init__(self, prompt_tokens: int) -> None:
        self._prompt = prompt_tokens

    def feed(self, events: bytes) -> TokenBatch | None:
        texts: list[str] = []
        for line in _LINES.decode(events):
            if line.error is not None:
                self.error = failed_with("Ollama", line.error)
                break
            texts.append(line.response)
            if line.done:
                reason = _FINISH.get(line.done_reason or "stop")
                if reason is None:
                    self.error = ended_by("Ollama", line.done_reason)
                else:
                    self.end = Completion(reason, line.prompt_eval_count or self._prompt, line.eval_count)
                break
        text = "".join(texts)
        return TokenBatch(text) if text else None


class _Running(msgspec.Struct):
    name: str = ""
    context_length: int | None = None


class _Processes(msgspec.Struct):
    models: list[_Running] = []


class _Shown(msgspec.Struct):
    model_info: dict[str, Any] = {}


class _Version(msgspec.Struct):
    version: str


class OllamaEngine(HTTPEngine):
    """One model of an Ollama server. `window` is what it is to be loaded with; None: as Ollama is set up."""

    name = "Ollama"
    capabilities = Capabilities(yields="text", guided=frozenset({"json_schema"}))
    reader = LineReader

    def __init__(
        self,
        base_url: str,
        tokenizer: PromptTokenizer,
        *,
        model: str | None = None,
        api_key: str | None = None,
        window: int | None = None,
    ) -> None:
        super().__init__(base_url.removesuffix("/v1"), model=model, api_key=api_key)
        self._tokenizer = tokenizer
        self._wanted = window
        # The text of the token that Ollama puts before every prompt by itself.
        self._begin = ""

    async def _discover(self) -> EngineInfo:
        version = await self._ask("/api/version", _Version)
        if self._model is None:
            raise EngineError("invalid_request", "name one of its models with --model")
        shown = await self._ask("/api/show", _Shown, {"model": self._model})
        facts = shown.model_info
        first = facts.get("tokenizer.ggml.bos_token_id")
        if facts.get("tokenizer.ggml.add_bos_token") and isinstance(first, int):
            self._begin = self._tokenizer.decode((first,))
        # Without a prompt it loads the model, and then says with which window.
        await self._ask_bytes("/api/generate", made({"model": self._model, "options": self._options() or None}))
        running = await self._ask("/api/ps", _Processes)
        loaded = next((each.context_length for each in running.models if each.name == self._model), None)
        self._window = self._wanted or loaded
        return EngineInfo(
            name="ollama", version=version.version, model=self._model, window=self._window, warnings=self._small()
        )

    def _small(self) -> tuple[str, ...]:
        if self._window is not None and self._window >= _AGENTS_NEED:
            return ()
        size = f"{self._window:,} tokens" if self._window else "not told"
        return (f"its window is {size}, and agents need more: give --window N, or OLLAMA_CONTEXT_LENGTH to Ollama",)

    def _options(self) -> dict[str, object]:
        return {"num_ctx": self._wanted} if self._wanted else {}

    async def health(self) -> bool:
        """Whether it answers at all."""
        try:
            await self._ask("/api/version", _Version)
        except EngineError:
            return False
        return True

    def _call(self, request: GenerateRequest) -> Call:
        sampling = request.sampling
        text, _ = as_text(self._tokenizer, request.prompt_ids)
        wishes = sampling_wishes(sampling)
        wishes["repeat_penalty"] = wishes.pop("repetition_penalty")
        room = self._room(request)
        options = self._options() | made(
            {**wishes, "num_predict": room, "seed": sampling.seed, "stop": list(sampling.stop) or None}
        )
        body: dict[str, object] = {
            "model": self._model,
            "prompt": text.removeprefix(self._begin),
            "raw": True,
            "stream": True,
            "think": False,
            "truncate": False,
            "shift": False,
            "options": options,
        }
        if request.constraint is not None and request.constraint.json_schema is not None:
            body["format"] = request.constraint.json_schema
        return Call("/api/generate", body)

    def _reading(self, request: GenerateRequest) -> OllamaReading:
        return OllamaReading(len(request.prompt_ids))


_AGENTS_NEED = 16_384
