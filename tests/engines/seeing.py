"""The small servers once more, with a model that sees: what vLLM, SGLang and llama.cpp do with images."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from turnwire.engines.scripted.script import Performance
from turnwire.prompts.tokenizers.load import load_tokenizer
from turnwire.turns import Sampling

from .servers import FakeLlamaCpp, FakeServer, FakeSGLang, FakeVLLM

__all__ = ["IMAGE_TOKENS", "MARK", "SEEING", "SeeingLlamaCpp", "SeeingSGLang", "SeeingVLLM", "Spelling"]

IMAGE_TOKENS = 40
"""What an image costs at these servers."""
MARK = "<__media__>"


class Spelling:
    """The project's own tokenizer, as the small servers use one."""

    def __init__(self) -> None:
        self._inner = load_tokenizer(None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def bytes_of(self, token: int) -> bytes:
        return self._inner.decode([token]).encode()


class SeeingVLLM(FakeVLLM):
    """Images come by the chat route. `reasoning` is what a reasoning parser of its own would have split off."""

    reasoning = False

    def routes(self, router: web.UrlDispatcher) -> None:
        super().routes(router)
        router.add_post("/v1/chat/completions", self.generate)

    def asked(self, body: dict[str, Any]) -> tuple[list[int], Sampling]:
        if "messages" not in body:
            return super().asked(body)
        shown = [
            part
            for message in body["messages"]
            for part in (message["content"] if isinstance(message["content"], list) else ())
            if part["type"] == "image_url"
        ]
        return [1] * (100 + IMAGE_TOKENS * len(shown)), Sampling(max_tokens=body.get("max_tokens"))

    async def events(
        self, body: dict[str, Any], performance: Performance, prompt: list[int], cached: int
    ) -> AsyncIterator[dict[str, Any] | str]:
        if "messages" not in body:
            async for event in super().events(body, performance, prompt, cached):
                yield event
            return
        assert body["return_token_ids"] is True
        assert body["skip_special_tokens"] is False
        yield {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}], "prompt_token_ids": prompt}
        for batch, final in self.batches(performance):
            delta = {"reasoning": batch.text} if self.reasoning else {"content": batch.text}
            choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": None, "token_ids": list(batch.ids)}
            if final:
                choice["finish_reason"] = performance.reason
            yield {"object": "chat.completion.chunk", "choices": [choice]}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": self.sampled(performance)}
        yield {"choices": [], "usage": usage}


class SeeingSGLang(FakeSGLang):
    """Images come beside the ids, one for each place that the template marked."""

    def model_info(self) -> dict[str, Any]:
        return {**super().model_info(), "has_image_understanding": True}

    def asked(self, body: dict[str, Any]) -> tuple[list[int], Sampling]:
        prompt, limits = super().asked(body)
        return prompt + [1] * IMAGE_TOKENS * len(body.get("image_data") or ()), limits


class SeeingLlamaCpp(FakeLlamaCpp):
    """A prompt with images is a text with marks."""

    def props(self) -> dict[str, Any]:
        return {**super().props(), "modalities": {"vision": True, "audio": False}, "media_marker": MARK}

    def routes(self, router: web.UrlDispatcher) -> None:
        super().routes(router)
        router.add_post("/tokenize", self.tokenize)

    async def tokenize(self, request: web.Request) -> web.Response:
        return web.json_response({"tokens": self.tokenizer.encode((await request.json())["content"])})

    def asked(self, body: dict[str, Any]) -> tuple[list[int], Sampling]:
        prompt = body["prompt"]
        if isinstance(prompt, dict):
            text, data = prompt["prompt_string"], prompt["multimodal_data"]
            assert text.count(MARK) == len(data)
            told = self.tokenizer.encode(text) + [1] * IMAGE_TOKENS * len(data)
            return super().asked({**body, "prompt": told})
        return super().asked(body)


SEEING: dict[str, type[FakeServer]] = {"vllm": SeeingVLLM, "sglang": SeeingSGLang, "llamacpp": SeeingLlamaCpp}
