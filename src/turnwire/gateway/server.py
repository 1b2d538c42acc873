"""Runs the application: one process, one event loop, uvloop where there is one.

Promise: the ready line is printed once the gateway answers. SIGTERM drains: readiness goes off, new turns are refused,
running ones finish within the limit and are then ended with an error; a second signal stops at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
from collections.abc import Generator

import uvicorn

from turnwire.engines.embedded.downloads import Progress
from turnwire.gateway.app import create_app
from turnwire.gateway.door.connection import HttpBounds, bounded_http, bounded_socket
from turnwire.gateway.gateway import Gateway
from turnwire.gateway.settings import Settings
from turnwire.gateway.setup.assembly import assemble_models

__all__ = ["GatewayServer", "run", "server_config"]

log = logging.getLogger("turnwire.server")


def run(settings: Settings, listener: socket.socket, progress: Progress | None = None) -> None:
    """Serve until told to stop; `progress` is told of downloads."""
    with contextlib.suppress(KeyboardInterrupt):
        if sys.platform != "win32":
            import uvloop

            uvloop.run(_main(settings, listener, progress))
        else:
            asyncio.run(_main(settings, listener, progress))


async def _main(settings: Settings, listener: socket.socket, progress: Progress | None) -> None:
    runtimes = await assemble_models(settings, progress)
    gateway = Gateway(settings, runtimes)
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    names = ", ".join(runtime.id for runtime in runtimes)
    hows = ", ".join(f"dialect {r.dialect.name}" if r.writes_prompts else f"by {r.info.name}" for r in runtimes)
    ready = f"turnwire: {names} on http://{shown}:{port} ({hows})"
    server = GatewayServer(gateway, ready)
    # What exists by now lives as long as the process: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    await server.serve(sockets=[listener])


class _CutOnPurpose(logging.Filter):
    """A turn that died is cut without a clean end; uvicorn's complaint about that would only hide real ones."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "without completing response" not in record.getMessage()


def server_config(gateway: Gateway) -> uvicorn.Config:
    """How uvicorn serves a gateway."""
    settings = gateway.settings
    bounds = HttpBounds(head_bytes=settings.max_head, headers=settings.max_headers, request_s=settings.request_timeout)
    return uvicorn.Config(
        create_app(gateway),
        http=bounded_http(bounds),
        ws=bounded_socket(bounds),
        ws_max_size=settings.max_body,
        access_log=False,
        log_config=None,
        lifespan="on",
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=5,
    )


class GatewayServer(uvicorn.Server):
    """uvicorn with our own way of ending."""

    def __init__(self, gateway: Gateway, ready: str) -> None:
        super().__init__(server_config(gateway))
        logging.getLogger("uvicorn.error").addFilter(_CutOnPurpose())
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        self._gateway = gateway
        self._ready = ready
        self._drain: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            print(self._ready, flush=True)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        loop = asyncio.get_running_loop()
        signals = (signal.SIGTERM, signal.SIGINT)
        with contextlib.ExitStack() as stack:
            for number in signals:
                try:
                    loop.add_signal_handler(number, self._asked_to_stop)
                except (NotImplementedError, RuntimeError, ValueError):
                    # Windows, or not the main thread: the default handlers stay.
                    continue
                stack.callback(loop.remove_signal_handler, number)
            yield

    def _asked_to_stop(self) -> None:
        if self._drain is not None:
            # What is cut off now complains in the log; a person who asked twice knows.
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
            self.force_exit = self.should_exit = True
            return
        self._drain = asyncio.ensure_future(self._drained())

    async def _drained(self) -> None:
        gateway = self._gateway
        gateway.draining = True
        live = len(gateway.heartbeat)
        if live:
            log.warning("draining: %d turns have %.0f s to finish", live, gateway.settings.drain_timeout)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(gateway.settings.drain_timeout):
                await gateway.heartbeat.quiet.wait()
        gateway.heartbeat.expire_all("shutdown")
        await gateway.heartbeat.quiet.wait()
        self.should_exit = True
