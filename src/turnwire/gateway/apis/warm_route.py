"""Warming: workers read what the sessions of a client will begin with, before there are any.

Promise: what is read is what the prompt builder writes for the request's system text and tools, up to where the first
thing that is said begins, under the tenant's own cache. Only idle workers read; what became of each is in the answer.
"""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnwire.engines.interface import GenerateRequest, Hints
from turnwire.engines.pool.pool import WorkerPool
from turnwire.engines.pool.read_ahead import Warmed
from turnwire.gateway.apis.refusals import Handler
from turnwire.gateway.gateway import Gateway
from turnwire.gateway.transports.http import read_arrival
from turnwire.gateway.turns.ids import mint
from turnwire.gateway.turns.read_ahead import beginning, scaffold
from turnwire.protocols import anthropic, chat, responses
from turnwire.protocols.wire import TurnFailure
from turnwire.turns import Conversation, Sampling

__all__ = ["warm_route"]

_APIS = ("chat", "messages", "responses")
_WORKERS = ("best", "every")


class _Answer(msgspec.Struct):
    model: str
    tokens: int
    workers: list[Warmed]


def warm_route(gateway: Gateway) -> Handler:
    """`POST /admin/warm?api=&workers=&tenant=`, with a request of that API as the body. `api` is chat, messages or
    responses; `workers` is best (the one that the next session would get) or every; `tenant` names whose caches are
    meant, where keys have their own."""

    async def warm(request: Request) -> Response:
        query = request.query_params
        api, workers = query.get("api", "chat"), query.get("workers", "best")
        _one_of("api", api, _APIS)
        _one_of("workers", workers, _WORKERS)
        arrival = await read_arrival(request.scope, request.receive, gateway.max_body)
        conversation = scaffold(_decoded(gateway, api, arrival.body, arrival.headers))
        runtime = gateway.runtime_for(conversation.model)
        pool = runtime.engine
        if not isinstance(pool, WorkerPool) or pool.capabilities.yields != "tokens":
            raise TurnFailure(
                "invalid_request", f"{runtime.id} writes its own prompts; nothing can be read ahead there."
            )
        tenant = query.get("tenant", "default")
        ids = await beginning(runtime, conversation, tenant)
        asked = GenerateRequest(
            prompt_ids=ids,
            sampling=Sampling(),
            hints=Hints(request_id=mint("warm-"), tenant=tenant, cache_salt=runtime.cache_salt(tenant)),
            conversation=conversation,
            stop_token_ids=runtime.stop_token_ids,
        )
        found = await pool.read_ahead.warm(asked, every=workers == "every")
        return Response(msgspec.json.encode(_Answer(runtime.id, len(ids), found)), media_type="application/json")

    return warm


def _decoded(gateway: Gateway, api: str, body: bytes, headers: dict[str, str]) -> Conversation:
    limits = gateway.limits.wire
    if api == "messages":
        return anthropic.decode(body, headers, limits=limits).conversation
    if api == "chat":
        return chat.decode(body, headers, limits=limits).conversation
    return responses.decode_request(responses.read_request(body, limits), headers).conversation


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise TurnFailure("invalid_request", f"{name}: one of {', '.join(known)}", param=name)
