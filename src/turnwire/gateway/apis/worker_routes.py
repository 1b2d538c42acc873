"""Workers that come and go while the gateway runs: added, drained and removed by the operator.

Promise: a worker that does not start is not added, and the answer says why. A model keeps at least one worker; turns
that run on one that leaves finish there, or move on after its patience.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnwire.engines.interface import EngineError
from turnwire.engines.pool.pool import WorkerPool
from turnwire.gateway.gateway import Gateway
from turnwire.gateway.setup.worker_list import add_worker, last_worker, pool_of
from turnwire.gateway.turns.runtime import ModelRuntime
from turnwire.protocols.wire import TurnFailure

__all__ = ["WorkerRoutes"]

log = logging.getLogger("turnwire.workers")

_MOST_PATIENCE = 3600.0


class WorkerRoutes:
    """`POST /admin/workers?model=&engine=`, `POST /admin/workers/drain?model=&worker=` and `DELETE
    /admin/workers?model=&worker=&patience=`. `model` may be left out where there is one."""

    def __init__(self, gateway: Gateway, *, alone: bool = False) -> None:
        self._gateway = gateway
        self._siblings = None if alone else gateway.siblings
        self._leaving: set[asyncio.Task[None]] = set()

    async def add(self, request: Request) -> Response:
        """Start an engine as one more worker of a model."""
        runtime, engine = self._runtime(request), _said(request, "engine")
        try:
            worker = await add_worker(runtime, self._gateway.settings, engine)
        except ValueError as error:
            raise TurnFailure("invalid_request", str(error), param="engine") from None
        except EngineError as error:
            raise TurnFailure("invalid_request", f"{engine} does not serve: {error.message}", param="engine") from None
        return await self._answered(request, {"model": runtime.id, "worker": worker, "state": "added"})

    async def drain(self, request: Request) -> Response:
        """Give a worker no new turns."""
        runtime, name = self._worker(request)
        pool_of(runtime).drain(name)
        return await self._answered(request, {"model": runtime.id, "worker": name, "state": "draining"})

    async def remove(self, request: Request) -> Response:
        """Drain a worker and take it out once its turns are over, or after `patience` seconds (60)."""
        runtime, name = self._worker(request)
        patience = _patience(request.query_params.get("patience", "60"))
        pool = pool_of(runtime)
        pool.drain(name)
        self._later(lambda: pool.remove(name, patience=patience))
        return await self._answered(request, {"model": runtime.id, "worker": name, "state": "leaving"})

    def _later(self, work: Callable[[], Awaitable[None]]) -> None:
        async def run() -> None:
            try:
                await work()
            except Exception:
                log.exception("a worker could not be removed")

        task = asyncio.create_task(run())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _runtime(self, request: Request) -> ModelRuntime:
        model = request.query_params.get("model", "")
        if not model and len(self._gateway.runtimes) > 1:
            raise TurnFailure("invalid_request", "model: name the model, there are several", param="model")
        return self._gateway.runtime_for(model)

    def _worker(self, request: Request) -> tuple[ModelRuntime, str]:
        runtime, name = self._runtime(request), _said(request, "worker")
        pool = runtime.engine
        known = pool.workers if isinstance(pool, WorkerPool) else []
        found = next((worker for worker in known if name in (worker.name, worker.label)), None)
        if found is None:
            listed = ", ".join(worker.name for worker in known)
            raise TurnFailure("not_found", f"{runtime.id} has no worker '{name[:200]}'. It has: {listed}.")
        if last_worker(pool_of(runtime), found):
            raise TurnFailure("invalid_request", f"{found.name} is the last worker of {runtime.id}; add another first.")
        return runtime, found.name

    async def _answered(self, request: Request, body: dict[str, str]) -> Response:
        """The answer, once the other processes of the gateway have done the same."""
        if self._siblings is not None:
            path = f"{request.url.path}?{urlencode(dict(request.query_params))}"
            for name, (status, _) in (await self._siblings.ask(path, method=request.method)).items():
                if status != 200:
                    log.warning("gateway process %s did not follow: %s %s", name, request.method, path)
        return Response(msgspec.json.encode(body), media_type="application/json")


def _said(request: Request, name: str) -> str:
    value = request.query_params.get(name, "")
    if not value:
        raise TurnFailure("invalid_request", f"{name}: this parameter is required", param=name)
    return value


def _patience(text: str) -> float:
    try:
        patience = float(text)
    except ValueError:
        patience = -1.0
    if not 0 <= patience <= _MOST_PATIENCE:
        raise TurnFailure("invalid_request", f"patience: seconds from 0 to {_MOST_PATIENCE:g}", param="patience")
    return patience
