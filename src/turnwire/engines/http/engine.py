"""What all HTTP engines share: a request's bytes, a streamed answer, short questions, failures in neutral words.

Promise: all events of one socket read become one batch; leaving the stream closes the connection at once, which every
engine takes as an abort; a connection that fails before the answer is `unreachable`, after it `disconnected`; a stream
that ends without the engine's own finish is never a success; a redirect is not followed.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from turnwire.engines.bridge import refuse
from turnwire.engines.failures import refusal
from turnwire.engines.http.connections import Address, Connections
from turnwire.engines.http.lines import LineReader
from turnwire.engines.http.questions import Questions, Reply
from turnwire.engines.http.sse import EventReader
from turnwire.engines.http.stream import Reading, Stream
from turnwire.engines.interface import (
    Capabilities,
    EngineError,
    EngineInfo,
    GenerateRequest,
    Generation,
    Receiver,
)
from turnwire.engines.vocabulary import Vocabulary, foreign, id_count, sample
from turnwire.turns import Note
from turnwire.unreadable import UNREADABLE

__all__ = ["Call", "HTTPEngine", "Reading"]

_T = TypeVar("_T")
_encode = msgspec.json.Encoder().encode

_PROBE_SECONDS = 30.0
_HEALTH_SECONDS = 5.0
_ANSWER_BYTES = 1 << 28
"""Of an answer that is read: the vectors of many texts are large."""
_PASSED_BYTES = 1 << 20
"""Of one that is only looked at for its status."""
_EVERY = 4
"""Of the ids to compare, where each is a question of its own."""
_IMAGE_TOKENS = 2048
"""What is left free for each image."""


class Call(msgspec.Struct, frozen=True):
    """A generation as the engine is asked for it: where, with what JSON, and what could not be said."""

    path: str
    body: Mapping[str, object]
    notes: tuple[Note, ...] = ()


class HTTPEngine(ABC):
    """Base of the adapters. A subclass says what it sends (`_call`) and how the answer reads (`_reading`)."""

    name: str
    capabilities: Capabilities
    reuses_connections = True
    reader: type[EventReader] | type[LineReader] = EventReader

    def __init__(self, base_url: str, *, model: str | None = None, api_key: str | None = None) -> None:
        self._base = base_url
        self._model = model
        self._key = api_key
        self._window: int | None = None
        self._questions: Questions | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._address = Address(base_url)
        self._heads: dict[str, bytes] = {}
        self._connections: Connections | None = None

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

    def _abort_call(self, call: Call) -> Call | None:
        """What to send when the stream of `call` is left before its end, where closing the connection is not enough."""
        return None

    def _headers(self) -> dict[str, str]:
        """What every request carries besides its type: the key, in the engine's own way."""
        return {"Authorization": f"Bearer {self._key}"} if self._key else {}

    # ------------------------------------------------------------------------------------------------- engine

    async def start(self) -> EngineInfo:
        """Connect and discover."""
        if self._connections is None:
            self._questions = Questions(self._address, self._headers())
            self._connections = Connections(self._address, reuse=self.reuses_connections)
        return await self._discover()

    def submit(self, request: GenerateRequest, receiver: Receiver) -> Generation:
        """Start a generation; see the interface's promise."""
        try:
            call = self._call(request)
            notice = self._abort_call(call)
            stream = Stream(
                self.name,
                self._streams,
                self._request(call, request.hints.request_id),
                self._reading(request),
                receiver,
                notes=call.notes,
                left=None if notice is None else partial(self._aside, notice),
                events=self.reader(),
            )
        except EngineError as error:
            return refuse(error, receiver)
        stream.begin()
        return stream

    async def health(self) -> bool:
        """Whether the engine answers its health route."""
        return await self._status("/health") == 200

    async def embed(self, inputs: Sequence[str]) -> list[list[float]]:
        """Not offered unless the adapter says so."""
        raise EngineError("invalid_request", f"this {self.name} engine serves no embeddings")

    async def close(self) -> None:
        """Close every connection; running generations end with `disconnected`."""
        connections, self._connections = self._connections, None
        if connections is not None:
            connections.close()
        self._questions = None
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=1)
            for task in late:
                task.cancel()

    # -------------------------------------------------------------------------------------------------- tools

    def _room(self, request: GenerateRequest, reserve: int = 0) -> int | None:
        """How many tokens may be generated: what was asked, bounded by what the window has left (None: no bound)."""
        wanted = request.sampling.max_tokens
        if self._window is None:
            return wanted
        left = self._window - len(request.prompt_ids) - reserve
        # Nobody here knows how many tokens an image is; engines that are asked for more than is left refuse the turn.
        left -= min(_IMAGE_TOKENS * len(request.images), left // 2)
        if left < 1:
            raise EngineError(
                "context_overflow",
                f"the prompt has {len(request.prompt_ids)} tokens; the model's window holds {self._window}",
            )
        return left if wanted is None else min(wanted, left)

    @property
    def _streams(self) -> Connections:
        if self._connections is None:
            raise EngineError("unreachable", f"the {self.name} engine is not running")
        return self._connections

    def _request(self, call: Call, request_id: str) -> bytes:
        """The bytes of a request for a streaming answer."""
        head, body = self._heads.get(call.path) or self._head(call.path), _encode(call.body)
        name = request_id if request_id.isascii() and request_id.isalnum() else quote(request_id)
        return b"%bX-Request-Id: %b\r\nContent-Length: %d\r\n\r\n%b" % (head, name.encode(), len(body), body)

    def _head(self, path: str) -> bytes:
        """What every request to `path` begins with; made once."""
        own = "".join([f"{name}: {value}\r\n" for name, value in self._headers().items()])
        head = self._heads[path] = (
            f"POST {self._address.prefix}{path} HTTP/1.1\r\nHost: {self._address.authority}\r\n"
            f"Content-Type: application/json\r\nAccept: text/event-stream\r\nAccept-Encoding: identity\r\n{own}"
        ).encode("latin-1", "replace")
        return head

    async def _ask(self, path: str, kind: type[_T], body: Mapping[str, object] | None = None) -> _T:
        """A short question at start, decoded; EngineError where it has no answer."""
        data = await self._ask_bytes(path, body)
        try:
            return msgspec.json.decode(data, type=kind, strict=False)
        except UNREADABLE as error:
            raise EngineError("internal", f"{self._base}{path} did not answer as {self.name} does: {error}") from error

    async def _ask_bytes(self, path: str, body: Mapping[str, object] | None = None) -> bytes:
        data = _encode(body) if body is not None else None
        try:
            reply = await self._reply(path, data, _PROBE_SECONDS, _ANSWER_BYTES)
        except OSError as error:
            raise self._unreachable(error) from error
        if reply.status != 200:
            raise refusal(self.name, reply.status, reply.body, location=reply.headers.get("location"))
        return reply.body

    async def _reply(self, path: str, body: bytes | None, seconds: float, most: int) -> Reply:
        if self._questions is None:
            raise EngineError("unreachable", f"the {self.name} engine is not running")
        return await self._questions.ask(path, body, seconds=seconds, most=most)

    async def _status(self, path: str) -> int:
        """The status with which a path is answered soon; 0 where it is not."""
        try:
            return (await self._reply(path, None, _HEALTH_SECONDS, _PASSED_BYTES)).status
        except (OSError, EngineError):
            return 0

    async def _maybe(self, path: str, kind: type[_T], body: Mapping[str, object] | None = None) -> _T | None:
        """Like `_ask`, for what not every version answers."""
        try:
            return await self._ask(path, kind, body)
        except EngineError as error:
            if error.kind == "unreachable":
                raise
            return None

    async def _compared(self, tokenizer: Vocabulary, field: str) -> list[str]:
        """Whether the server's tokenizer is ours, by a few ids that its `/detokenize` spells under `field`: a warning
        where it is not, and none where it does not answer."""
        ids = sample(id_count(tokenizer))[::_EVERY]
        texts: list[str] = []
        for token in ids:
            answer = await self._maybe("/detokenize", dict[str, Any], {"model": self._model, "tokens": [token]})
            if answer is None or not isinstance(answer.get(field), str):
                break
            texts.append(answer[field])
        return foreign(tokenizer, ids[: len(texts)], texts)

    def _aside(self, call: Call) -> None:
        """Send a notice whose answer nobody waits for."""

        async def send() -> None:
            try:
                await self._ask_bytes(call.path, call.body)
            except EngineError:
                return

        if self._questions is not None:
            task = asyncio.get_running_loop().create_task(send())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _unreachable(self, error: BaseException) -> EngineError:
        return EngineError("unreachable", f"no {self.name} engine answers at {self._base} ({_words(error)})")


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
