"""The llama.cpp server inside this process: loading a model into it and taking it down again.

Promise: nothing else on the machine can use it (loopback port, random key), and its logs stay out of our output.
"""

from __future__ import annotations

import importlib
import os
import secrets
from pathlib import Path
from typing import Any

import msgspec

from turnwire.engines.interface import EngineError
from turnwire.prompts.tokenizers.gguf_file import GGUFFacts

__all__ = [
    "ContextPlan",
    "EmbeddedSettings",
    "load_encoder",
    "load_server",
    "plan_context",
    "safe_threads",
    "unload_server",
]


_MIB = 1024 * 1024
_LEAST_WINDOW = 16_384


class EmbeddedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the model is run. `window` None: as long as the model was trained for, up to `window_limit`. `slots`
    generations share as many full windows of context memory as `context_mib` holds, at least one. `cache_mib` bounds
    the prompts kept in memory beside that; `threads` None: see `safe_threads`. `batch` tokens of a prompt are read
    between two chances to abort it or to serve somebody else; 128 costs no speed on a CPU. `gpu_layers` None: all of
    them where there is a GPU and the installed build can use it; -1 is all, 0 none."""

    window: int | None = None
    window_limit: int = 32768
    slots: int = 4
    context_mib: int = 2048
    threads: int | None = None
    batch: int = 128
    cache_mib: int = 512
    gpu_layers: int | None = None


def safe_threads() -> int:
    """One core is left to everything else: with as many compute threads as cores, a busy machine makes llama.cpp's
    threads wait for each other and decoding falls to a tenth."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores - 1, 16))


class ContextPlan(msgspec.Struct, frozen=True):
    """How long one conversation may be, and how many tokens of context memory all of them share."""

    window: int
    tokens: int


def plan_context(facts: GGUFFacts, settings: EmbeddedSettings) -> ContextPlan:
    """One window per slot, as far as the memory goes. A window that nobody asked for is cut to what fits, but not
    below what an agent needs."""
    trained = facts.window or settings.window_limit
    window = min(trained, settings.window or settings.window_limit)
    per_token = _bytes_per_token(facts)
    if not per_token:
        return ContextPlan(window, window * settings.slots)
    fitting = min(settings.context_mib * _MIB, _physical_memory() // 4) // per_token
    if settings.window is None:
        window = min(window, max(fitting, _LEAST_WINDOW))
    return ContextPlan(window, window * max(1, min(settings.slots, fitting // window)))


def _physical_memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 16 * 1024 * _MIB


def _bytes_per_token(facts: GGUFFacts) -> int:
    """Keys and values of one token in half precision, by the model's own account; 0 where it does not say."""

    def number(name: str) -> int:
        found = facts.metadata.get(f"{facts.architecture}.{name}", 0)
        return sum(n for n in found if isinstance(n, int)) if isinstance(found, list) else int(found or 0)

    heads, layers = number("attention.head_count"), number("block_count")
    if not heads or not layers:
        return 0
    size = number("attention.key_length") or number("embedding_length") // heads
    kept = facts.metadata.get(f"{facts.architecture}.attention.head_count_kv")
    kept_heads = number("attention.head_count_kv") if isinstance(kept, list) else layers * int(kept or heads)
    return 4 * size * kept_heads


def load_server(model: Path, settings: EmbeddedSettings, context: int, key: str) -> Any:
    """Load `model` with `context` tokens of memory and listen on a free loopback port. Blocks for the load."""
    return _load(model, _parameters(model, settings, context, key))


def _load(model: Path, params: Any) -> Any:
    try:
        return importlib.import_module("xllamacpp").Server(params)
    except RuntimeError as error:
        raise EngineError(
            "internal", f"{model.name} could not be loaded: {error}. Is it a complete GGUF file, and is there memory?"
        ) from error


def load_encoder(model: Path, window: int, slots: int) -> Any:
    """Load an embedding model whose inputs are at most `window` tokens. Blocks for the load."""
    params = _common(model, secrets.token_urlsafe(24))
    params.embedding = True
    params.n_ctx = window * slots
    params.n_parallel = slots
    # An encoder reads its input whole.
    params.n_batch = params.n_ubatch = window
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = safe_threads()
    return _load(model, params)


def _common(model: Path, key: str) -> Any:
    try:
        xllamacpp = importlib.import_module("xllamacpp")
    except ImportError as error:
        raise EngineError(
            "internal", "The embedded engine needs xllamacpp: pip install 'turnwire[embedded]', or choose --engine."
        ) from error
    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.port = 0
    params.api_keys = [key]
    params.ui = False
    params.endpoint_slots = False
    params.verbosity = -1
    return params


def _parameters(model: Path, settings: EmbeddedSettings, context: int, key: str) -> Any:
    params = _common(model, key)
    params.n_ctx = context
    params.n_batch = params.n_ubatch = settings.batch
    params.n_parallel = settings.slots
    params.kv_unified = True
    params.cache_ram_mib = settings.cache_mib
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings.threads or safe_threads()
    params.n_threads_http = 2 * settings.slots + 4
    if settings.gpu_layers is not None:
        params.n_gpu_layers = settings.gpu_layers
    return params


def gpus() -> list[str]:
    """The GPUs that the installed build can use, by their descriptions."""
    try:
        xllamacpp = importlib.import_module("xllamacpp")
        devices = xllamacpp.get_device_info()
        return [str(device["description"]) for device in devices if "CPU" not in str(device["type"])]
    except (ImportError, AttributeError, KeyError, RuntimeError):
        return []


def unload_server(holder: list[Any]) -> None:
    """Stop the server held by `holder` alone: it ends when its last reference goes."""
    holder.clear()
