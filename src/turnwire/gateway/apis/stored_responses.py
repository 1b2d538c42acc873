"""What can be asked of responses that exist: read, follow, list, cancel, delete, count.

Promise: a tenant sees only its own; a refusal is raised, and phrased where all refusals are.
"""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnwire.gateway.apis.responses import Responses
from turnwire.gateway.transports.background import follow
from turnwire.gateway.transports.http import Serving, read_arrival
from turnwire.gateway.turns.arrival import Arrival
from turnwire.protocols import responses
from turnwire.protocols.wire import TurnFailure

__all__ = ["StoredResponses"]


class StoredResponses:
    """The paths under `/v1/responses` that run no turn."""

    def __init__(self, gateway: Serving, api: Responses) -> None:
        self._gateway = gateway
        self._api = api

    async def upgrade(self, request: Request) -> Response:
        """A GET here is an upgrade that was not taken up: 426 sends Codex to HTTP for the whole conversation."""
        failure = TurnFailure("invalid_request", "Use POST: this gateway answers /v1/responses over HTTP.")
        body = self._api.refuse(failure).body
        return Response(body, 426, {"connection": "close"}, "application/json")

    async def get(self, request: Request) -> Response:
        tenant, wanted = _tenant(request), request.path_params["response_id"]
        if request.query_params.get("stream") == "true":
            after = _whole(request, "starting_after", -1)
            if not (await self._stored(tenant, wanted)).background:
                raise TurnFailure("invalid_request", "stream: only a background response can be streamed again")
            frames = await self._api.store.follow(tenant, wanted, after)
            if frames is None:
                raise TurnFailure(
                    "invalid_request",
                    "stream: the events of this response are not kept any more; poll it without stream",
                )
            return follow(frames, [])
        return Response((await self._stored(tenant, wanted)).document, media_type="application/json")

    async def delete(self, request: Request) -> Response:
        wanted = request.path_params["response_id"]
        if not await self._api.store.delete(_tenant(request), wanted):
            raise _missing(wanted)
        return _json({"id": wanted, "object": "response", "deleted": True})

    async def input_items(self, request: Request) -> Response:
        stored = await self._stored(_tenant(request), request.path_params["response_id"])
        order = request.query_params.get("order", "desc")
        if order not in ("asc", "desc"):
            raise TurnFailure("invalid_request", "order: must be asc or desc", param="order")
        limit = _whole(request, "limit", 20)
        if not 1 <= limit <= 100:
            raise TurnFailure("invalid_request", "limit: must be between 1 and 100", param="limit")
        after = request.query_params.get("after")
        return _json(responses.item_page(stored.shown_items, after=after, limit=limit, order=order))

    async def cancel(self, request: Request) -> Response:
        wanted = request.path_params["response_id"]
        stored = await self._api.store.cancel(_tenant(request), wanted)
        if stored is None:
            raise _missing(wanted)
        if not stored.background:
            raise TurnFailure("invalid_request", "Only a background response can be cancelled.")
        return Response(stored.document, media_type="application/json")

    async def input_tokens(self, request: Request) -> Response:
        """How many tokens a request would read: the very prompt that its turn would get, counted."""
        arrival = await read_arrival(request.scope, request.receive, self._gateway.max_body)
        (inbound,) = await self._api.decode(arrival)
        runtime = self._gateway.runtime_for(inbound.conversation.model)
        prompt = await runtime.build(inbound.conversation, arrival.tenant)
        return _json({"object": "response.input_tokens", "input_tokens": len(prompt.ids)})

    async def _stored(self, tenant: str, wanted: str) -> responses.StoredResponse:
        stored = await self._api.store.get(tenant, wanted)
        if stored is None:
            raise _missing(wanted)
        return stored


def _tenant(request: Request) -> str:
    use = request.scope.get("state", {}).get("use")
    return Arrival(headers={}, body=b"", started=0.0, use=use).tenant


def _missing(wanted: str) -> TurnFailure:
    return TurnFailure("not_found", f"Response with id '{wanted}' not found.", param="id")


def _whole(request: Request, name: str, default: int) -> int:
    value = request.query_params.get(name)
    if value is None:
        return default
    with contextlib.suppress(ValueError):
        return int(value[:12])
    raise TurnFailure("invalid_request", f"{name}: must be a whole number", param=name)


def _json(body: Any) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")
