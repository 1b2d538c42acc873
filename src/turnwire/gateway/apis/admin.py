"""Routes for the operator: turns that run and that ran, workers, the metrics, the description of the routes.

Promise: only keys with the admin scope get at turns and metrics (the guard sees to it), and what they get holds no
payloads. Of several processes on one port, the one that is asked answers for all; of turns that ended, for all gateways
that share a store.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from turnwire.engines.pool.pool import WorkerPool
from turnwire.gateway.gateway import Gateway
from turnwire.gateway.openapi import openapi_document
from turnwire.gateway.processes.merging import merged_workers
from turnwire.gateway.settings import Settings, described
from turnwire.gateway.stores.journal import UnknownPlace
from turnwire.gateway.telemetry.fingerprints import open_settings
from turnwire.gateway.telemetry.journal import TurnFilter, TurnSummary
from turnwire.gateway.telemetry.kept_turns import FoundTurn, joined
from turnwire.gateway.telemetry.live import LiveTurn, live_turn
from turnwire.gateway.turns.turn import Turn
from turnwire.protocols.wire import TurnFailure

__all__ = ["AdminRoutes"]

_MOST = 1000
_MOST_DAYS = 400
_PERIOD_S = 1.0
_JSON = "application/json"


class _Turns(msgspec.Struct):
    """The body of `/admin/turns`; `older` asks for the turns before these, where there are any."""

    live: int
    turns: list[TurnSummary]
    older: str | None = None


class AdminRoutes:
    """`GET /admin/turns?limit=&session=&model=&turn=&older=`, newest first, `GET /metrics` and `GET /openapi.json`."""

    def __init__(self, gateway: Gateway, *, alone: bool = False) -> None:
        self._gateway = gateway
        # `alone`: siblings ask, and want no more than what this process knows by itself.
        self._siblings = None if alone else gateway.siblings
        self._kept = None if alone else gateway.kept_turns

    async def turns(self, request: Request) -> Response:
        query = request.query_params
        limit = query.get("limit", "100")
        if not limit.isascii() or not limit.isdigit() or not 1 <= int(limit[:9]) <= _MOST:
            raise TurnFailure("invalid_request", f"limit: must be a whole number from 1 to {_MOST}", param="limit")
        wanted = TurnFilter(session=query.get("session"), model=query.get("model"), turn=query.get("turn"))
        found: list[FoundTurn] = []
        if self._kept is not None:
            try:
                found = await self._kept.page(wanted, int(limit), query.get("older"))
            except UnknownPlace:
                raise TurnFailure(
                    "invalid_request", "older: must be what an earlier answer called `older`", param="older"
                ) from None
        page = _Turns(live=len(self._gateway.heartbeat), turns=list(self._gateway.journal.last(int(limit), wanted)))
        for body in await self._others(f"/admin/turns?{request.url.query}"):
            theirs = msgspec.json.decode(body, type=_Turns)
            page.live += theirs.live
            page.turns += theirs.turns
        page.turns, page.older = joined(found, [] if "older" in query else page.turns, int(limit))
        return Response(msgspec.json.encode(page), media_type=_JSON)

    async def live(self, request: Request) -> Response:
        """The turns that run now, longest first."""
        return Response(msgspec.json.encode(await self._all_live()), media_type=_JSON)

    async def _all_live(self) -> list[LiveTurn]:
        turns = self._live()
        for body in await self._others("/admin/live"):
            turns += msgspec.json.decode(body, type=list[LiveTurn])
        return sorted(turns, key=lambda turn: -turn.seconds)

    def _live(self) -> list[LiveTurn]:
        now = time.monotonic()
        turns = [turn for turn in self._gateway.heartbeat.turns() if isinstance(turn, Turn)]
        return [live_turn(turn, now) for turn in sorted(turns, key=lambda turn: turn.record.started)]

    async def cancel(self, request: Request) -> Response:
        """End a running turn; its client is sent that as the reason."""
        wanted = request.path_params["turn_id"]
        for turn in self._gateway.heartbeat.turns():
            if isinstance(turn, Turn) and turn.record.turn_id == wanted:
                turn.expire("cancelled")
                return Response(msgspec.json.encode({"turn_id": wanted, "cancelled": True}), media_type=_JSON)
        path = f"/admin/turns/{quote(wanted, safe='')}/cancel"
        for body in await self._others(path, method="POST"):
            return Response(body, media_type=_JSON)
        raise TurnFailure("not_found", f"No turn '{wanted}' is running.")

    async def _others(self, path: str, *, method: str = "GET") -> list[bytes]:
        """What the other processes answer, of those that have an answer."""
        if self._siblings is None:
            return []
        answers = await self._siblings.ask(path, method=method)
        return [body for status, body in answers.values() if status == 200]

    async def payload(self, request: Request) -> Response:
        """All that was captured of a turn; only while a capture runs."""
        wanted, capturing = request.path_params["turn_id"], self._gateway.capturing
        if capturing is None:
            raise TurnFailure("not_found", "Nothing is captured here; start the gateway with --capture FOLDER.")
        view = await asyncio.to_thread(capturing.view, wanted)
        if view is None:
            for body in await self._others(f"/admin/turns/{quote(wanted, safe='')}/payload"):
                return Response(body, media_type=_JSON)
            raise TurnFailure("not_found", f"Turn '{wanted}' was not captured, or lately not any more.")
        return Response(await asyncio.to_thread(msgspec.json.encode, view), media_type=_JSON)

    async def events(self, request: Request) -> Response:
        """Server-sent events: `turn` for every turn that ends, `live` once a second."""
        headers = {"cache-control": "no-cache"}
        if request.method == "HEAD":  # the events have no end, and this asks for none of them
            return Response(media_type="text/event-stream", headers=headers)
        return StreamingResponse(self._events(), media_type="text/event-stream", headers=headers)

    async def _events(self) -> AsyncIterator[bytes]:
        ended: asyncio.Queue[bytes] = asyncio.Queue(_MOST)

        def add(event: bytes) -> None:
            if not ended.full():
                ended.put_nowait(event)

        def told(summary: TurnSummary) -> None:
            add(b"event: turn\ndata: " + msgspec.json.encode(summary) + b"\n\n")

        stop = self._gateway.journal.listen(told)
        heard: dict[str, asyncio.Task[None]] = {}
        try:
            place = await self._kept.newest() if self._kept is not None else ""
            while not self._gateway.draining:
                if self._kept is not None:
                    theirs, place = await self._kept.others_after(place)
                    for summary in theirs:
                        told(summary)
                elif self._siblings is not None:
                    for name in self._siblings.names():
                        if name not in heard:
                            heard[name] = asyncio.create_task(self._hear(name, add))
                yield b"event: live\ndata: " + msgspec.json.encode(await self._all_live()) + b"\n\n"
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_PERIOD_S):
                        while True:
                            yield await ended.get()
        finally:
            stop()
            for task in heard.values():
                task.cancel()

    async def _hear(self, name: str, add: Callable[[bytes], None]) -> None:
        """Pass on the turns that end in another process."""
        assert self._siblings is not None
        async for event in self._siblings.listen(name, "/admin/events"):
            if event.startswith(b"event: turn"):
                add(event)

    async def workers(self, request: Request) -> Response:
        """Every model's workers: state, load, what they are."""
        body = [
            {
                "model": runtime.id,
                "worker": worker.name,
                "label": worker.label,
                "state": "draining" if worker.draining else worker.state,
                "active": worker.active,
                "prefilling": worker.load.prefilling,
                "decoding": round(worker.load.decoding),
                "resident": runtime.engine.router.bindings.resident(worker.name),
                "publishes_cache": worker.publishes,
                "engine": worker.info.name if worker.info is not None else None,
                "version": worker.info.version if worker.info is not None else None,
                "window": worker.info.window if worker.info is not None else None,
            }
            for runtime in self._gateway.runtimes
            if isinstance(runtime.engine, WorkerPool)
            for worker in runtime.engine.workers
        ]
        for theirs in await self._others("/admin/workers"):
            body += msgspec.json.decode(theirs)
        return Response(msgspec.json.encode(merged_workers(body)), media_type=_JSON)

    async def usage(self, request: Request) -> Response:
        """What each key used, by day, newest first, with its budget: of all processes, which count in one file."""
        days = request.query_params.get("days", "31")
        if not days.isascii() or not days.isdigit() or not 1 <= int(days[:9]) <= _MOST_DAYS:
            raise TurnFailure("invalid_request", f"days: must be a whole number from 1 to {_MOST_DAYS}", param="days")
        budgets = {
            key.name: {"tokens_per_day": key.tokens_per_day, "tokens_per_month": key.tokens_per_month}
            for key in self._gateway.keys.keys
        }
        body = {"days": self._gateway.usage.rows(int(days)), "budgets": budgets}
        return Response(msgspec.json.encode(body), media_type=_JSON)

    async def settings(self, request: Request) -> Response:
        """The settings in effect, without secrets; with `described`, each with what it is and whether it was chosen."""
        values: Any = open_settings(self._gateway.settings)
        if request.query_params.get("described"):
            told, defaults = described(Settings), open_settings(Settings())
            values = [
                {"name": name, "value": value, "chosen": value != defaults[name], "description": told[name]}
                for name, value in values.items()
            ]
        return Response(msgspec.json.encode(values), media_type=_JSON)

    async def metrics(self, request: Request) -> Response:
        page = self.page()
        if self._siblings is not None:
            page = await self._siblings.metrics(page)
        return Response(page, media_type="text/plain; version=0.0.4")

    def page(self) -> bytes:
        """What this process has counted."""
        metrics = self._gateway.metrics
        metrics.live.set(len(self._gateway.heartbeat))
        for runtime in self._gateway.runtimes:
            if isinstance(runtime.engine, WorkerPool):
                metrics.observe_pool(runtime.id, runtime.engine)
        return metrics.page()

    async def openapi(self, request: Request) -> Response:
        return Response(openapi_document(), media_type="application/json")
