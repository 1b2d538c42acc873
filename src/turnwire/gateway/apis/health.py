"""Whether the gateway is there, well, and ready for turns.

Promise: open to everybody, and says nothing that a stranger could use.
"""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnwire.gateway.door.keys import holder
from turnwire.gateway.gateway import Gateway

__all__ = ["HealthRoutes"]

_FRONT = """\
This is Turnwire, a gateway between agents and models.

  turns      POST /v1/messages, /v1/chat/completions, /v1/responses
  models     GET /v1/models
  all paths  GET /openapi.json
  state      GET /health, /ready
  console    open this address in a browser
"""
_FRONT_WITH_KEYS = (
    _FRONT
    + """
It needs an API key: send Authorization: Bearer KEY or x-api-key: KEY.
"""
)


class HealthRoutes:
    """`/`, `/api/hello`, `/health` and `/ready`."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def front(self, request: Request) -> Response:
        """What is here, for somebody who asks for `/` without a browser."""
        return Response(_FRONT_WITH_KEYS if self._gateway.keys else _FRONT, media_type="text/plain")

    async def hello(self, request: Request) -> Response:
        return Response(b"", 200)

    async def health(self, request: Request) -> Response:
        """Whether the engines answer. The models are named only where everybody may use them."""
        runtimes = self._gateway.runtimes
        healthy = [await runtime.engine.health() for runtime in runtimes]
        body: dict[str, object] = {"status": "ok" if all(healthy) else "degraded"}
        if not self._gateway.keys:
            body["models"] = [runtime.id for runtime in runtimes]
        return Response(msgspec.json.encode(body), 200 if all(healthy) else 503, media_type="application/json")

    async def ready(self, request: Request) -> Response:
        """Whether new turns should be sent here (`?model=`: of this model, which needs a key where keys are set); off
        while draining, and while the store does not answer."""
        gateway = self._gateway
        model = request.query_params.get("model")
        if model is not None:
            holder(gateway.keys, request.headers)
        asked = gateway.runtimes if model is None else [gateway.runtime_for(model)]
        able = not gateway.draining and any([await runtime.engine.health() for runtime in asked])
        able = able and await gateway.store.healthy()
        body = b'{"ready":true}' if able else b'{"ready":false}'
        return Response(body, 200 if able else 503, media_type="application/json")
