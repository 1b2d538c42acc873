"""The application: which path is answered by whom.

Promise: routes are a table; every API shares the same turn endpoint; an unknown path or method is answered in the shape
of the API it looks like.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from turnwire.protocols import anthropic
from turnwire.protocols.wire import Inbound, TurnFailure

from .exchange import Api, TurnEndpoint
from .heartbeat import Heartbeat
from .records import Recorder
from .runtime import ModelRuntime
from .settings import Settings
from .turn import TurnOutcome

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


class Gateway:
    """Holds what requests share: the models, the heartbeat, the recorder."""

    def __init__(self, settings: Settings, runtimes: Sequence[ModelRuntime]) -> None:
        self.settings = settings
        self.runtimes = list(runtimes)
        self.heartbeat = Heartbeat(
            keepalive_s=settings.keepalive, idle_s=settings.idle_timeout, stall_s=settings.stall_timeout
        )
        self.max_body = settings.max_body
        self.dispatch = settings.enable_streaming_tool_dispatch
        self.recorder = Recorder(settings.record) if settings.record else None
        self._by_id = {name: runtime for runtime in self.runtimes for name in (runtime.id, *runtime.aliases)}

    def runtime_for(self, model: str) -> ModelRuntime:
        """The model by id or alias; ids that look like Anthropic's own mean the default model, since clients send them
        for side requests whatever was configured."""
        runtime = self._by_id.get(model)
        if runtime is not None:
            return runtime
        if model.startswith(("claude-", "anthropic/")):
            return self.runtimes[0]
        raise TurnFailure(
            "not_found", f"The model '{model}' is not served here. Served: {', '.join(r.id for r in self.runtimes)}."
        )

    def finished(self, api: str, inbound: Inbound, turn_id: str, outcome: TurnOutcome | None) -> None:
        """Book-keeping after a turn: the log line and the record."""
        if outcome is None:
            return
        reason = outcome.finish.reason if outcome.finish else "failed"
        log.info(
            "turn %s %s %s prompt=%d cached=%d output=%d finish=%s notes=%s",
            turn_id,
            api,
            inbound.conversation.model,
            outcome.usage.prompt,
            outcome.usage.cached,
            outcome.usage.output,
            reason,
            ",".join(sorted({note.code for note in (*inbound.notes, *outcome.prompt.notes, *outcome.notes)})) or "-",
        )

    # ------------------------------------------------------------------------------------------------- small routes

    async def health(self, request: Request) -> Response:
        healthy = [await runtime.engine.health() for runtime in self.runtimes]
        body = {"status": "ok" if all(healthy) else "degraded", "models": [r.id for r in self.runtimes]}
        return Response(msgspec.json.encode(body), 200 if all(healthy) else 503, media_type="application/json")

    async def hello(self, request: Request) -> Response:
        return Response(b"", 200)

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/", self.hello, methods=["HEAD", "GET"]),
            Route("/api/hello", self.hello, methods=["HEAD", "GET"]),
            Route("/health", self.health, methods=["GET"]),
            Route("/v1/messages", TurnEndpoint(self, MESSAGES), methods=["POST"]),
        ]


def create_app(gateway: Gateway) -> Starlette:
    """The ASGI application; engines start and stop with it."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        for runtime in gateway.runtimes:
            await runtime.engine.close()

    return Starlette(routes=gateway.routes(), lifespan=lifespan)
