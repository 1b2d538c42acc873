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

from turnwire.engines.downloads import Progress, resolve_model
from turnwire.engines.embedded_pool import ContextPool
from turnwire.engines.embedded_server import EmbeddedSettings, load_server, unload_server
from turnwire.engines.embedded_wire import Reading, completion_body, refusal
from turnwire.engines.interface import (
    Capabilities,
    Completion,
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
        fragments: Mapping[bytes, int] | None = None,
    ) -> None:
        self._model = model
        self._settings = settings or EmbeddedSettings()
        self._progress = progress
        self._fragments = fragments
        self._server: Any = None
        self._session: aiohttp.ClientSession | None = None
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
        self._path = await asyncio.to_thread(resolve_model, self._model, self._progress)
        key = secrets.token_urlsafe(24)
        trained = await asyncio.to_thread(_trained_window, self._path)
        self._window = min(trained, settings.window or settings.window_limit)
        pool = self._window * max(1, min(settings.pool_windows, settings.slots))
        self._server = await asyncio.to_thread(load_server, self._path, settings, pool, key)
        self._pool = ContextPool(settings.slots, pool)
        self._session = _session(self._server.listening_address, key)
        if self._fragments is None:
            self._fragments = await asyncio.to_thread(_fragments, self._path)
        return EngineInfo(
            name="embedded",
            version=metadata.version("xllamacpp"),
            model=self._path.stem,
            window=self._window,
            warnings=_warnings(trained, self._window, settings),
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
        async with self._pool.hold(need, request.hints.priority):
            async with aclosing(self._stream(request, body)) as steps:
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
                async for data in reply.content.iter_any():
                    tokens, end = reading.feed(data)
                    if tokens is not None:
                        yield tokens
                    if end is not None:
                        yield end
                        return
        except (aiohttp.ClientError, ConnectionError) as error:
            raise EngineError("disconnected", f"The embedded engine went away: {type(error).__name__}.") from error
        raise EngineError("disconnected", "The embedded engine ended the stream before the generation was finished.")

    async def embed(self, inputs: Sequence[str]) -> list[list[float]]:
        """Not by this engine; see turnwire.engines.embedding."""
        raise EngineError("invalid_request", "The embedded engine serves no embeddings.")
