"""Routes for the operator: the last turns, the metrics, the description of the routes.

Promise: only keys with the admin scope get at turns and metrics (the guard sees to it), and what they get holds no
payloads.
"""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnwire.engines.pool.pool import WorkerPool
from turnwire.gateway.gateway import Gateway
from turnwire.gateway.openapi import openapi_document
from turnwire.protocols.wire import TurnFailure

__all__ = ["AdminRoutes"]

_MOST = 1000


class AdminRoutes:
    """`GET /admin/turns?limit=&session=&model=`, newest first, `GET /metrics` and `GET /openapi.json`."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def turns(self, request: Request) -> Response:
        query = request.query_params
        limit = query.get("limit", "100")
        if not limit.isascii() or not limit.isdigit() or not 1 <= int(limit[:9]) <= _MOST:
            raise TurnFailure("invalid_request", f"limit: must be a whole number from 1 to {_MOST}", param="limit")
        found = self._gateway.journal.last(int(limit), session=query.get("session"), model=query.get("model"))
        body = {"live": len(self._gateway.heartbeat), "turns": list(found)}
        return Response(msgspec.json.encode(body), media_type="application/json")

    async def metrics(self, request: Request) -> Response:
        metrics = self._gateway.metrics
        metrics.live.set(len(self._gateway.heartbeat))
        for runtime in self._gateway.runtimes:
            if isinstance(runtime.engine, WorkerPool):
                metrics.observe_pool(runtime.id, runtime.engine)
        return Response(metrics.page(), media_type="text/plain; version=0.0.4")

    async def openapi(self, request: Request) -> Response:
        return Response(openapi_document(), media_type="application/json")
