"""Embeddings at the gateway: passed to the engine that has them.

Promise: the model is named by its own id, an alias, or the id of the embedding model that the engine brings along; an
engine without embeddings is an error that says so, never a made-up vector.
"""

from __future__ import annotations

import asyncio

from starlette.types import Receive, Scope, Send

from turnwire.engines.interface import EngineError
from turnwire.gateway.transports.http import TurnEndpoint, headers_of, mint, reply
from turnwire.gateway.turns.runtime import ModelRuntime
from turnwire.gateway.turns.turn import failure_of
from turnwire.protocols import embeddings
from turnwire.protocols.wire import TurnFailure

__all__ = ["EmbeddingsEndpoint"]


class EmbeddingsEndpoint(TurnEndpoint):
    """`POST /v1/embeddings`."""

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = embeddings.decode(await self.body(headers_of(scope), receive), limits=self._host.limits.wire)
        runtime = self._runtime(asked.model)
        texts, tokens = await asyncio.to_thread(_texts, asked, runtime)
        try:
            vectors = await runtime.engine.embed(texts)
        except EngineError as error:
            raise failure_of(error) from None
        codes = ",".join(sorted({note.code for note in asked.notes}))
        headers = (("request-id", f"req_{mint()}"), *((("x-turnwire-notes", codes),) if codes else ()))
        await reply(send, 200, embeddings.answer(asked, vectors, tokens), headers=headers)

    def _runtime(self, model: str) -> ModelRuntime:
        for runtime in self._host.runtimes:
            if model in runtime.info.embedding_models:
                return runtime
        return self._host.runtime_for(model)


def _texts(asked: embeddings.Asked, runtime: ModelRuntime) -> tuple[list[str], int]:
    """The inputs as text and their count in tokens, both by the served model's tokenizer."""
    texts, tokens, size = [], 0, runtime.tokenizer.vocab_size
    for entry in asked.inputs:
        if isinstance(entry, str):
            texts.append(entry)
            tokens += len(runtime.tokenizer.encode(entry))
        elif any(token >= size for token in entry):
            raise TurnFailure("invalid_request", f"input: token ids go from 0 to {size - 1}", param="input")
        else:
            texts.append(runtime.tokenizer.decode(entry))
            tokens += len(entry)
    return texts, tokens
