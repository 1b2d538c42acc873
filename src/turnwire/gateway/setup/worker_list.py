"""The workers of running models, changed while they serve: one at a time, or to what a config file says now.

Promise: workers of one model are of one kind; one that does not start changes nothing; a model never loses its last.
"""

from __future__ import annotations

import logging

from turnwire.engines.interface import EngineError
from turnwire.engines.pool.pool import Worker, WorkerPool
from turnwire.engines.spec import SpecError, parse_spec
from turnwire.gateway.settings import ModelSettings, Settings
from turnwire.gateway.setup.addresses import each_address
from turnwire.gateway.setup.starting import new_engine
from turnwire.gateway.turns.runtime import ModelRuntime

__all__ = ["WorkerListError", "add_worker", "apply_engines", "last_worker", "pool_of"]

log = logging.getLogger("turnwire.workers")


class WorkerListError(ValueError):
    """A worker that this model cannot have; the message says why."""


def pool_of(runtime: ModelRuntime) -> WorkerPool:
    """The model's pool."""
    if not isinstance(runtime.engine, WorkerPool):
        raise WorkerListError(f"{runtime.id} has no pool of workers")
    return runtime.engine


def last_worker(pool: WorkerPool, worker: Worker) -> bool:
    """Whether no other worker would take new turns."""
    return not any(other is not worker and not other.draining for other in pool.workers)


async def add_worker(runtime: ModelRuntime, settings: Settings, text: str) -> str:
    """Start an engine and add it to a model's workers; its name. Raises ValueError or EngineError."""
    pool = pool_of(runtime)
    kind = parse_spec(pool.workers[0].name).kind
    if kind == "embedded":
        raise WorkerListError("the embedded engine is one worker; serve the model from servers to have several")
    engine, spec = await new_engine(_settings_of(runtime, settings), settings, text, pool.tokenizer, like=kind)
    name = str(spec)
    try:
        if spec.kind != kind:
            raise WorkerListError(f"{name} is of another kind than the workers of {runtime.id}, which are {kind}")
        if any(worker.name == name for worker in pool.workers):
            raise WorkerListError(f"{name} is a worker of {runtime.id} already")
        await pool.add(engine, name)
    except BaseException:
        await engine.close()
        raise
    log.info("worker %s was added to %s", name, runtime.id)
    return name


async def apply_engines(runtimes: list[ModelRuntime], settings: Settings) -> None:
    """Bring the workers of every model to what the settings say now. What cannot be done is logged; the rest is."""
    wanted = {model.name: model for model in settings.models}
    for runtime in runtimes:
        model = wanted.get(runtime.id) if settings.models else settings.served()[0]
        if model is None:
            log.warning("model %s is no longer in the config file; it is served until the gateway restarts", runtime.id)
            continue
        await _apply(runtime, settings, model)


async def _apply(runtime: ModelRuntime, settings: Settings, model: ModelSettings) -> None:
    pool = pool_of(runtime)
    # A worker's name has its kind; an address in the file may come without one.
    targets = {parse_spec(worker.name).target: worker.name for worker in pool.workers if not worker.draining}
    try:
        asked = {parse_spec(text).target: text for text in await each_address(model.specs)}
    except SpecError as error:
        log.warning("the workers of %s stay as they are: %s", runtime.id, error)
        return
    for target, text in asked.items():
        if target not in targets:
            try:
                await add_worker(runtime, settings, text)
            except (EngineError, ValueError) as error:
                log.warning("worker %s was not added to %s: %s", text, runtime.id, error)
    for target, name in targets.items():
        if target not in asked:
            worker = next(worker for worker in pool.workers if worker.name == name)
            if last_worker(pool, worker):
                log.warning("worker %s stays: it is the last of %s", name, runtime.id)
                continue
            await pool.remove(name)
            log.info("worker %s was removed from %s", name, runtime.id)


def _settings_of(runtime: ModelRuntime, settings: Settings) -> ModelSettings:
    return next((model for model in settings.served() if model.name == runtime.id), settings.served()[0])
