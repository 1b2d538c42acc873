"""From settings to a served model: engine, tokenizer, template, dialect, profile, seals, stores.

Promise: what was chosen and why is logged; what cannot be used is an AssemblyError that says what to change.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path

from turnwire.engines.embedded import EmbeddedEngine
from turnwire.engines.interface import Engine, EngineError, EngineInfo
from turnwire.engines.spec import EngineSpec, SpecError, create_engine, parse_spec
from turnwire.parsers import Dialect, UnknownDialect, detect, resolve
from turnwire.profiles import Profile, ProfileError, load_book
from turnwire.prompts.builder import PromptBuilder
from turnwire.prompts.policy import ReplayPolicy
from turnwire.prompts.seals import Sealer
from turnwire.prompts.store import MemoryTurnStore, TurnStore
from turnwire.prompts.template import ChatTemplate, default_template

from .runtime import ModelRuntime
from .sealkeys import SealKeyError, seal_keys
from .settings import Settings
from .sources import PromptSource, SourceError, find_source
from .turnstore_sqlite import SQLiteTurnStore
from .workers import PoolLimits, Worker, WorkerPool

__all__ = ["AssemblyError", "assemble"]

log = logging.getLogger("turnwire.assembly")

# Where neither the engine, the profile nor the operator tells a window.
DEFAULT_WINDOW = 131_072


class AssemblyError(Exception):
    """A gateway that cannot be put together; the message says what to change."""


async def assemble(settings: Settings) -> ModelRuntime:
    """Start the engines and put the model together."""
    try:
        return await _assemble(settings)
    except (SpecError, SourceError, UnknownDialect, SealKeyError, ProfileError) as error:
        raise AssemblyError(str(error)) from None
    except EngineError as error:
        raise AssemblyError(f"The engine {settings.engine} cannot be used: {error.message}") from None


async def _assemble(settings: Settings) -> ModelRuntime:
    specs = [parse_spec(text) for text in settings.engine.split(",")]
    kinds = {spec.kind for spec in specs}
    if len(kinds) > 1:
        raise AssemblyError("All engines of one model must be of one kind.")
    if specs[0].kind == "embedded":
        engine, info, source = await _embedded(specs[0], settings)
    else:
        source = find_source(
            settings.model,
            tokenizer=settings.tokenizer,
            template=settings.template,
            builtin=specs[0].kind in ("scripted", "openai"),
        )
        engine, info = await _start(specs, source, settings)
    for warning in info.warnings:
        log.warning("%s: %s", info.name, warning)
    model_id = _model_id(settings, info)
    profile = load_book(settings.profiles).find(model_id)
    template = _template(source)
    dialect, why = _dialect(settings, model_id, profile, source)
    log.info("model %s: dialect %s (%s), prompts from %s", model_id, dialect.name, why, source.origin)
    policy = ReplayPolicy(history=settings.history_thinking or "auto")
    return ModelRuntime(
        model_id,
        aliases=settings.alias,
        display_name=profile.title if profile else None,
        engine=engine,
        info=info,
        dialect=dialect,
        builder=PromptBuilder(template, source.tokenizer, policy=policy),
        tokenizer=source.tokenizer,
        window=settings.window or info.window or (profile.window if profile else None) or DEFAULT_WINDOW,
        profile=profile,
        sealer=Sealer(seal_keys(settings)),
        store=_turn_store(settings),
    )


def _model_id(settings: Settings, info: EngineInfo) -> str:
    """The id clients use: the operator's word, but never a path of this machine."""
    if settings.model and not Path(settings.model).exists():
        return settings.model
    return info.model or (Path(settings.model).stem if settings.model else "turnwire")


def _turn_store(settings: Settings) -> TurnStore:
    """Turns live where responses do: beside the SQLite file, else in memory."""
    kind, _, path = (settings.store or "memory").partition(":")
    return SQLiteTurnStore(f"{path}.turns") if kind == "sqlite" else MemoryTurnStore()


async def _start(specs: list[EngineSpec], source: PromptSource, settings: Settings) -> tuple[Engine, EngineInfo]:
    engines = [create_engine(spec, source.tokenizer, window=settings.window) for spec in specs]
    workers = [Worker(engine, str(spec)) for engine, spec in zip(engines, specs, strict=True)]
    pool = WorkerPool(workers, source.tokenizer, _limits(settings))
    return pool, await pool.start()


async def _embedded(spec: EngineSpec, settings: Settings) -> tuple[Engine, EngineInfo, PromptSource]:
    engine = EmbeddedEngine(spec.target or settings.model)
    info = await engine.start()
    path = str(engine.model_path)
    source = find_source(path, tokenizer=settings.tokenizer, template=settings.template, builtin=True)
    pool = WorkerPool([Worker(engine, "embedded")], source.tokenizer, _limits(settings))
    return pool, info, source


def _limits(settings: Settings) -> PoolLimits:
    return PoolLimits(concurrency=settings.concurrency, queue=settings.queue, queue_timeout=settings.queue_timeout)


def _template(source: PromptSource) -> ChatTemplate:
    def clock() -> datetime:
        return datetime.now(UTC).astimezone()

    if source.template is None:
        return default_template(clock=clock)
    return ChatTemplate(source.template, {"bos_token": source.bos, "eos_token": source.eos}, clock=clock)


def _dialect(
    settings: Settings, model_id: str, profile: Profile | None, source: PromptSource
) -> tuple[Dialect, str]:
    """How the model writes, and why we think so. Nothing is guessed silently."""
    if settings.dialect != "auto":
        return resolve(settings.dialect, settings.reasoning), "as told"
    if profile is not None:
        reasoning = settings.reasoning or profile.reasoning
        return resolve(profile.dialect, reasoning, fenced=profile.fenced_json), f"profile {profile.name}"
    if source.template is None:
        return resolve("qwen3_coder", settings.reasoning), "the built-in template"
    found = detect(model_id, source.template, source.tokenizer.special_tokens)
    if found.dialect is None:
        near = f" It may be one of: {', '.join(found.candidates)}." if found.candidates else ""
        raise AssemblyError(
            f"How {model_id} writes reasoning and tool calls is not clear: {found.why}.{near} Say it with "
            "--dialect NAME; `turnwire dialects` lists them."
        )
    return resolve(found.dialect.name, settings.reasoning) if settings.reasoning else found.dialect, found.why
