"""The application: which path is answered by whom.

Promise: routes are a table; every API shares the same turn endpoint; a refusal is phrased in the shape of the API whose
path was asked for.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from turnwire.continuity import header as prefix_header
from turnwire.continuity import sentence
from turnwire.profiles import codex_entry
from turnwire.protocols import anthropic, chat, responses
from turnwire.protocols.codex_catalog import alias_entries, catalog_etag
from turnwire.protocols.models import ModelRow, resolve
from turnwire.protocols.wire import ErrorReply, TurnFailure

from .chat import ChatEndpoint
from .completions import CompletionsEndpoint
from .embeddings import EmbeddingsEndpoint
from .exchange import Api
from .guard import Guard
from .heartbeat import Heartbeat
from .keys import Keyring
from .limits import request_limits
from .listing import ModelRoutes
from .messages import MessagesEndpoint
from .metrics import Metrics
from .passage import Passage
from .records import Recorder
from .responses import ResponseRoutes
from .runtime import ModelRuntime
from .settings import Settings
from .shelf import ResponseShelf
from .stores import Retention, open_store
from .tokens import TokenRoutes
from .websocket import NoSocket, ResponsesSocket
from .workers import WorkerPool

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
        self._by_id = {runtime.id: runtime for runtime in self.runtimes}

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
        """The model by id or alias; ids that look like Anthropic's own mean the default model, since clients send them
        for side requests whatever was configured."""
        if model == "default":
            return self.runtimes[0]
        row, _ = resolve(model, self.rows(), self.runtimes[0].id)
        if row is not None:
            return self._by_id[row.id]
        raise TurnFailure(
            "not_found", f"The model '{model}' is not served here. Served: {', '.join(r.id for r in self.runtimes)}."
        )

    # --------------------------------------------------------------------------------------------------- bookkeeping

    def failed(self, api: str, failure: TurnFailure) -> None:
        self.metrics.failures.labels(api, failure.kind).inc()
        log.info("refused %s %s: %s", api, failure.kind, failure.message)

    def passed(self, passage: Passage) -> None:
        outcome, runtime = passage.outcome, passage.runtime
        if outcome is None:
            return
        model, usage, metrics = runtime.id, outcome.usage, self.metrics
        finish = outcome.finish.reason if outcome.finish else passage.ended_by or "failed"
        now = time.monotonic()
        metrics.turns.labels(passage.api, model, finish).inc()
        metrics.turn_seconds.labels(passage.api, model).observe(now - passage.started)
        if passage.first_token is not None:
            prefix = passage.continuity.state
            metrics.first_token.labels(model, prefix).observe(passage.first_token - passage.started)
        for kind in ("prompt", "cached", "output", "reasoning"):
            metrics.tokens.labels(model, kind).inc(getattr(usage, kind))
        if passage.continuity.lost:
            metrics.wasted.labels(model, passage.continuity.cause).inc(passage.continuity.lost)
            log.warning("turn %s: %s", passage.turn_id, sentence(passage.continuity))
        if outcome.failure is not None:
            metrics.failures.labels(passage.api, outcome.failure.kind).inc()
        notes = passage.notes
        for note in notes:
            metrics.notes.labels(note.code).inc()
        if outcome.finish is not None:
            runtime.remember(passage)
        log.info(
            "turn %s %s %s prompt=%d cached=%d output=%d finish=%s prefix=%s notes=%s",
            passage.turn_id,
            passage.api,
            model,
            usage.prompt,
            usage.cached,
            usage.output,
            finish,
            prefix_header(passage.continuity),
            ",".join(sorted({note.code for note in notes})) or "-",
        )
        if self.recorder is not None:
            self.recorder.write(passage)

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

    turns: dict[str, ASGIApp] = {
        "/v1/messages": MessagesEndpoint(gateway, MESSAGES, gateway.store),
        "/v1/chat/completions": ChatEndpoint(gateway, CHAT),
        "/v1/completions": CompletionsEndpoint(gateway, COMPLETIONS),
        "/v1/embeddings": EmbeddingsEndpoint(gateway, EMBEDDINGS),
        **gateway.responses.turns,
    }
    app = FrontDoor(turns, Starlette(routes=gateway.routes(), lifespan=lifespan))
    return Guard(app, keys=gateway.keys, refuse=refusal)
