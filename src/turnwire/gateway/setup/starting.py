"""From a model's settings to its started engines and the source of its prompts.

Promise: what an engine tells of its model is asked before the operator is; a start that fails leaves nothing open.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from turnwire.engines.embedded.downloads import Progress
from turnwire.engines.embedded.engine import EmbeddedEngine, EmbeddedSettings
from turnwire.engines.interface import Engine, EngineInfo
from turnwire.engines.pool.pool import PoolLimits, Worker, WorkerPool
from turnwire.engines.spec import EngineSpec, SpecError, create_engine, parse_spec
from turnwire.gateway.settings import ModelSettings, Settings
from turnwire.gateway.setup.engine_keys import engine_key
from turnwire.gateway.setup.sources import PromptSource, find_source
from turnwire.prompts.prompt import Tokenizer

__all__ = ["is_path", "start_engines"]

Started: TypeAlias = tuple[Engine, EngineInfo, PromptSource]


async def start_engines(model: ModelSettings, settings: Settings, progress: Progress | None) -> Started:
    """The started engines of a model as one pool, what they told, and what its prompts are written with."""
    specs = [parse_spec(text) for text in model.specs]
    if len({spec.kind for spec in specs}) > 1:
        raise SpecError("all engines of one model must be of one kind; write further [[model]] tables, with fallbacks")
    start = _Start(model, settings, specs)
    if specs[0].kind == "embedded":
        return await start.embedded(progress)
    if specs[0].kind == "vllm":
        return await start.asked_first()
    return await start.prompts_first()


class _Start:
    """One model being started."""

    def __init__(self, model: ModelSettings, settings: Settings, specs: list[EngineSpec]) -> None:
        self._model = model
        self._settings = settings
        self._specs = specs
        self._key = engine_key(model.key_env, model.key_file, os.environ)
        self._place = model.source or model.name or None

    async def prompts_first(self) -> Started:
        """Engines that need the tokenizer before they start."""
        source = self._source(self._place, builtin=self._specs[0].kind in ("scripted", "openai"))
        return await self._started(source.tokenizer, source)

    async def asked_first(self) -> Started:
        """Engines that say which model they serve, where the operator does not."""
        place = self._place
        if place is None and self._model.tokenizer is None:
            scout = self._engine(self._specs[0], None)
            try:
                place = (await scout.start()).model
            finally:
                await scout.close()
        return await self._started(None, self._source(place, builtin=False))

    async def embedded(self, progress: Progress | None) -> Started:
        """The model in this process: everything comes from its file."""
        shape = EmbeddedSettings(window=self._model.window)
        engine = EmbeddedEngine(self._specs[0].target or self._place, settings=shape, progress=progress)
        try:
            info = await engine.start()
            source = self._source(str(engine.model_path), builtin=True)
        except BaseException:
            await engine.close()
            raise
        return self._pool([engine], source.tokenizer), info, source

    def _source(self, place: str | None, *, builtin: bool) -> PromptSource:
        return find_source(place, tokenizer=self._model.tokenizer, template=self._model.template, builtin=builtin)

    async def _started(self, tokenizer: Tokenizer | None, source: PromptSource) -> Started:
        pool = self._pool([self._engine(spec, tokenizer) for spec in self._specs], source.tokenizer)
        try:
            return pool, await pool.start(), source
        except BaseException:
            await pool.close()
            raise

    def _engine(self, spec: EngineSpec, tokenizer: Tokenizer | None) -> Engine:
        """The engine of a spec with its key, asked for the model by the name that its server knows."""
        asked, name = self._model.upstream_model, self._model.name
        if asked is None and spec.kind in ("openai", "openai-raw") and name and not is_path(name):
            asked = name
        return create_engine(spec, tokenizer, model=asked, api_key=self._key, window=self._model.window)

    def _pool(self, engines: Sequence[Engine], tokenizer: Tokenizer) -> WorkerPool:
        workers = [Worker(engine, str(spec)) for engine, spec in zip(engines, self._specs, strict=True)]
        settings = self._settings
        limits = PoolLimits(
            concurrency=settings.concurrency, queue=settings.queue, queue_timeout=settings.queue_timeout
        )
        return WorkerPool(workers, tokenizer, limits)


def is_path(model: str) -> bool:
    """Whether a model is named by a place on this machine."""
    return Path(model).exists()
