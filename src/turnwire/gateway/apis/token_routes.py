"""Counting and tokenizing.

Promise: exact, by the same prompt builder and tokenizer that a turn uses.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnwire.gateway.door.limits import RequestLimits
from turnwire.gateway.hosted.tools import HostedTools
from turnwire.gateway.transports.http import read_arrival
from turnwire.gateway.turns.runtime import ModelRuntime
from turnwire.protocols import anthropic, tokenize
from turnwire.protocols.wire import TurnFailure

__all__ = ["TokenRoutes"]

A = TypeVar("A")
T = TypeVar("T")


class Models(Protocol):
    max_body: int
    limits: RequestLimits
    hosted: HostedTools

    def runtime_for(self, model: str) -> ModelRuntime: ...


class TokenRoutes:
    """`count_tokens`, `/v1/tokenize`, `/v1/detokenize`."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def count(self, request: Request) -> Response:
        """What `input_tokens` of the same request would be."""
        arrival = await read_arrival(request.scope, request.receive, self._models.max_body)
        offer = await self._models.hosted.offer(arrival.key)
        limits = self._models.limits.wire
        inbound = anthropic.decode_count(arrival.body, arrival.headers, limits=limits, offer=offer)
        runtime = self._models.runtime_for(inbound.conversation.model)
        _counted_here(runtime)
        prompt = await runtime.build(inbound.conversation, arrival.tenant)
        return Response(anthropic.encode_count(len(prompt.ids)), media_type="application/json")

    async def tokenize(self, request: Request) -> Response:
        """The token ids of a text, or of the prompt of a conversation's next turn."""
        arrival = await read_arrival(request.scope, request.receive, self._models.max_body)
        asked = tokenize.decode(arrival.body, limits=self._models.limits.wire)
        runtime = self._models.runtime_for(asked.model)
        _counted_here(runtime)
        if asked.conversation is not None:
            ids = (await runtime.build(asked.conversation, arrival.tenant)).ids
        else:
            ids = await _at_leisure(runtime, len(asked.text), runtime.tokenizer.encode, asked.text)
        decode = runtime.tokenizer.decode
        strings = [decode([token]) for token in ids] if asked.strings else None
        return Response(tokenize.encode_ids(ids, strings, runtime.window), media_type="application/json")

    async def detokenize(self, request: Request) -> Response:
        """The text of token ids."""
        arrival = await read_arrival(request.scope, request.receive, self._models.max_body)
        asked = tokenize.decode_ids(arrival.body, limits=self._models.limits.wire)
        runtime = self._models.runtime_for(asked.model)
        _counted_here(runtime)
        if any(token >= runtime.tokenizer.vocab_size for token in asked.tokens):
            raise TurnFailure("invalid_request", f"tokens: ids go from 0 to {runtime.tokenizer.vocab_size - 1}.")
        text = await _at_leisure(runtime, len(asked.tokens), runtime.tokenizer.decode, asked.tokens)
        return Response(msgspec.json.encode({"prompt": text}), media_type="application/json")


async def _at_leisure(runtime: ModelRuntime, size: int, work: Callable[[A], T], argument: A) -> T:
    """Large work is done beside the event loop."""
    return work(argument) if size < runtime.INLINE_BYTES else await runtime.in_thread(partial(work, argument))


def _counted_here(runtime: ModelRuntime) -> None:
    """Refuse to count by a tokenizer that is not the model's; clients then estimate by themselves."""
    if not runtime.writes_prompts:
        raise TurnFailure(
            "not_found", f"Tokens of {runtime.id} are counted by its own server only, in the usage of each answer."
        )
