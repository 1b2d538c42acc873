"""The embedded engine: a real model inside this process, driven by token ids.

Promise: nothing but Python wheels is needed. llama.cpp runs in its own threads behind a loopback port that only this
process holds the key to; several generations share one model, and leaving a generation frees its slot.
"""

from __future__ import annotations

import asyncio
import atexit
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from turnwire.engines.bridge import pull, push
from turnwire.engines.embedded.context_pool import ContextPool
from turnwire.engines.embedded.downloads import DownloadError, Progress, resolve_model
from turnwire.engines.embedded.encoder import EMBEDDING_MODELS, EmbeddingModel
from turnwire.engines.embedded.grammar_tokens import with_tokens
from turnwire.engines.embedded.loop_guard import LoopGuard
from turnwire.engines.embedded.missing_ids import EmbeddedReading, Fragments
from turnwire.engines.embedded.server import EmbeddedSettings, gpus, load_server, plan_context, unload_server
from turnwire.engines.interface import (
    Capabilities,
    Completion,
    Constraint,
    EngineError,
    EngineInfo,
    EventBatch,
    GenerateRequest,
    Generation,
    Receiver,
    Step,
    TokenBatch,
)
from turnwire.engines.llamacpp import LlamaCppEngine, LlamaCppTokenizer
from turnwire.prompts.tokenizers.gguf_file import GGUFError, GGUFFacts
from turnwire.prompts.tokenizers.load import load_tokenizer, read_gguf
from turnwire.turns import Note

__all__ = ["EmbeddedEngine", "EmbeddedSettings"]

LOOPED = Note("engine.loop", "The model repeated one passage over and over; its turn was ended.")


class EmbeddedEngine:
    """llama.cpp in process. `model` is a known name, a `.gguf` file, a folder that holds one, or None for the
    default model; it is fetched at start if it is a known one and missing."""

    capabilities = Capabilities(
        yields="tokens",
        guided=frozenset({"json_schema", "gbnf"}),
        priority=True,
        cached_tokens=True,
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
        self._encoder = EmbeddingModel(progress)
        self._server: Any = None
        self._client: _Client | None = None
        self._pool = ContextPool(0, 0)
        self._window = 0
        self._path: Path | None = None

    @property
    def model_path(self) -> Path:
        """The GGUF file in use, known once started."""
        if self._path is None:
            raise EngineError("internal", "the embedded engine has not been started")
        return self._path

    async def start(self) -> EngineInfo:
        """Fetch the model if need be, load it, and say what it is."""
        settings, key = self._settings, secrets.token_urlsafe(24)
        path, facts = await asyncio.to_thread(_find, self._model, self._progress)
        context = plan_context(facts, settings)
        self._window = context.window
        self._server = await asyncio.to_thread(load_server, path, settings, context.tokens, key)
        # llama.cpp's threads must be gone before the interpreter is: a process that ends without `close` would crash.
        atexit.register(self._unload)
        self._pool = ContextPool(settings.slots, context.tokens)
        client = await asyncio.to_thread(_client, self._server.listening_address, path, facts, key)
        await client.start()
        self._path, self._client = path, client
        return EngineInfo(
            name="embedded",
            version=metadata.version("xllamacpp"),
            model=path.stem,
            window=self._window,
            embedding_models=EMBEDDING_MODELS,
            warnings=(*_warnings(facts.window or self._window, self._window, settings), *_without_gpu(settings)),
        )

    async def health(self) -> bool:
        """Whether the model is loaded and its server answers."""
        return self._client is not None and await self._client.health()

    async def close(self) -> None:
        """Unload the model; running generations end with EngineError(disconnected)."""
        await self._encoder.close()
        client, self._client = self._client, None
        if client is not None:
            await client.close()
        await asyncio.to_thread(self._unload)

    def _unload(self) -> None:
        atexit.unregister(self._unload)
        holder, self._server = [self._server], None
        if holder[0] is not None:
            unload_server(holder)

    def submit(self, request: GenerateRequest, receiver: Receiver) -> Generation:
        """Start a generation; see the interface's promise."""
        return push(self._steps(request), receiver)

    async def _steps(self, request: GenerateRequest) -> AsyncGenerator[Step, None]:
        """Generate; waits its turn where all slots or the context memory are taken."""
        prompt, wanted = len(request.prompt_ids), request.sampling.max_tokens
        need = self._window if wanted is None else min(self._window, prompt + wanted)
        async with self._pool.hold(need, request.hints.priority):
            if self._client is None:
                raise EngineError("disconnected", "the embedded engine is not running")
            guard, said = LoopGuard(), 0
            async with aclosing(pull(self._client, self._client.in_tokens(request))) as steps:
                async for step in steps:
                    yield step
                    if isinstance(step, TokenBatch):
                        said += len(step.ids)
                        if guard.feed(step.ids):
                            yield EventBatch((LOOPED,))
                            yield Completion("length", prompt, said)
                            return

    async def embed(self, inputs: Sequence[str]) -> list[list[float]]:
        """Embeddings by a small model of their own, fetched and loaded on first use."""
        return await self._encoder.embed(inputs)


class _Client(LlamaCppEngine):
    """The llama.cpp adapter, with the model's own vocabulary to tell ids by."""

    name = "embedded"
    # The server closes connections after an answer without saying so; a reused one fails now and then.
    reuses_connections = False

    def __init__(self, address: str, tokenizer: LlamaCppTokenizer, fragments: Fragments, key: str) -> None:
        super().__init__(address, tokenizer, api_key=key)
        self._fragments = fragments

    def in_tokens(self, request: GenerateRequest) -> GenerateRequest:
        """The request with the markers in its grammar named as tokens."""
        if request.constraint is None or request.constraint.gbnf is None:
            return request
        grammar = with_tokens(request.constraint.gbnf, self._tokenizer.special_tokens)
        return msgspec.structs.replace(request, constraint=Constraint(gbnf=grammar))

    def _reading(self, request: GenerateRequest) -> EmbeddedReading:
        return EmbeddedReading(request, self._tokenizer, self._specials, self._fragments)


def _without_gpu(settings: EmbeddedSettings) -> tuple[str, ...]:
    if not settings.gpu_layers or gpus():
        return ()
    return ("no GPU can be used: the installed xllamacpp is built without one (see its CUDA, ROCm and Vulkan wheels)",)


def _find(model: str | Path | None, progress: Progress | None) -> tuple[Path, GGUFFacts]:
    try:
        path = resolve_model(model, progress)
        return path, read_gguf(path)
    except (DownloadError, GGUFError) as error:
        raise EngineError("internal", str(error)) from error


def _client(address: str, path: Path, facts: GGUFFacts, key: str) -> _Client:
    tokens = facts.metadata.get("tokenizer.ggml.tokens")
    names = [str(name) for name in tokens] if isinstance(tokens, list) else []
    return _Client(address, load_tokenizer(path), Fragments(facts.metadata.get("tokenizer.ggml.model"), names), key)


def _warnings(trained: int, window: int, settings: EmbeddedSettings) -> tuple[str, ...]:
    if settings.window is not None and settings.window > trained:
        return (f"The window was asked to be {settings.window} tokens, but the model was trained for {trained}.",)
    if settings.window is None and trained > window:
        return (f"The window is {window} tokens to save memory; the model could use {trained} (--window).",)
    return ()
