"""Runs the application: one process, one event loop, uvloop where there is one.

Promise: the ready line is given once the gateway answers. SIGTERM drains: readiness goes off, new turns are refused,
running ones finish within the limit and are then ended with an error; a second signal stops at once. SIGHUP of a
service brings its workers to what the config file says now; one of several processes hands over, which is to accept no
more and to end when all is said; any other gateway drains.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING

import uvicorn
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from turnwire.engines.embedded.downloads import Progress
from turnwire.gateway.app import create_app
from turnwire.gateway.door.bounds import HttpBounds
from turnwire.gateway.door.connection import bounded_http
from turnwire.gateway.door.websocket import bounded_socket
from turnwire.gateway.gateway import Gateway
from turnwire.gateway.large_pages import use_large_pages
from turnwire.gateway.returning import return_memory, return_when_quiet
from turnwire.gateway.settings import Settings
from turnwire.gateway.setup.assembly import assemble_models
from turnwire.gateway.setup.worker_list import apply_engines
from turnwire.gateway.sleeping_server import SleepingServer

if TYPE_CHECKING:
    from turnwire.gateway.processes.siblings import Siblings

__all__ = ["GatewayServer", "run", "server_config"]

log = logging.getLogger("turnwire.server")

_YOUNG = 5_000
"""New objects after which the collector looks for cycles among them. A turn makes some thousand, few of them in cycles;
to look at twice as many takes longer than the event loop may be held."""


_KEPT_S = 75
"""How long a client's idle connection is kept: longer than clients and proxies keep theirs (httpx 5 s, nginx and AWS's
load balancer 60 s). Who sends a request just when we close gets a reset, and a POST is not sent again by itself."""


class StartInterrupted(Exception):
    """A signal came before the gateway answered."""


def run(
    settings: Settings,
    listener: socket.socket,
    progress: Progress | None = None,
    *,
    announce: Callable[[str], None] | None = None,
    siblings: Siblings | None = None,
    reread: Callable[[], Settings] | None = None,
) -> None:
    """Serve until told to stop; `progress` is called as downloads advance, `announce` gets the ready line instead of
    standard output, `siblings` are the other processes of the same gateway. SIGHUP brings
    the workers to what `reread` says then. StartInterrupted if the stop comes before the ready line."""
    work = _main(settings, listener, progress, announce or _print, siblings, reread)
    with contextlib.suppress(KeyboardInterrupt):
        if sys.platform != "win32":
            import uvloop

            uvloop.run(work)
        else:
            asyncio.run(work)


def _print(line: str) -> None:
    print(line, flush=True)


async def _main(
    settings: Settings,
    listener: socket.socket,
    progress: Progress | None,
    announce: Callable[[str], None],
    siblings: Siblings | None,
    reread: Callable[[], Settings] | None,
) -> None:
    with _interruptible():
        runtimes = await assemble_models(settings, progress)
    for runtime in runtimes:
        await runtime.warm()
    gateway = Gateway(settings, runtimes, siblings)
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    names = ", ".join(runtime.id for runtime in runtimes)
    hows = ", ".join(
        dict.fromkeys(f"dialect {r.dialect.name}" if r.writes_prompts else f"by {r.info.name}" for r in runtimes)
    )
    scheme = "https" if settings.tls_cert else "http"
    ready = f"turnwire: {names} on {scheme}://{shown}:{port} ({hows})"
    server = GatewayServer(gateway, lambda: announce(ready), reread)
    # What exists by now lives as long as the process: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG)
    return_memory()
    use_large_pages()
    returning = asyncio.create_task(return_when_quiet(gateway.heartbeat))
    try:
        if siblings is None:
            await server.serve(sockets=[listener])
            return
        from turnwire.gateway.processes.inside import answering

        async with answering(gateway, siblings):
            asyncio.get_running_loop().add_reader(sys.stdin.fileno(), server.orphaned)
            await server.serve(sockets=[listener])
    finally:
        returning.cancel()


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """A first signal cancels what is begun here; a second one ends the process, whatever its threads still do."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    asked = False

    def stop() -> None:
        nonlocal asked
        if asked:
            if sys.stderr.isatty():
                # A progress bar hides the cursor.
                os.write(sys.stderr.fileno(), b"\x1b[?25h\n")
            os._exit(130)
        asked = True
        task.cancel()

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
    except (NotImplementedError, RuntimeError, ValueError):
        # Windows, or not the main thread: the default handlers stay.
        yield
        return
    try:
        yield
    except asyncio.CancelledError:
        # The handlers stay: closing the loop waits for threads, and a second signal must not raise in the midst of it.
        if asked:
            raise StartInterrupted from None
        raise
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.remove_signal_handler(number)


