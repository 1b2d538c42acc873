"""The llama.cpp server inside this process: loading a model into it and taking it down again.

Promise: nothing else on the machine can use it (loopback port, random key), and its logs stay out of our output.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from turnwire.engines.interface import EngineError

__all__ = ["EmbeddedSettings", "load_server", "safe_threads", "unload_server"]


class EmbeddedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the model is run. `window` None: as long as the model was trained for, up to `window_limit`. `pool_windows`
    full windows of context memory are shared by `slots` generations. `cache_mib` bounds the prompts kept in memory
    beside the slots' own; `threads` None: see `safe_threads`. `batch` tokens of a prompt are read between two chances
    to abort it or to serve somebody else; 128 costs no speed on a CPU."""

    window: int | None = None
    window_limit: int = 32768
    slots: int = 4
    pool_windows: int = 2
    threads: int | None = None
    batch: int = 128
    cache_mib: int = 512


def safe_threads() -> int:
    """One core is left to everything else: with as many compute threads as cores, a busy machine makes llama.cpp's
    threads wait for each other and decoding falls to a tenth."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores - 1, 16))


def load_server(model: Path, settings: EmbeddedSettings, context: int, key: str) -> Any:
    """Load `model` with `context` tokens of memory and listen on a free loopback port. Blocks for the load."""
    params = _parameters(model, settings, context, key)
    try:
        import xllamacpp

        return xllamacpp.Server(params)
    except RuntimeError as error:
        raise EngineError(
            "internal", f"{model.name} could not be loaded: {error}. Is it a complete GGUF file, and is there memory?"
        ) from error


def _parameters(model: Path, settings: EmbeddedSettings, context: int, key: str) -> Any:
    try:
        import xllamacpp
    except ImportError as error:
        raise EngineError(
            "internal", "The embedded engine needs xllamacpp: pip install 'turnwire[embedded]', or choose --engine."
        ) from error
    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.n_ctx = context
    params.n_batch = params.n_ubatch = settings.batch
    params.n_parallel = settings.slots
    params.kv_unified = True
    params.cache_ram_mib = settings.cache_mib
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings.threads or safe_threads()
    params.n_threads_http = 2 * settings.slots + 4
    params.port = 0
    params.api_keys = [key]
    params.ui = False
    params.endpoint_slots = False
    params.verbosity = -1
    return params


def unload_server(holder: list[Any]) -> None:
    """Stop the server held by `holder` alone: it ends when its last reference goes."""
    holder.clear()
