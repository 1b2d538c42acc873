"""The application: which path is answered by whom.

Promise: routes are a table; every API shares the same turn endpoint; a refusal is phrased in the shape of the API whose
path was asked for.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakSet

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from turnwire.continuity import sentence
from turnwire.engines.pool.pool import WorkerPool
from turnwire.gateway.apis.admin import AdminRoutes
from turnwire.gateway.apis.chat import ChatEndpoint
from turnwire.gateway.apis.completions import CompletionsEndpoint
from turnwire.gateway.apis.embeddings import EmbeddingsEndpoint
from turnwire.gateway.apis.messages import MessagesEndpoint
from turnwire.gateway.apis.model_routes import ModelRoutes
from turnwire.gateway.apis.responses import ResponseRoutes
from turnwire.gateway.apis.token_routes import TokenRoutes
from turnwire.gateway.door.guard import Guard
from turnwire.gateway.door.keys import Keyring
from turnwire.gateway.door.limits import request_limits
from turnwire.gateway.models import Found, ServedModels, UnknownModel
from turnwire.gateway.openapi import methods_of
from turnwire.gateway.settings import Settings
from turnwire.gateway.stores.responses import ResponseShelf
from turnwire.gateway.stores.store import Retention, open_store
from turnwire.gateway.telemetry.journal import Journal, summary_of
from turnwire.gateway.telemetry.metrics import Metrics
from turnwire.gateway.telemetry.records import Recorder
from turnwire.gateway.telemetry.tracing import open_tracing
from turnwire.gateway.transports.http import Api
from turnwire.gateway.transports.websocket import NoSocket, ResponsesSocket
from turnwire.gateway.turns.heartbeat import Heartbeat
from turnwire.gateway.turns.passage import Passage
from turnwire.gateway.turns.runtime import ModelRuntime
from turnwire.profiles import codex_entry
from turnwire.protocols import anthropic, chat, responses
from turnwire.protocols.codex_catalog import alias_entries, catalog_etag
from turnwire.protocols.models import ModelRow
from turnwire.protocols.wire import ErrorReply, Inbound, TurnFailure

__all__ = ["Gateway", "create_app"]

log = logging.getLogger("turnwire.gateway")

MESSAGES = Api(
    name="messages",
    decode=anthropic.decode,
    stream_encoder=anthropic.StreamEncoder,
    document_encoder=anthropic.DocumentEncoder,
    error_reply=anthropic.error_reply,
    call_prefix="toolu_",
)
CHAT = Api(
    name="chat",
    decode=chat.decode,
    stream_encoder=chat.StreamEncoder,
    document_encoder=chat.DocumentEncoder,
    error_reply=chat.error_reply,
    call_prefix="call_",
)
# These two bring their own codecs; of the API they share only the name and the words for a refusal.
COMPLETIONS = msgspec.structs.replace(CHAT, name="completions")
EMBEDDINGS = msgspec.structs.replace(CHAT, name="embeddings")
# Whose words a refusal uses, by the longest matching path.
ERRORS: tuple[tuple[str, Callable[[TurnFailure], ErrorReply]], ...] = (("/v1/messages", anthropic.error_reply),)


def refusal(path: str, headers: Mapping[str, str], failure: TurnFailure) -> ErrorReply:
    """A failure in the shape of the API that the path or the headers belong to."""
    if path.startswith("/v1/responses"):
        return responses.early_refusal(failure, headers)
    for prefix, phrase in ERRORS:
        if path.startswith(prefix):
            return phrase(failure)
    phrase = anthropic.error_reply if "anthropic-version" in headers else chat.error_reply
    return phrase(failure)


async def _unrouted(request: Request, error: Exception) -> Response:
    """A path or method that nobody serves, in the shape of the API it is nearest to."""
    path = request.scope["path"]
    allowed = methods_of(path)
    if allowed:
        failure = TurnFailure("invalid_request", f"Use {' or '.join(allowed)} here.", code="method_not_allowed")
        told = refusal(path, request.headers, failure)
        return Response(told.body, 405, {"allow": ", ".join(allowed)}, told.media_type)
    told = refusal(path, request.headers, TurnFailure("not_found", "Nothing is served here.", code="unknown_route"))
    return Response(told.body, told.status, dict(told.headers), told.media_type)


async def _defect(request: Request, error: Exception) -> Response:
    """A defect of ours outside of a turn; the trace is in the log."""
    failure = TurnFailure("internal", "The gateway failed to answer this request.")
    told = refusal(request.scope["path"], request.headers, failure)
    return Response(told.body, told.status, dict(told.headers), told.media_type)


class Gateway:
    """Holds what requests share: the models, the heartbeat, the recorder, the metrics."""

    def __init__(self, settings: Settings, runtimes: Sequence[ModelRuntime]) -> None:
        self.settings = settings
        self.runtimes = list(runtimes)
        self.heartbeat = Heartbeat(
            keepalive_s=settings.keepalive, idle_s=settings.idle_timeout, stall_s=settings.stall_timeout
        )
        self.keys = Keyring.load(settings.keys) if settings.keys else Keyring()
        self.metrics = Metrics()
        self.journal = Journal(settings.turns)
        self.tracing = open_tracing(settings.traces)
        self._counted: WeakSet[TurnFailure] = WeakSet()
        self.max_body = settings.max_body
        self.limits = request_limits(settings)
        self.dispatch = settings.enable_streaming_tool_dispatch
        self.draining = False
        self.started = int(time.time())
        self.recorder = Recorder(settings.record) if settings.record else None
        self.store = open_store(settings.store, Retention())
        self.responses = ResponseRoutes(self, ResponseShelf(self.store), etag=lambda: self.etag)
        self._entries = [entry for runtime in self.runtimes for entry in _catalog_entries(runtime)]
        self.etag = catalog_etag(self._entries)
        self.models = ServedModels(self.runtimes)

    def rows(self) -> list[ModelRow]:
        """What is served, for the model lists."""
        return [
            ModelRow(
                id=runtime.id,
                display_name=runtime.display_name,
                created=self.started,
                window=runtime.window,
                max_output=runtime.window,
                aliases=runtime.aliases,
            )
            for runtime in self.runtimes
        ]

    def entries(self) -> list[dict[str, Any]]:
        """What is served, as Codex wants to know it."""
        return self._entries

    def runtime_for(self, model: str) -> ModelRuntime:
        """The model that a name means: by id, alias, role or default."""
        return self._found(model, None).model

    def serving(self, inbound: Inbound[Any]) -> ModelRuntime:
        """The model that answers a request; what the client should know about the choice becomes a note."""
        conversation = inbound.conversation
        found = self._found(conversation.model, conversation.context.turn_class)
        inbound.notes += found.notes
        if not conversation.model:
            inbound.conversation = msgspec.structs.replace(conversation, model=found.model.id)
        return found.model

    def _found(self, model: str, turn_class: str | None) -> Found[ModelRuntime]:
        try:
            return self.models.find(model, turn_class)
        except UnknownModel as error:
            raise TurnFailure("not_found", str(error)) from None

    # --------------------------------------------------------------------------------------------------- bookkeeping

    def failed(self, api: str, failure: TurnFailure) -> None:
        if failure not in self._counted:
            self.metrics.failures.labels(api, failure.kind).inc()
        log.info("refused %s %s: %s", api, failure.kind, failure.message, extra={"turnwire": {"api": api}})

    def passed(self, passage: Passage) -> None:
        if passage.outcome is None:
            return
        summary = summary_of(passage)
        self.metrics.observe_turn(passage, summary)
        if passage.outcome.failure is not None:
            # One that is also refused with a status comes by `failed` once more.
            self._counted.add(passage.outcome.failure)
        if passage.continuity.lost:
            log.warning("turn %s: %s", passage.turn_id, sentence(passage.continuity))
        self.journal.add(summary)
        log.info("%s", summary.line, extra={"turnwire": msgspec.structs.asdict(summary)})
        if self.recorder is not None:
            self.recorder.write(passage)
        if self.tracing is not None:
            self.tracing.turn(passage, summary)

    # ------------------------------------------------------------------------------------------------- small routes

    async def health(self, request: Request) -> Response:
        healthy = [await runtime.engine.health() for runtime in self.runtimes]
        body = {"status": "ok" if all(healthy) else "degraded", "models": [r.id for r in self.runtimes]}
        return Response(msgspec.json.encode(body), 200 if all(healthy) else 503, media_type="application/json")

    async def ready(self, request: Request) -> Response:
        """Whether new turns should be sent here; off while draining."""
        able = not self.draining and any([await runtime.engine.health() for runtime in self.runtimes])
        return Response(b'{"ready":true}' if able else b'{"ready":false}', 200 if able else 503)

    async def hello(self, request: Request) -> Response:
        return Response(b"", 200)

    async def scrape(self, request: Request) -> Response:
        self.metrics.live.set(len(self.heartbeat))
        for runtime in self.runtimes:
            if isinstance(runtime.engine, WorkerPool):
                self.metrics.observe_pool(runtime.id, runtime.engine)
        return Response(self.metrics.page(), media_type="text/plain; version=0.0.4")

    def routes(self) -> list[BaseRoute]:
        listing, tokens = ModelRoutes(self), TokenRoutes(self)
        socket = ResponsesSocket(self, self.responses.shelf) if self.settings.websocket else NoSocket()
        return [
            *self.responses.routes(),
            WebSocketRoute("/v1/responses", socket),
            *AdminRoutes(self.journal, lambda: len(self.heartbeat)).routes(),
            Route("/", self.hello, methods=["HEAD", "GET"]),
            Route("/api/hello", self.hello, methods=["HEAD", "GET"]),
            Route("/health", self.health, methods=["GET"]),
            Route("/ready", self.ready, methods=["GET"]),
            Route("/metrics", self.scrape, methods=["GET"]),
            Route("/v1/messages/count_tokens", tokens.count, methods=["POST"]),
            Route("/v1/tokenize", tokens.tokenize, methods=["POST"]),
            Route("/v1/detokenize", tokens.detokenize, methods=["POST"]),
            Route("/v1/models", listing.page, methods=["GET"]),
            Route("/v1/models/{model:path}", listing.one, methods=["GET"]),
        ]


def _catalog_entries(runtime: ModelRuntime) -> list[dict[str, Any]]:
    entry = codex_entry(runtime.profile, runtime.id, window=runtime.window, title=runtime.display_name)
    return alias_entries(entry, runtime.aliases)


class FrontDoor:
    """Leads turns straight to their endpoints, and everything else through Starlette: its exception layers wrap every
    write, which a stream of tokens would pay for one by one."""

    def __init__(self, turns: Mapping[str, ASGIApp], rest: ASGIApp) -> None:
        self._turns = turns
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._turns.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        await (endpoint or self._rest)(scope, receive, send)


def create_app(gateway: Gateway) -> ASGIApp:
    """The ASGI application; engines stop with it."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await gateway.responses.close()
        for runtime in gateway.runtimes:
            await runtime.engine.close()
        await gateway.store.close()
        if gateway.tracing is not None:
            await asyncio.to_thread(gateway.tracing.close)

    turns: dict[str, ASGIApp] = {
        "/v1/messages": MessagesEndpoint(gateway, MESSAGES, gateway.store),
        "/v1/chat/completions": ChatEndpoint(gateway, CHAT),
        "/v1/completions": CompletionsEndpoint(gateway, COMPLETIONS),
        "/v1/embeddings": EmbeddingsEndpoint(gateway, EMBEDDINGS),
        **gateway.responses.turns,
    }
    rest = Starlette(
        routes=gateway.routes(), lifespan=lifespan, exception_handlers={HTTPException: _unrouted, Exception: _defect}
    )
    # A redirect would be made from the Host header, which is the client's word.
    rest.router.redirect_slashes = False
    settings = gateway.settings
    hosts = None if settings.allow_anonymous else frozenset({settings.host, *settings.allowed_hosts})
    return Guard(FrontDoor(turns, rest), keys=gateway.keys, refuse=refusal, hosts=hosts)
