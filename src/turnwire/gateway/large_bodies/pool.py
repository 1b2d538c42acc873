"""The processes that decode large bodies: started when the first one comes, ended when none came for a while.

Promise: at most a few processes and a bounded number of waiting bytes; what is beyond is refused as overload. A process
whose client left in between, or that failed, is ended and another one takes its place. While a body is decoded the
event loop only passes bytes on, in small pieces.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from turnwire.gateway.door.bodies import expand
from turnwire.gateway.door.limits import RequestLimits
from turnwire.gateway.large_bodies.exchange import (
    ApiName,
    Ask,
    Failed,
    Outcome,
    Read,
    Refers,
    Settled,
    TooLong,
    failure_in,
    framed,
    inbound_in,
    read_items,
    read_messages,
    told,
)
from turnwire.prompts.size import Density
from turnwire.protocols.hosted.offer import NOTHING, HostedOffer
from turnwire.protocols.wire import Inbound, TurnFailure
from turnwire.turns import Message

__all__ = ["LargeBodies", "LargeRequest"]

log = logging.getLogger("turnwire.bodies")

_LARGE = 1 << 20
_LARGE_ENCODED = 1 << 15
_PIECE = 256 * 1024
_FREED = 8


class LargeBodies:
    """Decodes large bodies for one gateway. `limits` are those of every request."""

    # How many processes, how many bytes may wait for them, how long one may take and how long it stays, in seconds.
    PROCESSES = 2
    WAITING_BYTES = 512 * 1024 * 1024
    DECODE_S = 120.0
    IDLE_S = 60.0

    def __init__(self, limits: RequestLimits) -> None:
        self.limits = limits
        self._places = asyncio.Semaphore(self.PROCESSES)
        self._idle: list[_Process] = []
        self._waiting = 0

    def takes(self, size: int, encoding: str) -> bool:
        """Whether a body of `size` bytes is decoded here; one that must be expanded first may become much larger."""
        return size >= (_LARGE_ENCODED if encoding else _LARGE)

    def request(self, headers: dict[str, str], chunks: Sequence[bytes], size: int) -> LargeRequest:
        """A request with a large body; TurnFailure where too much waits already."""
        if self._waiting + size > self.WAITING_BYTES:
            raise TurnFailure("overloaded", "Too many large requests at a time; try again.", retry_after=2)
        self._waiting += size
        return LargeRequest(self, headers, chunks, size)

    def forgotten(self, size: int) -> None:
        """A request's bytes wait no longer."""
        self._waiting -= size

    async def take(self) -> _Process:
        """A process that has nothing to do."""
        await self._places.acquire()
        try:
            while self._idle:
                process = self._idle.pop()
                if process.rests():
                    return process
            return await _Process.started()
        except BaseException:
            self._places.release()
            raise

    def give_back(self, process: _Process, *, sound: bool) -> None:
        """A process that is done; one that is not `sound` is ended."""
        self._places.release()
        if sound:
            self._idle.append(process)
            process.rest(self.IDLE_S)
        else:
            process.end()

    def stop(self) -> None:
        """End the processes that wait."""
        while self._idle:
            self._idle.pop().end()


