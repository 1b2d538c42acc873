"""The application: every route of the table, led to whoever answers it.

Promise: what is served is exactly what the table of routes says; a route without a handler, or a handler without a
route, does not start.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from turnwire.console.pages import front_page, page, part
from turnwire.gateway.apis.admin import AdminRoutes
from turnwire.gateway.apis.chat import Chat
from turnwire.gateway.apis.completions import Completions
from turnwire.gateway.apis.embeddings import EmbeddingRoutes
from turnwire.gateway.apis.health import HealthRoutes
from turnwire.gateway.apis.messages import Messages
from turnwire.gateway.apis.model_routes import ModelRoutes
from turnwire.gateway.apis.refusals import Handler, answering, defect, refusal, unrouted
from turnwire.gateway.apis.responses import Compact, Responses
from turnwire.gateway.apis.stored_responses import StoredResponses
from turnwire.gateway.apis.token_routes import TokenRoutes
from turnwire.gateway.apis.warm_route import warm_route
from turnwire.gateway.apis.worker_routes import WorkerRoutes
from turnwire.gateway.door.cors import CrossOrigin, origin_names
from turnwire.gateway.door.guard import Guard
from turnwire.gateway.gateway import Gateway
from turnwire.gateway.playground.socket import PlaygroundSocket
from turnwire.gateway.routes import ROUTES
from turnwire.gateway.transports.background import Background
from turnwire.gateway.transports.http import TurnEndpoint
from turnwire.gateway.transports.websocket import NoSocket, ResponsesSocket

__all__ = ["create_app"]


class FrontDoor:
    """Leads turns straight to their endpoints, and everything else through Starlette: its exception layers wrap every
    write, which a stream of tokens would pay for one by one."""

    def __init__(self, turns: Mapping[str, ASGIApp], rest: ASGIApp) -> None:
        self._turns = turns
        self._rest = rest

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        endpoint = self._turns.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        # Not a coroutine of its own: it would lie around every turn for as long as the turn lives.
        return (endpoint or self._rest)(scope, receive, send)


def create_app(gateway: Gateway) -> ASGIApp:
    """The ASGI application; engines stop with it."""
    settings, limits = gateway.settings, gateway.limits.wire
    responses = Responses(gateway.responses, limits, lambda: gateway.etag, gateway.hosted, decoded=gateway.decoded)
    compact = Compact(gateway.responses, limits, lambda: gateway.etag, gateway.hosted, decoded=gateway.decoded)
    turns: dict[str, ASGIApp] = {
        "/v1/messages": TurnEndpoint(gateway, Messages(gateway.store, limits, gateway.hosted, gateway.decoded)),
        "/v1/chat/completions": TurnEndpoint(gateway, Chat(limits, gateway.decoded)),
        "/v1/completions": TurnEndpoint(gateway, Completions(limits)),
        "/v1/responses": TurnEndpoint(gateway, responses, Background(gateway, responses)),
        "/v1/responses/compact": TurnEndpoint(gateway, compact),
    }
    handlers = _handlers(gateway, responses)
    playground = PlaygroundSocket()
    routes: list[BaseRoute] = [
        WebSocketRoute("/v1/responses", ResponsesSocket(gateway, responses) if settings.websocket else NoSocket()),
        WebSocketRoute("/console/chat", playground if settings.websocket else NoSocket()),
    ]
    for row in ROUTES:
        if row.method == "POST" and row.path in turns:
            continue
        path = row.path.replace("{model}", "{model:path}")
        handler = handlers.pop((row.method, row.path))
        routes.append(Route(path, answering(handler, gateway.refused), methods=[row.method]))
    if handlers:
        raise LookupError(f"handlers without a route: {sorted(handlers)}")

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        if gateway.large_bodies is not None:
            gateway.large_bodies.stop()
        await gateway.responses.stop()
        await gateway.hosted.close()
        for runtime in gateway.runtimes:
            await runtime.engine.close()
        await gateway.store.close()
        if gateway.shared_limits is not None:
            await gateway.shared_limits.close()
        await gateway.usage.close()
        if gateway.kept_turns is not None:
            await asyncio.to_thread(gateway.kept_turns.close)
        if gateway.capturing is not None:
            await asyncio.to_thread(gateway.capturing.close)
        if gateway.tracing is not None:
            await asyncio.to_thread(gateway.tracing.close)
        if gateway.pushed_metrics is not None:
            await asyncio.to_thread(gateway.pushed_metrics.close)

    rest = Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: unrouted, Exception: defect})
    # A redirect would be made from the Host header, which the client chooses.
    rest.router.redirect_slashes = False
    names = {settings.host, *settings.allowed_hosts, *origin_names(settings.cors_origins)}
    hosts = None if settings.allow_anonymous else frozenset(names)
    guard = Guard(
        FrontDoor(turns, rest),
        keys=gateway.keys,
        refuse=refusal,
        count=lambda label, kind: gateway.metrics.failures.labels(label, kind).inc(),
        hosts=hosts,
        ledger=gateway.usage,
        shared=gateway.shared_limits,
    )
    playground.app = guard
    return CrossOrigin(guard, settings.cors_origins) if settings.cors_origins else guard


def _handlers(gateway: Gateway, responses: Responses) -> dict[tuple[str, str], Handler]:
    """Whoever answers each route that runs no turn."""
    models, tokens, stored = ModelRoutes(gateway), TokenRoutes(gateway), StoredResponses(gateway, responses)
    health, admin, embeddings = HealthRoutes(gateway), AdminRoutes(gateway), EmbeddingRoutes(gateway)
    workers = WorkerRoutes(gateway)
    return {
        ("GET", "/"): front_page(health.front),
        ("GET", "/api/hello"): health.hello,
        ("GET", "/health"): health.health,
        ("GET", "/ready"): health.ready,
        ("GET", "/metrics"): admin.metrics,
        ("GET", "/admin/turns"): admin.turns,
        ("GET", "/admin/live"): admin.live,
        ("POST", "/admin/turns/{turn_id}/cancel"): admin.cancel,
        ("GET", "/admin/turns/{turn_id}/payload"): admin.payload,
        ("GET", "/admin/events"): admin.events,
        ("GET", "/admin/workers"): admin.workers,
        ("POST", "/admin/workers"): workers.add,
        ("POST", "/admin/workers/drain"): workers.drain,
        ("DELETE", "/admin/workers"): workers.remove,
        ("POST", "/admin/warm"): warm_route(gateway),
        ("GET", "/admin/settings"): admin.settings,
        ("GET", "/admin/usage"): admin.usage,
        ("GET", "/console"): page,
        ("GET", "/console/{file}"): part,
        ("GET", "/openapi.json"): admin.openapi,
        ("GET", "/v1/models"): models.page,
        ("GET", "/v1/models/{model}"): models.one,
        ("POST", "/v1/embeddings"): embeddings.embed,
        ("POST", "/v1/messages/count_tokens"): tokens.count,
        ("POST", "/v1/tokenize"): tokens.tokenize,
        ("POST", "/v1/detokenize"): tokens.detokenize,
        ("GET", "/v1/responses"): stored.upgrade,
        ("POST", "/v1/responses/input_tokens"): stored.input_tokens,
        ("GET", "/v1/responses/{response_id}"): stored.get,
        ("DELETE", "/v1/responses/{response_id}"): stored.delete,
        ("GET", "/v1/responses/{response_id}/input_items"): stored.input_items,
        ("POST", "/v1/responses/{response_id}/cancel"): stored.cancel,
    }