class ServerComplaints(logging.Filter):
    """What uvicorn says of WebSockets. A client's mistakes are answered to the client, which may not fill the log with
    warnings and traces: there they are one line of information."""

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.getMessage().startswith("Invalid UTF-8 sequence"):
            return True
        record.levelno, record.levelname = logging.INFO, "INFO"
        record.exc_info = record.exc_text = None
        return logging.getLogger().isEnabledFor(logging.INFO)


def server_config(gateway: Gateway) -> uvicorn.Config:
    """How uvicorn serves a gateway."""
    settings = gateway.settings
    bounds = HttpBounds(
        head_bytes=settings.max_head,
        headers=settings.max_headers,
        request_s=settings.request_timeout,
        stall_s=settings.stall_timeout,
    )
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
        timeout_keep_alive=_KEPT_S,
        timeout_graceful_shutdown=5,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
    )


class GatewayServer(SleepingServer):
    """uvicorn with our own way of ending."""

    # Between the last accept of a process that hands over and the end of connections on which nothing was asked.
    HANDOVER_S = 1.0

    def __init__(
        self, gateway: Gateway, announce: Callable[[], None], reread: Callable[[], Settings] | None = None
    ) -> None:
        super().__init__(server_config(gateway))
        logging.getLogger("uvicorn.error").addFilter(ServerComplaints())
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        self._gateway = gateway
        self._announce = announce
        self._reread = reread
        self._applying: asyncio.Task[None] | None = None
        self._drain: asyncio.Task[None] | None = None
        self._handover: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._announce()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        loop = asyncio.get_running_loop()
        handlers = {signal.SIGTERM: self._asked_to_stop, signal.SIGINT: self._asked_to_stop}
        if sys.platform != "win32":
            alone = self._gateway.siblings is None
            handlers[signal.SIGHUP] = self._hung_up if alone else self._asked_to_hand_over
        with contextlib.ExitStack() as stack:
            for number, handler in handlers.items():
                try:
                    loop.add_signal_handler(number, handler)
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

    def _hung_up(self) -> None:
        """A terminal that closes takes the gateway with it; for a service this means that its file has changed."""
        if self._reread is None or (sys.stdin is not None and sys.stdin.isatty()):
            self._asked_to_stop()
        elif self._applying is None or self._applying.done():
            self._applying = asyncio.ensure_future(self.apply_file(self._reread))

    async def apply_file(self, reread: Callable[[], Settings]) -> None:
        """Bring the workers to what the config file says now; everything else needs a restart."""
        try:
            await apply_engines(self._gateway.runtimes, reread())
        except Exception as error:
            log.warning("the config file was not applied: %s", error)

    def orphaned(self) -> None:
        """The supervisor, which holds the other end of our standard input and writes no more, is gone."""
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        if self._drain is None:
            self._asked_to_stop()

    def _asked_to_hand_over(self) -> None:
        if self._handover is None:
            self._handover = asyncio.ensure_future(self.hand_over())

    async def hand_over(self, limit: float | None = None) -> None:
        """Another process has our place: accept no more, close what is idle, and finish what is not; what takes longer
        than `limit` ends as in a drain."""
        for server in self.servers:
            server.close()
        await asyncio.sleep(self.HANDOVER_S)
        for connection in list(self.server_state.connections):
            if not isinstance(connection, WebSocketsSansIOProtocol):
                connection.shutdown()
        heartbeat = self._gateway.heartbeat
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                while self.server_state.tasks and len(heartbeat):
                    await heartbeat.quiet.wait()
                    await asyncio.sleep(0.05)
        heartbeat.expire_all("shutdown")
        await heartbeat.quiet.wait()
        self.should_exit = True

    async def _drained(self) -> None:
        gateway = self._gateway
        gateway.draining = True
        live = len(gateway.heartbeat)
        if live:
            turns = "1 turn has" if live == 1 else f"{live} turns have"
            log.warning("draining: %s %.0f s to finish", turns, gateway.settings.drain_timeout)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(gateway.settings.drain_timeout):
                await gateway.heartbeat.quiet.wait()
        cut = len(gateway.heartbeat)
        gateway.heartbeat.expire_all("shutdown")
        await gateway.heartbeat.quiet.wait()
        if cut:
            log.warning("stopped: %d of %d turns were still running and ended with an error", cut, live)
        else:
            log.info("stopped: %s", "every turn finished" if live else "no turn was running")
        self.should_exit = True
