"""The gateway on Ray Serve: Ray places, heals and scales its replicas.

    serve run turnwire.deploy.ray:direct engine=http://vllm:8000 store=redis://redis:6379/0 seal_key=...
    serve run turnwire.deploy.ray:app engine=... store=... seal_key=...

Promise: settings are those of `turnwire serve`, by the same names. With `direct` a replica listens itself, on the same
socket as the others of its machine, so that tokens pass through nothing of Ray; it ends as a gateway does on SIGTERM.
With `app` requests pass through Ray's proxy, and a client that leaves is booked as gone. `replicas=N` keeps their
number; without it Ray scales by live turns. `engines=NAME` names the application of engines that Ray places
(`turnwire.deploy.ray_engines`), instead of `engine`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import os
from typing import Any

import msgspec
from ray.serve.config import AutoscalingContext
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ray import serve
from turnwire.deploy.ray_engines import PlacedEngines
from turnwire.deploy.shared_listener import SharedListener
from turnwire.gateway.app import create_app
from turnwire.gateway.gateway import Gateway
from turnwire.gateway.server import GatewayServer
from turnwire.gateway.settings import Settings, SettingsError
from turnwire.gateway.setup.assembly import assemble_models
from turnwire.gateway.setup.loading import load_settings

__all__ = ["Departures", "DirectReplica", "IngressReplica", "app", "by_live_turns", "direct"]

LIVE_TURNS = "live_turns"
# What a stopped replica has beyond its drain timeout before Ray kills it, in seconds.
_MARGIN_S = 15.0
_TARGET = 200
_MOST_REPLICAS = 64
# A replica's process is its own; what it follows is kept from being collected here.
_FOLLOWING: list[asyncio.Task[None]] = []


def by_live_turns(context: AutoscalingContext) -> tuple[int, dict[str, Any]]:
    """As many replicas as the live turns need, at `target_ongoing_requests` each. Ray's own count would not do: it sees
    no request that goes straight to a replica."""
    told = (context.aggregated_metrics or {}).get(LIVE_TURNS, {})
    target = context.config.target_ongoing_requests if context.config is not None else _TARGET
    return max(1, math.ceil(sum(told.values()) / target)), {}


def direct(flags: dict[str, Any]) -> serve.Application:
    """Replicas that listen themselves."""
    settings = _settings(flags)
    if settings.port == 0:
        raise SettingsError("port: replicas of one machine share a port; name it.")
    scaling = {"policy": {"policy_function": by_live_turns}}
    return _deployed(DirectReplica, settings, flags.get("replicas"), scaling).bind(_own(flags))


def app(flags: dict[str, Any]) -> serve.Application:
    """Replicas behind Ray's proxy."""
    settings = _settings(flags)
    return _deployed(serve.ingress()(IngressReplica), settings, flags.get("replicas"), {}).bind(_own(flags))


def _own(flags: dict[str, Any]) -> dict[str, Any]:
    """What concerns a replica: their number does not, and would make each change of it a new version of all."""
    return {name: value for name, value in flags.items() if name != "replicas"}


def _settings(flags: dict[str, Any]) -> Settings:
    """Each replica reads them for itself: a machine may have its own files and variables."""
    given = _own(flags)
    given.pop("engines", None)
    config = given.pop("config", None) or os.environ.get("TURNWIRE_CONFIG")
    settings = load_settings(given, config=config, environ=os.environ)
    if settings.store is None or settings.store == "memory":
        raise SettingsError("store: replicas share a Redis; set store=redis://HOST:PORT/0.")
    if settings.seal_key is None and settings.seal_key_file is None:
        raise SettingsError("seal_key: replicas share a key; set seal_key, or seal_key_file where all can read it.")
    return settings


