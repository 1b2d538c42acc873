"""Servers that complete text: the prompt is written here and sent as text over `/v1/completions`.

Promise: the server gets the very text of the prompt's ids, and no content in it becomes a control token; what comes
back is the model's raw text, to be parsed here. Token ids do not travel on this wire.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from turnwire.engines.http.completions import CompletionsReading
from turnwire.engines.http.engine import Call, Reading
from turnwire.engines.http.wishes import made
from turnwire.engines.images import PromptTokenizer, as_text
from turnwire.engines.interface import Capabilities, EngineInfo, GenerateRequest
from turnwire.engines.upstream.chat import OpenAIEngine
from turnwire.engines.upstream.chat_body import limits
from turnwire.engines.upstream.thinking import Switches

__all__ = ["TextEngine"]


class TextEngine(OpenAIEngine):
    """Any server with OpenAI's completions route. The address is its base, with or without `/v1`."""

    name = "the completions server"

    def __init__(
        self,
        base_url: str,
        tokenizer: PromptTokenizer,
        *,
        model: str | None = None,
        api_key: str | None = None,
        server: str = "openai",
        window: int | None = None,
        switches: Callable[[str], Switches | None] | None = None,
    ) -> None:
        super().__init__(base_url, model=model, api_key=api_key, mode="text", server=server, switches=switches)
        self._tokenizer = tokenizer
        self._wanted = window
        self.capabilities = Capabilities(yields="text", cached_tokens=True)

    async def _discover(self) -> EngineInfo:
        info = await super()._discover()
        self._window = self._wanted or self._window
        return msgspec.structs.replace(info, window=self._window)

    def _call(self, request: GenerateRequest) -> Call:
        text, _ = as_text(self._tokenizer, request.prompt_ids)
        body: dict[str, object] = {
            "model": self._model,
            "prompt": text,
            "stream": True,
            "stream_options": {"include_usage": True},
            **limits(request.sampling),
            **made({"max_tokens": self._room(request), "logprobs": request.sampling.logprobs}),
        }
        return Call("/completions", body)

    def _reading(self, request: GenerateRequest) -> Reading:
        return CompletionsReading(self.name, len(request.prompt_ids))
