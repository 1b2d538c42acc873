"""Embeddings: passed to the engine that has them.

Promise: the model is named by its own id, an alias, or the id of the embedding model that the engine brings along; an
engine without embeddings is an error that says so, never a made-up vector.
"""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from turnwire.engines.interface import EngineError, Vectors
from turnwire.gateway.gateway import Gateway
from turnwire.gateway.transports.http import read_arrival
from turnwire.gateway.turns.admission import refuse_while_draining
from turnwire.gateway.turns.endings import failure_of
from turnwire.gateway.turns.ids import mint
from turnwire.gateway.turns.runtime import ModelRuntime
from turnwire.protocols import embeddings
from turnwire.protocols.wire import TurnFailure

__all__ = ["EmbeddingRoutes"]


class EmbeddingRoutes:
    """`POST /v1/embeddings`."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def embed(self, request: Request) -> Response:
        refuse_while_draining(self._gateway)
        arrival = await read_arrival(request.scope, request.receive, self._gateway.max_body)
        asked = embeddings.decode(arrival.body, limits=self._gateway.limits.wire)
        runtime = self._runtime(asked.model)
        texts, tokens = await runtime.in_thread(partial(_texts, asked, runtime))
        try:
            vectors = await runtime.engine.embed(texts)
        except EngineError as error:
            raise failure_of(error) from None
        if isinstance(vectors, Vectors) and vectors.tokens is not None:
            tokens = vectors.tokens
        codes = ",".join(sorted({note.code for note in asked.notes}))
        headers = {"request-id": f"req_{mint()}"} | ({"x-turnwire-notes": codes} if codes else {})
        return Response(embeddings.answer(asked, vectors, tokens), headers=headers, media_type="application/json")

    def _runtime(self, model: str) -> ModelRuntime:
        for runtime in self._gateway.runtimes:
            if model in runtime.info.embedding_models:
                return runtime
        return self._gateway.runtime_for(model)


def _texts(asked: embeddings.Asked, runtime: ModelRuntime) -> tuple[list[str], int]:
    """The inputs as text and their count in tokens, both by the served model's tokenizer; where the model that embeds
    counts by itself, its count is used."""
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
