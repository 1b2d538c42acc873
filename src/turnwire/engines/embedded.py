"""The embedded engine: a real model inside this process, driven by token ids.

Promise: nothing but Python wheels is needed. llama.cpp runs in its own threads behind a loopback port that only this
process holds the key to; several generations share one model, and leaving a generation frees its slot.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from turnwire.engines.downloads import DownloadError, Progress, resolve_model
from turnwire.engines.embedded_model import read_facts
from turnwire.engines.embedded_pool import ContextPool
from turnwire.engines.embedded_server import EmbeddedSettings, load_server, unload_server
from turnwire.engines.embedded_wire import Reading, completion_body, refusal
from turnwire.engines.interface import (
    Capabilities,
    EngineError,
    EngineInfo,
    GenerateRequest,
    Step,
)

if TYPE_CHECKING:
    import aiohttp

__all__ = ["EmbeddedEngine", "EmbeddedSettings"]


class EmbeddedEngine:
    """llama.cpp in process. `model` is a known name, a `.gguf` file, a folder that holds one, or None for the
    default model; it is fetched at start if it is a known one and missing."""

    capabilities = Capabilities(
        yields="tokens",
        guided=frozenset({"json_schema", "gbnf"}),
        priority=True,
        cached_tokens=True,
        logprobs=True,
    )

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        settings: EmbeddedSettings | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._model = model
        self._settings = settings or EmbeddedSettings()
        self._progress = progress
        self._fragments: Mapping[bytes, int] = {}
        self._server: Any = None
        self._session: aiohttp.ClientSession | None = None
        self._running: set[aiohttp.ClientResponse] = set()
        self._pool = ContextPool(0, 0)
        self._window = 0
        self._path: Path | None = None

    @property
    def model_path(self) -> Path:
        """The GGUF file in use, known once started."""
        if self._path is None:
            raise EngineError("internal", "The embedded engine has not been started.")
        return self._path

    # ------------------------------------------------------------------------------------------------- life

    async def start(self) -> EngineInfo:
        """Fetch the model if need be, load it, and say what it is."""
        settings = self._settings
        try:
            self._path = await asyncio.to_thread(resolve_model, self._model, self._progress)
        except DownloadError as error:
            raise EngineError("internal", str(error)) from error
        key = secrets.token_urlsafe(24)
        facts = await asyncio.to_thread(read_facts, self._path)
        self._fragments = facts.fragments
        self._window = min(facts.window, settings.window or settings.window_limit)
        pool = self._window * max(1, min(settings.pool_windows, settings.slots))
        self._server = await asyncio.to_thread(load_server, self._path, settings, pool, key)
        self._pool = ContextPool(settings.slots, pool)
        self._session = _session(self._server.listening_address, key)
        return EngineInfo(
            name="embedded",
            version=metadata.version("xllamacpp"),
            model=self._path.stem,
            window=self._window,
            warnings=_warnings(facts.window, self._window, settings),
        )

    async def health(self) -> bool:
        """Whether the model is loaded and its server answers."""
        if self._session is None:
            return False
        import aiohttp

        try:
            async with self._session.get("/health", timeout=aiohttp.ClientTimeout(total=5)) as reply:
                return reply.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def close(self) -> None:
        """Unload the model; running generations end with EngineError(disconnected)."""
        session, self._session = self._session, None
        for reply in self._running:
            reply.content.set_exception(EngineError("disconnected", "The embedded engine was closed."))
        if session is not None:
            await session.close()
        holder, self._server = [self._server], None
        if holder[0] is not None:
            await asyncio.to_thread(unload_server, holder)

    # ------------------------------------------------------------------------------------------- generation

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Step, None]:
        """Generate; waits its turn where all slots or the context memory are taken."""
        if self._session is None:
            raise EngineError("disconnected", "The embedded engine is not running.")
        prompt = len(request.prompt_ids)
        if prompt >= self._window:
            raise EngineError(
                "context_overflow", f"The prompt has {prompt} tokens, the model's window holds {self._window}."
            )
        body = msgspec.json.encode(completion_body(request))
        wanted = request.sampling.max_tokens
        need = self._window if wanted is None else min(self._window, prompt + wanted)
        async with self._pool.hold(need, request.hints.priority), aclosing(self._stream(request, body)) as steps:
            async for step in steps:
                yield step

    async def _stream(self, request: GenerateRequest, body: bytes) -> AsyncGenerator[Step, None]:
        import aiohttp

        if self._session is None:
            raise EngineError("disconnected", "The embedded engine was closed.")
        reading = Reading(request, self._fragments)
        try:
            async with self._session.post("/completion", data=body) as reply:
                if reply.status != 200:
                    raise refusal(reply.status, await reply.read())
                self._running.add(reply)
                try:
                    async for data in reply.content.iter_any():
                        tokens, end = reading.feed(data)
                        if tokens is not None:
                            yield tokens
                        if end is not None:
                            yield end
                            return
                finally:
                    self._running.discard(reply)
        except (aiohttp.ClientError, ConnectionError) as error:
            raise EngineError("disconnected", f"The embedded engine went away: {type(error).__name__}.") from error
        raise EngineError("disconnected", "The embedded engine ended the stream before the generation was finished.")

    async def embed(self, inputs: Sequence[str]) -> list[list[float]]:
        """Not by this engine; see turnwire.engines.embedding."""
        raise EngineError("invalid_request", "The embedded engine serves no embeddings.")


def _session(address: str, key: str) -> aiohttp.ClientSession:
    import aiohttp

    return aiohttp.ClientSession(
        address,
        headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
        # llama.cpp's HTTP server drops idle connections without a word, so each request has its own.
        connector=aiohttp.TCPConnector(limit=0, force_close=True),
        timeout=aiohttp.ClientTimeout(total=None),
        read_bufsize=256 * 1024,
    )


def _warnings(trained: int, window: int, settings: EmbeddedSettings) -> tuple[str, ...]:
    if settings.window is not None and settings.window > trained:
        return (f"The window was asked to be {settings.window} tokens, but the model was trained for {trained}.",)
    if settings.window is None and trained > window:
        return (f"The window is {window} tokens to save memory; the model could use {trained} (--window).",)
    return ()