class LargeRequest:
    """One request whose body is large: first `read`, then `settle`d for the model that was found, or `complete`d for
    whoever needs its messages before. It must be `close`d."""

    def __init__(self, bodies: LargeBodies, headers: dict[str, str], chunks: Sequence[bytes], size: int) -> None:
        self.size = size
        self._bodies = bodies
        self._headers = headers
        self._chunks: list[bytes] = list(chunks)
        self._process: _Process | None = None
        self._held = size

    def body(self) -> bytes:
        """The whole body, expanded; this takes its time."""
        encoding = self._headers.get("content-encoding", "")
        return expand(b"".join(self._chunks), encoding, self._bodies.limits.wire.body_bytes)

    async def read(self, api: ApiName, offer: HostedOffer = NOTHING) -> Inbound[Any] | None:
        """The request without its messages; None where what it refers to is needed to understand it."""
        asked = Read(api, self._headers, self._bodies.limits, offer, self.size)
        async with self._bounded():
            process = self._process = await self._bodies.take()
            await process.send(framed(asked), *self._chunks)
            answer = told(await process.frame(), Outcome, Refers, Failed)
        if isinstance(answer, Outcome):
            self._forget()
            return inbound_in(answer, api, offer)
        self._end(sound=True)
        if isinstance(answer, Failed):
            raise failure_in(answer)
        return None

    async def settle(self, inbound: Inbound[Any], *, window: int, density: Density | None, fetches: bool) -> int | None:
        """Give a request its messages, within all limits. Where they have more than `window` tokens for certain they
        are dropped: how many at least."""
        process = self._process
        if process is None:  # completed before
            self._bodies.limits.check(inbound.conversation, self.size, fetches=fetches)
            return None
        async with self._bounded():
            await process.send(framed(Ask(window, density, fetches)))
            answer = told(await process.frame(), Settled, TooLong, Failed)
            if isinstance(answer, Settled):
                await self._take_over(process, inbound, answer)
        self._end(sound=True)
        if isinstance(answer, Failed):
            raise failure_in(answer)
        return answer.least if isinstance(answer, TooLong) else None

    async def complete(self, inbound: Inbound[Any]) -> None:
        """Give a request its messages, however many tokens they have."""
        await self.settle(inbound, window=0, density=None, fetches=False)

    @asynccontextmanager
    async def _bounded(self) -> AsyncIterator[None]:
        """Whatever goes wrong with the process is reported in words that a client understands."""
        try:
            async with asyncio.timeout(self._bodies.DECODE_S):
                yield
        except OSError as error:  # a timeout is one of them
            log.warning("a large body could not be decoded: %r", error)
            raise TurnFailure(
                "internal", f"This request of {self.size} bytes could not be decoded; send less, or try again."
            ) from None

    async def _take_over(self, process: _Process, inbound: Inbound[Any], coming: Settled) -> None:
        messages: list[Message] = []
        for _ in range(coming.messages):
            messages += read_messages(await process.frame())
            await asyncio.sleep(0)
        items: list[dict[str, Any]] = []
        for _ in range(coming.items):
            items += read_items(await process.frame())
            await asyncio.sleep(0)
        inbound.conversation = msgspec.structs.replace(inbound.conversation, messages=tuple(messages))
        if items:
            inbound.echo.input_items = items

    def close(self) -> None:
        """The request is admitted or gone."""
        self._end(sound=False)
        self._forget()

    def _end(self, *, sound: bool) -> None:
        if self._process is not None:
            self._bodies.give_back(self._process, sound=sound)
            self._process = None

    def _forget(self) -> None:
        _let_go(self._chunks)
        self._chunks = []
        self._bodies.forgotten(self._held)
        self._held = 0


def _let_go(chunks: list[bytes]) -> None:
    """Free the pieces of a body a few at a time: to give tens of megabytes back at once takes milliseconds."""
    del chunks[-_FREED:]
    if chunks:
        asyncio.get_running_loop().call_soon(_let_go, chunks)


class _Process:
    """One decoding process and the wire to it."""

    def __init__(
        self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._ending: asyncio.TimerHandle | None = None

    @classmethod
    async def started(cls) -> _Process:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                command = [sys.executable, "-m", "turnwire.gateway.large_bodies.decoder"]
                process = await asyncio.to_thread(
                    subprocess.Popen, command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, start_new_session=True
                )
            reader, writer = await asyncio.open_connection(sock=ours)
        except BaseException:
            ours.close()
            raise
        return cls(process, reader, writer)

    async def send(self, *parts: bytes) -> None:
        held = 0
        for part in parts:
            for start in range(0, len(part), _PIECE):
                self._writer.write(part[start : start + _PIECE] if len(part) > _PIECE else part)
                held += min(len(part) - start, _PIECE)
                if held >= _PIECE:
                    await self._writer.drain()
                    # A process that reads as fast as it is sent to leaves nothing to wait for.
                    await asyncio.sleep(0)
                    held = 0
        await self._writer.drain()

    async def frame(self) -> bytes:
        try:
            size = int.from_bytes(await self._reader.readexactly(4), "little")
            return await self._reader.readexactly(size)
        except asyncio.IncompleteReadError:
            raise ConnectionResetError("a process that decodes large bodies ended") from None

    def rest(self, seconds: float) -> None:
        """Wait for work, but not for ever."""
        self._ending = asyncio.get_running_loop().call_later(seconds, self.end)

    def rests(self) -> bool:
        """Wake it up; whether it is still there."""
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        return self._process.poll() is None and not self._writer.is_closing()

    def end(self) -> None:
        """End it at once; it has nothing to lose."""
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        self._writer.close()
        if self._process.poll() is None:
            self._process.kill()
            # The kernel takes its time to give back much memory.
            asyncio.get_running_loop().run_in_executor(None, self._process.wait)