def _deployed(kind: Any, settings: Settings, replicas: str | int | None, scaling: dict[str, Any]) -> Any:
    many: dict[str, Any] = {"num_replicas": int(replicas)} if replicas is not None else {}
    if replicas is None:
        many["autoscaling_config"] = {
            "min_replicas": 1,
            "max_replicas": _MOST_REPLICAS,
            "target_ongoing_requests": _TARGET,
            "upscale_delay_s": 10,
            "downscale_delay_s": 600,
            **scaling,
        }
    return serve.deployment(
        kind,
        name="turnwire",
        max_ongoing_requests=1024,
        graceful_shutdown_wait_loop_s=0.5,
        graceful_shutdown_timeout_s=settings.drain_timeout + _MARGIN_S,
        health_check_period_s=2,
        # A new version takes over one by one, each old replica once its successor answers.
        max_surge_percent=25,
        ray_actor_options={"num_cpus": 1},
        **many,
    )


async def _begun(flags: dict[str, Any]) -> Gateway:
    """A gateway of these settings; with engines that Ray places, it follows them."""
    settings = _settings(flags)
    placed = PlacedEngines(flags["engines"]) if flags.get("engines") else None
    if placed is not None:
        settings = msgspec.structs.replace(settings, engine=",".join(await placed.first()))
    gateway = Gateway(settings, await assemble_models(settings))
    if placed is not None:
        _FOLLOWING.append(asyncio.create_task(placed.keep(gateway.runtimes, settings)))
    # What exists by now, Ray's own included, lives as long as the process: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    return gateway


class DirectReplica:
    """A gateway that listens on its own, beside the other replicas of its machine: the kernel spreads connections."""

    async def __init__(self, flags: dict[str, Any]) -> None:  # type: ignore[misc]  # Ray awaits it
        self._gateway = await _begun(flags)
        settings = self._gateway.settings
        listening = asyncio.Event()
        self._server = GatewayServer(self._gateway, listening.set)
        self._listener = await asyncio.to_thread(SharedListener, settings.host, settings.port)
        self._task = asyncio.create_task(self._server.serve(sockets=[self._listener.socket]))
        await asyncio.wait({self._task, asyncio.ensure_future(listening.wait())}, return_when="FIRST_COMPLETED")
        await self.check_health()

    async def check_health(self) -> None:
        """Ray replaces a replica that has stopped serving. An engine that is away is no reason to: another replica
        would not have it either."""
        if self._task.done():
            raise RuntimeError("the gateway has stopped")

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """What `by_live_turns` scales by."""
        return {LIVE_TURNS: float(len(self._gateway.heartbeat))}

    async def __del__(self) -> None:
        """Ray stops this replica: accept no more, finish, and tell those that cannot finish in time."""
        self._listener.close()
        if not self._task.done():
            await self._server.hand_over(self._gateway.settings.drain_timeout)
            await self._task


class IngressReplica:
    """A gateway behind Ray's proxy. Ray waits for its requests when it stops it, and cuts what takes longer than the
    drain timeout."""

    async def __init__(self, flags: dict[str, Any]) -> None:  # type: ignore[misc]  # Ray awaits it
        self._gateway = await _begun(flags)

    def __serve_build_asgi_app__(self) -> ASGIApp:
        return Departures(create_app(self._gateway))


class Departures:
    """Ray cancels a request whose client has left. The application sees it as a disconnect instead, and ends its
    turn as the client's doing."""

    # How long a turn may take to end, in seconds.
    END_S = 5.0

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        left = asyncio.Event()

        async def next_message() -> Message:
            leaving, message = asyncio.ensure_future(left.wait()), asyncio.ensure_future(receive())
            try:
                await asyncio.wait({leaving, message}, return_when=asyncio.FIRST_COMPLETED)
                # Ray cancels the reading, too, when the client has left.
                heard = message.done() and not message.cancelled() and message.exception() is None
                return message.result() if heard else {"type": "http.disconnect"}
            finally:
                leaving.cancel()
                message.cancel()

        task = asyncio.ensure_future(self._inner(scope, next_message, send))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            left.set()
            with contextlib.suppress(Exception):
                await asyncio.wait({task}, timeout=self.END_S)
            task.cancel()
            raise
