"""Whether the gateway is there, well, and ready for turns.

Promise: open to everybody, and says nothing that a stranger could use.
"""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnwire.gateway.gateway import Gateway

__all__ = ["HealthRoutes"]


class HealthRoutes:
    """`/`, `/api/hello`, `/health` and `/ready`."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def hello(self, request: Request) -> Response:
        return Response(b"", 200)

    async def health(self, request: Request) -> Response:
        runtimes = self._gateway.runtimes
        healthy = [await runtime.engine.health() for runtime in runtimes]
        body = {"status": "ok" if all(healthy) else "degraded", "models": [runtime.id for runtime in runtimes]}
        return Response(msgspec.json.encode(body), 200 if all(healthy) else 503, media_type="application/json")

    async def ready(self, request: Request) -> Response:
        """Whether new turns should be sent here (`?model=`: of this model); off while draining, and while the store
        does not answer."""
        gateway = self._gateway
        model = request.query_params.get("model")
        asked = gateway.runtimes if model is None else [gateway.runtime_for(model)]
        able = not gateway.draining and any([await runtime.engine.health() for runtime in asked])
        able = able and await gateway.store.healthy()
        body = b'{"ready":true}' if able else b'{"ready":false}'
        return Response(body, 200 if able else 503, media_type="application/json")
