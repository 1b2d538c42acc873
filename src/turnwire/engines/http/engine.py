"""What all HTTP engines share: one pooled session, one streaming loop, failures in neutral words.

Promise: all events of one socket read become one batch; leaving the stream closes the connection at once, which every
engine takes as an abort; a connection that fails before the answer is `unreachable`, after it `disconnected`; a stream
that ends without the engine's own finish is never a success.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, TypeVar

import aiohttp
import msgspec

from turnwire.engines.bridge import push
from turnwire.engines.failures import refusal
from turnwire.engines.http.sse import EventReader
from turnwire.engines.interface import (
    Capabilities,
    Completion,
    EngineError,
    EngineInfo,
    EventBatch,
    GenerateRequest,
    Generation,
    Receiver,
    Step,
    TokenBatch,
)
from turnwire.turns import Note

__all__ = ["Call", "HTTPEngine", "Reading"]

_T = TypeVar("_T")

_CONNECT_SECONDS = 10.0
_PROBE_SECONDS = 30.0
_DRAIN_SECONDS = 0.5
_KEEPALIVE_SECONDS = 2.0
"""Below the five seconds after which uvicorn drops an idle connection."""


class Reading(ABC):
    """One generation's answer, read without I/O. `end` is set once the engine itself has finished, `error` once it said
    that it failed; what came before in the same read is still given."""

    end: Completion | None = None
    error: EngineError | None = None

    @abstractmethod
    def feed(self, events: bytes) -> TokenBatch | EventBatch | None:
        """Take a JSON array of events and give what they bring as one batch."""

    def close(self) -> Completion | None:
        """The completion of a stream that is over: `end`, where the engine finished at all."""
        return self.end


class Call(msgspec.Struct, frozen=True):
    """A generation as the engine is asked for it: where, with what JSON, and what could not be said."""

    path: str
    body: Mapping[str, object]
    notes: tuple[Note, ...] = ()


class HTTPEngine(ABC):
    """Base of the adapters. A subclass says what it sends (`_call`) and how the answer reads (`_reading`)."""

    name: str
    capabilities: Capabilities

    def __init__(self, base_url: str, *, model: str | None = None, api_key: str | None = None) -> None:
        self._base = base_url
        self._model = model
        self._key = api_key
        self._window: int | None = None
        self._session: aiohttp.ClientSession | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._open: set[aiohttp.ClientResponse] = set()

    # ---------------------------------------------------------------------------------------------- subclasses

    @abstractmethod
    async def _discover(self) -> EngineInfo:
        """Ask the engine what it is; called once by `start`."""

    @abstractmethod
    def _call(self, request: GenerateRequest) -> Call:
        """How the engine is asked for a streaming generation."""

    @abstractmethod
    def _reading(self, request: GenerateRequest) -> Reading:
        """How the answer to `request` reads."""

    def _abort_call(self, request: GenerateRequest) -> Call | None:
        """What to send when a stream is left before its end, where closing the connection is not enough."""
        return None

    # ------------------------------------------------------------------------------------------------- engine

    async def start(self) -> EngineInfo:
        """Connect and discover."""
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        self._session = aiohttp.ClientSession(
            headers=headers,
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_SECONDS),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
            read_bufsize=1 << 18,
            auto_decompress=False,
            skip_auto_headers=("User-Agent",),
        )
        return await self._discover()

    def submit(self, request: GenerateRequest, receiver: Receiver) -> Generation:
        """Start a generation; see the interface's promise."""
        return push(self.generate(request), receiver)

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Step, None]:
        """Generate; see the interface's promise."""
        call = self._call(request)
        reading = self._reading(request)
        response = await self._post(call.path, msgspec.json.encode(call.body), request.hints.request_id)
        events, content = EventReader(), response.content
        finished = False
        self._open.add(response)
        try:
            if call.notes:
                yield EventBatch(call.notes)
            while True:
                data = await content.readany()
                array = events.feed(data) if data else events.finish()
                if array is not None:
                    batch = reading.feed(array)
                    if batch is not None:
                        yield batch
                if reading.error is not None:
                    raise reading.error
                if reading.end is not None or events.done or not data:
                    break
            completion = reading.close()
            if completion is None:
                raise EngineError("disconnected", f"{self.name} ended the stream before it finished the generation")
            finished = True
            yield completion
        except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
            raise EngineError("disconnected", f"{self.name} went away mid-stream ({_words(error)})") from error
        except msgspec.DecodeError as error:
            raise EngineError("internal", f"{self.name} sent an event that cannot be read: {error}") from error
        finally:
            self._open.discard(response)
            if finished and not content.at_eof():
                await _drain(response)
            if finished:
                response.release()
            else:
                response.close()
                if (notice := self._abort_call(request)) is not None:
                    self._aside(notice)

    async def health(self) -> bool:
        """Whether the engine answers its health route."""
        try:
            async with self._http.get(f"{self._base}/health", timeout=aiohttp.ClientTimeout(total=5)) as response:
                return response.status == 200
        except (aiohttp.ClientError, ConnectionError, TimeoutError, EngineError):
            return False

    async def embed(self, inputs: Sequence[str]) -> list[list[float]]:
        """Not offered unless the adapter says so."""
        raise EngineError("invalid_request", f"this {self.name} engine serves no embeddings")

    async def close(self) -> None:
        """Close every connection; running generations end with `disconnected`."""
        for response in tuple(self._open):
            response.close()
        session, self._session = self._session, None
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1)
        if session is not None:
            await session.close()

    # -------------------------------------------------------------------------------------------------- tools

    @property
    def _http(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise EngineError("unreachable", f"the {self.name} engine is not running")
        return self._session

    def _room(self, request: GenerateRequest, reserve: int = 0) -> int | None:
        """How many tokens may be generated: what was asked, bounded by what the window has left (None: no bound)."""
        wanted = request.sampling.max_tokens
        if self._window is None:
            return wanted
        left = self._window - len(request.prompt_ids) - reserve
        if left < 1:
            raise EngineError(
                "context_overflow",
                f"the prompt has {len(request.prompt_ids)} tokens; the model's window holds {self._window}",
            )
        return left if wanted is None else min(wanted, left)

    async def _post(self, path: str, body: bytes, request_id: str) -> aiohttp.ClientResponse:
        """Open a streaming answer. A pooled connection that the engine had dropped meanwhile is tried once more."""
        for attempt in (1, 2):
            try:
                response = await self._http.post(
                    self._base + path, data=body, headers={"X-Request-Id": request_id, "Accept": "text/event-stream"}
                )
                break
            except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
                dropped = isinstance(error, (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError))
                if attempt == 2 or not dropped or isinstance(error, aiohttp.ClientConnectorError):
                    raise self._unreachable(error) from error
        if response.status != 200:
            try:
                said = await response.read()
            except (aiohttp.ClientError, ConnectionError, TimeoutError):
                said = b""
            raise refusal(self.name, response.status, said, response.headers.get("Retry-After"))
        return response

    async def _ask(self, path: str, kind: type[_T], body: Mapping[str, object] | None = None) -> _T:
        """A short question at start, decoded; EngineError where it has no answer."""
        data = await self._ask_bytes(path, body)
        try:
            return msgspec.json.decode(data, type=kind, strict=False)
        except msgspec.DecodeError as error:
            raise EngineError("internal", f"{self._base}{path} did not answer as {self.name} does: {error}") from error

    async def _ask_bytes(self, path: str, body: Mapping[str, object] | None = None) -> bytes:
        timeout = aiohttp.ClientTimeout(total=_PROBE_SECONDS)
        data: Any = msgspec.json.encode(body) if body is not None else None
        method = "GET" if body is None else "POST"
        try:
            async with self._http.request(method, self._base + path, data=data, timeout=timeout) as response:
                said = await response.read()
                if response.status != 200:
                    raise refusal(self.name, response.status, said)
                return said
        except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
            raise self._unreachable(error) from error

    async def _maybe(self, path: str, kind: type[_T]) -> _T | None:
        """Like `_ask`, for what not every version answers."""
        try:
            return await self._ask(path, kind)
        except EngineError as error:
            if error.kind == "unreachable":
                raise
            return None

    def _aside(self, call: Call) -> None:
        """Send a notice whose answer nobody waits for."""

        async def send() -> None:
            try:
                await self._ask_bytes(call.path, call.body)
            except EngineError:
                return

        if self._session is not None:
            task = asyncio.get_running_loop().create_task(send())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _unreachable(self, error: BaseException) -> EngineError:
        return EngineError("unreachable", f"no {self.name} engine answers at {self._base} ({_words(error)})")


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__


async def _drain(response: aiohttp.ClientResponse) -> None:
    """Read the few bytes after the last event, so that the connection can be used again."""
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            while not response.content.at_eof():
                await response.content.readany()
    except (aiohttp.ClientError, ConnectionError, TimeoutError):
        response.close()
