"""Counting and tokenizing: exact, by the same prompt builder and tokenizer that a turn uses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnwire.gateway.door.limits import RequestLimits
from turnwire.gateway.transports.http import read_arrival
from turnwire.gateway.turns.runtime import ModelRuntime
from turnwire.protocols import anthropic
from turnwire.protocols.wire import TurnFailure

__all__ = ["TokenRoutes"]


class Models(Protocol):
    max_body: int
    limits: RequestLimits

    def runtime_for(self, model: str) -> ModelRuntime: ...


class _Tokenize(msgspec.Struct):
    text: str = ""
    prompt: str | None = None
    model: str | None = None
    return_token_strs: bool = False


class _Detokenize(msgspec.Struct):
    tokens: list[int]
    model: str | None = None


class TokenRoutes:
    """`count_tokens`, `/v1/tokenize`, `/v1/detokenize`."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def count(self, request: Request) -> Response:
        """What `input_tokens` of the same request would be."""
        arrival = await read_arrival(request.scope, request.receive, self._models.max_body)
        inbound = anthropic.decode_count(arrival.body, arrival.headers, limits=self._models.limits.wire)
        runtime = self._models.runtime_for(inbound.conversation.model)
        _counted_here(runtime)
        prompt = await runtime.build(inbound.conversation, arrival.tenant)
        return Response(anthropic.encode_count(len(prompt.ids)), media_type="application/json")

    async def tokenize(self, request: Request) -> Response:
        return await self._answer(request, self._tokenize)

    async def detokenize(self, request: Request) -> Response:
        return await self._answer(request, self._detokenize)

    def _tokenize(self, body: bytes) -> dict[str, object]:
        asked = msgspec.json.decode(body, type=_Tokenize)
        runtime = self._models.runtime_for(asked.model or "default")
        _counted_here(runtime)
        ids = runtime.tokenizer.encode(asked.prompt if asked.prompt is not None else asked.text)
        answer: dict[str, object] = {"tokens": ids, "count": len(ids), "max_model_len": runtime.window}
        if asked.return_token_strs:
            answer["token_strs"] = [runtime.tokenizer.decode([token]) for token in ids]
        return answer

    def _detokenize(self, body: bytes) -> dict[str, object]:
        asked = msgspec.json.decode(body, type=_Detokenize)
        runtime = self._models.runtime_for(asked.model or "default")
        _counted_here(runtime)
        if any(not 0 <= token < runtime.tokenizer.vocab_size for token in asked.tokens):
            raise TurnFailure("invalid_request", f"tokens: ids go from 0 to {runtime.tokenizer.vocab_size - 1}.")
        return {"prompt": runtime.tokenizer.decode(asked.tokens)}

    async def _answer(self, request: Request, work: Callable[[bytes], dict[str, object]]) -> Response:
        body = (await read_arrival(request.scope, request.receive, self._models.max_body)).body
        try:
            answer = work(body) if len(body) < ModelRuntime.INLINE_CHARS else await asyncio.to_thread(work, body)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise TurnFailure("invalid_request", str(error)) from None
        return Response(msgspec.json.encode(answer), media_type="application/json")


def _counted_here(runtime: ModelRuntime) -> None:
    """Refuse to count by a tokenizer that is not the model's; clients then estimate by themselves."""
    if not runtime.writes_prompts:
        raise TurnFailure(
            "not_found", f"Tokens of {runtime.id} are counted by its own server only, in the usage of each answer."
        )
