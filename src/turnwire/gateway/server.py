"""Runs the application: one process, one event loop, uvloop where there is one.

Promise: the ready line is printed once the gateway answers, with the address a client should use.
"""

from __future__ import annotations

import asyncio
import socket
import sys

import uvicorn

from .app import Gateway, create_app
from .assembly import assemble
from .settings import Settings

__all__ = ["run"]


def run(settings: Settings, listener: socket.socket) -> None:
    """Serve until told to stop."""
    if sys.platform != "win32":
        import uvloop

        uvloop.run(_main(settings, listener))
    else:
        asyncio.run(_main(settings, listener))


async def _main(settings: Settings, listener: socket.socket) -> None:
    runtime = await assemble(settings)
    gateway = Gateway(settings, [runtime])
    host, port = listener.getsockname()[:2]
    server = uvicorn.Server(
        uvicorn.Config(
            create_app(gateway),
            http="httptools",
            ws="websockets-sansio",
            access_log=False,
            log_config=None,
            lifespan="on",
            server_header=False,
            date_header=False,
            h11_max_incomplete_event_size=64 * 1024,
        )
    )
    shown = f"[{host}]" if ":" in host else host
    print(f"turnwire: {runtime.id} on http://{shown}:{port} (dialect {runtime.dialect.name})", flush=True)
    await server.serve(sockets=[listener])
