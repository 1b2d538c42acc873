"""Routes for the operator: turns that run and that ran, workers, the metrics, the description of the routes.

Promise: only keys with the admin scope get at turns and metrics (the guard sees to it), and what they get holds no
payloads.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from turnwire.engines.pool.pool import WorkerPool
from turnwire.gateway.gateway import Gateway
from turnwire.gateway.openapi import openapi_document
from turnwire.gateway.telemetry.journal import TurnSummary
from turnwire.gateway.telemetry.live import LiveTurn, live_turn
from turnwire.gateway.turns.turn import Turn
from turnwire.protocols.wire import TurnFailure

__all__ = ["AdminRoutes"]

_MOST = 1000
_PERIOD_S = 1.0
_JSON = "application/json"


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

    async def live(self, request: Request) -> Response:
        """The turns that run now, longest first."""
        return Response(msgspec.json.encode(self._live()), media_type="application/json")

    def _live(self) -> list[LiveTurn]:
        now = time.monotonic()
        turns = [turn for turn in self._gateway.heartbeat.turns() if isinstance(turn, Turn)]
        return [live_turn(turn, now) for turn in sorted(turns, key=lambda turn: turn.record.started)]

    async def cancel(self, request: Request) -> Response:
        """End a running turn; its client hears that the operator did."""
        wanted = request.path_params["turn_id"]
        for turn in self._gateway.heartbeat.turns():
            if isinstance(turn, Turn) and turn.record.turn_id == wanted:
                turn.expire("cancelled")
                return Response(msgspec.json.encode({"turn_id": wanted, "cancelled": True}), media_type=_JSON)
        raise TurnFailure("not_found", f"No turn '{wanted}' is running.")

    async def events(self, request: Request) -> Response:
        """Server-sent events: `turn` for every turn that ends, `live` once a second."""
        return StreamingResponse(self._events(), media_type="text/event-stream", headers={"cache-control": "no-cache"})

    async def _events(self) -> AsyncIterator[bytes]:
        ended: asyncio.Queue[TurnSummary] = asyncio.Queue(_MOST)

        def add(summary: TurnSummary) -> None:
            if not ended.full():
                ended.put_nowait(summary)

        stop = self._gateway.journal.listen(add)
        try:
            while not self._gateway.draining:
                yield b"event: live\ndata: " + msgspec.json.encode(self._live()) + b"\n\n"
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_PERIOD_S):
                        while True:
                            yield b"event: turn\ndata: " + msgspec.json.encode(await ended.get()) + b"\n\n"
        finally:
            stop()

    async def workers(self, request: Request) -> Response:
        """Every model's workers: state, load, what they are."""
        body = [
            {
                "model": runtime.id,
                "worker": worker.name,
                "state": "draining" if worker.draining else worker.state,
                "active": worker.active,
                "engine": worker.info.name if worker.info is not None else None,
                "version": worker.info.version if worker.info is not None else None,
                "window": worker.info.window if worker.info is not None else None,
            }
            for runtime in self._gateway.runtimes
            if isinstance(runtime.engine, WorkerPool)
            for worker in runtime.engine.workers
        ]
        return Response(msgspec.json.encode(body), media_type=_JSON)

    async def settings(self, request: Request) -> Response:
        """The settings in effect, without secrets."""
        shown = msgspec.to_builtins(self._gateway.settings)
        if shown.get("seal_key"):
            shown["seal_key"] = "(set)"
        if isinstance(shown.get("store"), str):
            shown["store"] = re.sub(r"//[^/@]*@", "//(credentials)@", shown["store"])
        return Response(msgspec.json.encode(shown), media_type=_JSON)

    async def metrics(self, request: Request) -> Response:
        metrics = self._gateway.metrics
        metrics.live.set(len(self._gateway.heartbeat))
        for runtime in self._gateway.runtimes:
            if isinstance(runtime.engine, WorkerPool):
                metrics.observe_pool(runtime.id, runtime.engine)
        return Response(metrics.page(), media_type="text/plain; version=0.0.4")

    async def openapi(self, request: Request) -> Response:
        return Response(openapi_document(), media_type="application/json")
