"""The parent of several gateway processes that accept from one listening socket.

Promise: it serves nothing itself. A process that dies is replaced, at once the first time and after growing pauses when
that goes on; the socket stays open meanwhile, so the others take the connections. SIGTERM drains all, a second one
stops them at once; SIGHUP replaces them one after another, each only once its successor answers.

| signal to the parent | what its processes get |
|---|---|
| SIGTERM, SIGINT | SIGTERM: refuse new turns, finish the running ones within the drain timeout |
| the same again | SIGTERM: stop at once |
| SIGHUP | one by one: a successor with the settings as they are now, then SIGHUP: accept no more, finish, end |
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from turnwire.gateway.processes.shared_settings import shared_settings
from turnwire.gateway.settings import Settings, SettingsError

__all__ = ["ProcessError", "Supervisor", "run_processes"]

log = logging.getLogger("turnwire.processes")

_LONG_ENOUGH_S = 60.0
_MOST_PAUSE_S = 30.0


class ProcessError(Exception):
    """The processes cannot be started; the message says what to change."""


def run_processes(
    settings: Settings, listener: socket.socket, load: Callable[[], Settings], announce: Callable[[str], None]
) -> None:
    """Serve with several processes until told to stop; `load` reads the settings again, `announce` gets the ready
    line."""
    if sys.platform == "win32":
        raise ProcessError("--workers needs a system where a process can inherit a socket; run one process here.")
    # Only one command's processes get in, and nothing of it outlives them.
    with tempfile.TemporaryDirectory(prefix="turnwire-") as name:
        folder = Path(name)
        shared = shared_settings(settings, folder)

        def reload() -> Settings:
            # Their number is that of the places there are.
            return msgspec.structs.replace(shared_settings(load(), folder), workers=settings.workers)

        supervisor = Supervisor(shared, listener, folder, reload=reload, announce=announce)
        asyncio.run(supervisor.run())


class Orders(msgspec.Struct, frozen=True):
    """What a process is started with: its settings, the listening socket, the folder it shares with the others, and its
    name in there."""

    settings: Settings
    listener: int
    folder: str
    name: str


class Report(msgspec.Struct, frozen=True):
    """What a process says once: that it answers, or why it cannot."""

    ready: str = ""
    error: str = ""


class Child:
    """One gateway process."""

    def __init__(self, process: asyncio.subprocess.Process, place: int, name: str) -> None:
        self.process = process
        self.place = place
        self.name = name
        self.since = time.monotonic()

    def signal(self, number: int) -> None:
        """Send a signal, if the process still runs."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)


class Supervisor:
    """Keeps `settings.workers` processes running. `reload` gives the settings anew; `announce` gets the ready line."""

    def __init__(
        self,
        settings: Settings,
        listener: socket.socket,
        folder: Path,
        *,
        reload: Callable[[], Settings],
        announce: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._folder = folder
        self._reload = reload
        self._announce = announce
        self._places: dict[int, Child] = {}
        self._children: set[Child] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._pauses: dict[int, float] = {}
        # A place is filled by one at a time: a restart and a reload would leave two processes there.
        self._filling = [asyncio.Lock() for _ in range(settings.workers)]
        self._started = 0
        self._stopping = False
        self._reloading = False
        self._over = asyncio.Event()

    async def run(self) -> None:
        """Start all, keep them running, and return when all have ended. ProcessError if the first ones do not start."""
        loop = asyncio.get_running_loop()
        handlers = {signal.SIGTERM: self._stop, signal.SIGINT: self._stop, signal.SIGHUP: self._replace_all}
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            # One first: what is wrong with the settings is said once.
            ready = await self._begun(0)
            await asyncio.gather(*(self._begun(place) for place in range(1, self._settings.workers)))
            if not self._stopping:
                self._announce(f"{ready.removesuffix(')')}, {self._settings.workers} processes)")
            await self._over.wait()
        except ProcessError:
            if not self._stopping:
                raise
        finally:
            self._stopping = True
            for task in self._tasks:
                task.cancel()
            for child in self._children:
                child.signal(signal.SIGKILL)
            for child in tuple(self._children):
                await child.process.wait()
            for number in handlers:
                loop.remove_signal_handler(number)

    # ------------------------------------------------------------------------------------------------- processes

    async def _begun(self, place: int) -> str:
        """Start the process of a place and wait until it answers; its ready line."""
        self._started += 1
        name = f"{self._started}"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "turnwire.gateway.processes.child"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=[self._listener.fileno()],
            # A Ctrl-C is the parent's to pass on: twice would mean to stop at once.
            start_new_session=True,
        )
        child = Child(process, place, name)
        self._children.add(child)
        if self._stopping:
            child.signal(signal.SIGTERM)
        assert process.stdin is not None
        assert process.stdout is not None
        orders = Orders(self._settings, self._listener.fileno(), str(self._folder), name)
        with contextlib.suppress(ConnectionError):
            process.stdin.write(msgspec.json.encode(orders) + b"\n")
            await process.stdin.drain()
        line = await process.stdout.readline()
        report = msgspec.json.decode(line, type=Report) if line else Report(error="")
        if not report.ready:
            child.signal(signal.SIGTERM)
            await self._gone(child)
            code = child.process.returncode
            raise ProcessError(report.error or f"A gateway process ended with {code} before it answered.")
        self._places[place] = child
        self._keep(self._watched(child))
        return report.ready

    async def _gone(self, child: Child) -> None:
        await child.process.wait()
        self._children.discard(child)
        (self._folder / f"{child.name}.sock").unlink(missing_ok=True)
        if self._stopping and not self._children:
            self._over.set()

    async def _watched(self, child: Child) -> None:
        await self._gone(child)
        if self._stopping or self._places.get(child.place) is not child:
            return
        log.error("gateway process %d ended with %s", child.process.pid, child.process.returncode)
        if time.monotonic() - child.since > _LONG_ENOUGH_S:
            self._pauses.pop(child.place, None)
        await self._restarted(child)

    async def _restarted(self, child: Child) -> None:
        place = child.place
        while not self._stopping and self._places[place] is child:
            pause = self._pauses.get(place, 0.0)
            self._pauses[place] = min(max(2 * pause, 0.5), _MOST_PAUSE_S)
            await asyncio.sleep(pause)
            async with self._filling[place]:
                if self._places[place] is not child:
                    return
                try:
                    await self._begun(place)
                except ProcessError as error:
                    if not self._stopping:
                        log.error("a gateway process does not start: %s", error)
                else:
                    log.warning("gateway process %d takes its place", self._places[place].process.pid)

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --------------------------------------------------------------------------------------------------- signals

    def _stop(self) -> None:
        self._stopping = True
        for child in self._children:
            child.signal(signal.SIGTERM)
        if not self._children:
            self._over.set()

    def _replace_all(self) -> None:
        if self._stopping or self._reloading:
            return
        self._reloading = True
        self._keep(self._replaced())

    async def _replaced(self) -> None:
        try:
            self._settings = self._reload()
            for place in range(self._settings.workers):
                async with self._filling[place]:
                    before = self._places[place]
                    await self._begun(place)
                    before.signal(signal.SIGHUP)
            log.info("all %d gateway processes are new", self._settings.workers)
        except (ProcessError, SettingsError) as error:
            if not self._stopping:
                log.error("the reload stops here; what runs goes on: %s", error)
        finally:
            self._reloading = False
