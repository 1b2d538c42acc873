"""What one of several gateway processes reports to its siblings, on a socket in the folder that they share.

Promise: what this process knows by itself and nothing else; what it counted is left to the others when it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Generator

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from turnwire.gateway.apis.admin import AdminRoutes
from turnwire.gateway.apis.worker_routes import WorkerRoutes
from turnwire.gateway.gateway import Gateway
from turnwire.gateway.processes.siblings import Siblings
from turnwire.gateway.sleeping_server import SleepingServer
from turnwire.protocols.wire import TurnFailure

__all__ = ["answering"]


class _Inside(SleepingServer):
    """Signals are the other server's."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()


@contextlib.asynccontextmanager
async def answering(gateway: Gateway, siblings: Siblings) -> AsyncIterator[None]:
    """Answer the siblings for as long as this lasts."""
    own, workers = AdminRoutes(gateway, alone=True), WorkerRoutes(gateway, alone=True)
    routes = [
        Route("/metrics", own.metrics),
        Route("/admin/turns", own.turns),
        Route("/admin/live", own.live),
        Route("/admin/workers", own.workers),
        Route("/admin/workers", workers.add, methods=["POST"]),
        Route("/admin/workers/drain", workers.drain, methods=["POST"]),
        Route("/admin/workers", workers.remove, methods=["DELETE"]),
        Route("/admin/events", own.events),
        Route("/admin/turns/{turn_id}/cancel", own.cancel, methods=["POST"]),
        Route("/admin/turns/{turn_id}/payload", own.payload),
    ]
    app = Starlette(routes=routes, exception_handlers={TurnFailure: _unknown})
    inside = _Inside(
        uvicorn.Config(
            app,
            uds=siblings.socket,
            lifespan="off",
            access_log=False,
            log_config=None,
            date_header=False,
            timeout_graceful_shutdown=1,
        )
    )
    task = asyncio.create_task(inside.serve())
    await inside.listening.wait()
    try:
        yield
    finally:
        siblings.keep(own.page())
        inside.should_exit = True
        await task


async def _unknown(request: Request, error: Exception) -> Response:
    return Response(str(error), 404)
