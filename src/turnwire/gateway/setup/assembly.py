"""From settings to a served model: engine, tokenizer, template, dialect, profile, seals, stores.

Promise: what was chosen and why is logged; what cannot be used is an AssemblyError that says what to change.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

import msgspec

from turnwire.engines.embedded.downloads import Progress
from turnwire.engines.embedded.engine import EmbeddedEngine, EmbeddedSettings
from turnwire.engines.interface import Engine, EngineError, EngineInfo
from turnwire.engines.pool.pool import PoolLimits, Worker, WorkerPool
from turnwire.engines.scripted.script import ScriptError
from turnwire.engines.spec import EngineSpec, SpecError, create_engine, parse_spec
from turnwire.gateway.settings import Settings
from turnwire.gateway.setup.engine_keys import EngineKeyError, engine_key
from turnwire.gateway.setup.seal_keys import SealKeyError, seal_keys
from turnwire.gateway.setup.sources import PromptSource, SourceError, find_source
from turnwire.gateway.stores.turns_sqlite import SQLiteTurnStore
from turnwire.gateway.turns.runtime import ModelRuntime
from turnwire.parsers import Dialect, UnknownDialect, detect, resolve
from turnwire.profiles import Profile, ProfileError, load_book
from turnwire.prompts.builder import PromptBuilder
from turnwire.prompts.policy import ReplayPolicy
from turnwire.prompts.prompt import Tokenizer
from turnwire.prompts.recall.seals import Sealer
from turnwire.prompts.recall.store import MemoryTurnStore, TurnStore
from turnwire.prompts.stability import StabilityOptions
from turnwire.prompts.templates.encodings.deepseek import DeepSeekEncoding
from turnwire.prompts.templates.encodings.harmony import HarmonyEncoding
from turnwire.prompts.templates.sandbox import Budget, TemplateFailure
from turnwire.prompts.templates.template import ChatTemplate, Renderer, default_template

__all__ = ["AssemblyError", "assemble"]

log = logging.getLogger("turnwire.assembly")

# Where neither the engine, the profile nor the operator tells a window.
DEFAULT_WINDOW = 131_072


class AssemblyError(Exception):
    """A gateway that cannot be put together; the message says what to change."""


async def assemble(settings: Settings, progress: Progress | None = None) -> ModelRuntime:
    """Start the engines and put the model together. `progress` is told of downloads."""
    try:
        specs = [parse_spec(text) for text in settings.engine.split(",")]
        if len({spec.kind for spec in specs}) > 1:
            raise AssemblyError("All engines of one model must be of one kind.")
        begin = _STARTERS.get(specs[0].kind, _behind_prompts)
        engine, info, source = await begin(specs, settings, progress)
        try:
            return _assembled(settings, engine, info, source)
        except BaseException:
            await engine.close()
            raise
    except (SpecError, SourceError, EngineKeyError, UnknownDialect, SealKeyError, ProfileError, ScriptError) as error:
        raise AssemblyError(str(error)) from None
    except TemplateFailure as failure:
        raise AssemblyError(f"The chat template cannot be used: {failure}. Give one with --template FILE.") from None
    except EngineError as error:
        raise AssemblyError(f"The engine {settings.engine} cannot be used: {error.message}") from None


def _assembled(settings: Settings, engine: Engine, info: EngineInfo, source: PromptSource) -> ModelRuntime:
    model_id = _model_id(settings, info)
    profile = load_book(settings.profiles).find(model_id)
    info = msgspec.structs.replace(info, warnings=(*info.warnings, *_against(profile, info)))
    for warning in info.warnings:
        log.warning("%s: %s", info.name, warning)
    dialect, why = _dialect(settings, model_id, profile, source)
    renderer = _renderer(source, dialect, settings.template_steps)
    log.info("model %s: dialect %s (%s), prompts from %s", model_id, dialect.name, why, source.origin)
    special = source.tokenizer.special_tokens
    known = profile.template_args if profile else None
    policy = ReplayPolicy(history=settings.history_thinking or "auto", known=known)
    stability = StabilityOptions(canonical_tools=settings.tool_order == "canonical", hoist_system=settings.hoist_system)
    return ModelRuntime(
        model_id,
        aliases=settings.alias,
        display_name=profile.title if profile else None,
        engine=engine,
        info=info,
        dialect=dialect,
        builder=PromptBuilder(
            renderer, source.tokenizer, policy=policy, stability=stability, end_tokens=source.ends or None
        ),
        tokenizer=source.tokenizer,
        window=settings.window or info.window or (profile.window if profile else None) or DEFAULT_WINDOW,
        profile=profile,
        sealer=Sealer(seal_keys(settings)),
        store=_turn_store(settings),
        # Not every engine reads the model's own list of end tokens.
        stop_token_ids=tuple(special[end] for end in source.ends if end in special),
    )


def _against(profile: Profile | None, info: EngineInfo) -> list[str]:
    """What the engine does not give of what the model's profile promises. The engines of this process choose their
    window by themselves."""
    if profile is None or profile.window is None or info.window is None or info.name in ("embedded", "scripted"):
        return []
    if info.window >= profile.window:
        return []
    return [
        f"its window is {info.window:,} tokens; {profile.title} has {profile.window:,} (see its context-length flag)"
    ]


def _model_id(settings: Settings, info: EngineInfo) -> str:
    """The id clients use: the operator's word, but never a path of this machine."""
    if settings.model and not _is_path(settings.model):
        return settings.model
    return info.model or (Path(settings.model).stem if settings.model else "turnwire")


def _turn_store(settings: Settings) -> TurnStore:
    """Turns live where responses do: beside the SQLite file, else in memory."""
    kind, _, path = (settings.store or "memory").partition(":")
    return SQLiteTurnStore(f"{path}.turns") if kind == "sqlite" else MemoryTurnStore()


Started: TypeAlias = tuple[Engine, EngineInfo, PromptSource]


async def _behind_prompts(specs: list[EngineSpec], settings: Settings, progress: Progress | None) -> Started:
    """Engines that need the tokenizer before they start."""
    builtin = specs[0].kind in ("scripted", "openai")
    source = find_source(settings.model, tokenizer=settings.tokenizer, template=settings.template, builtin=builtin)
    return await _started(specs, source.tokenizer, source, settings)


async def _before_prompts(specs: list[EngineSpec], settings: Settings, progress: Progress | None) -> Started:
    """Engines that say which model they serve, where the operator does not."""
    model = settings.model
    if model is None and settings.tokenizer is None:
        scout = _engine(specs[0], None, settings)
        try:
            model = (await scout.start()).model
        finally:
            await scout.close()
    source = find_source(model, tokenizer=settings.tokenizer, template=settings.template, builtin=False)
    return await _started(specs, None, source, settings)


async def _started(
    specs: list[EngineSpec], tokenizer: Tokenizer | None, source: PromptSource, settings: Settings
) -> Started:
    pool = _pool(specs, [_engine(spec, tokenizer, settings) for spec in specs], source, settings)
    try:
        return pool, await pool.start(), source
    except BaseException:
        await pool.close()
        raise


def _engine(spec: EngineSpec, tokenizer: Tokenizer | None, settings: Settings) -> Engine:
    """The engine of a spec with its key, asked for the model by the name that its server knows."""
    asked = settings.upstream_model
    if asked is None and spec.kind in ("openai", "openai-raw") and not _is_path(settings.model):
        asked = settings.model
    key = engine_key(settings.engine_key_env, settings.engine_key_file, os.environ)
    return create_engine(spec, tokenizer, model=asked, api_key=key, window=settings.window)


def _is_path(model: str | None) -> bool:
    return model is not None and Path(model).exists()


async def _embedded(specs: list[EngineSpec], settings: Settings, progress: Progress | None) -> Started:
    """The model in this process: everything comes from its file."""
    shape = EmbeddedSettings(window=settings.window)
    engine = EmbeddedEngine(specs[0].target or settings.model, settings=shape, progress=progress)
    info = await engine.start()
    path = str(engine.model_path)
    source = find_source(path, tokenizer=settings.tokenizer, template=settings.template, builtin=True)
    return _pool(specs, [engine], source, settings), info, source


_STARTERS = {"embedded": _embedded, "vllm": _before_prompts}


def _pool(specs: list[EngineSpec], engines: Sequence[Engine], source: PromptSource, settings: Settings) -> WorkerPool:
    workers = [Worker(engine, str(spec)) for engine, spec in zip(engines, specs, strict=True)]
    return WorkerPool(workers, source.tokenizer, _limits(settings))


def _limits(settings: Settings) -> PoolLimits:
    return PoolLimits(concurrency=settings.concurrency, queue=settings.queue, queue_timeout=settings.queue_timeout)


def _clock() -> datetime:
    return datetime.now(UTC).astimezone()


# Models that come with an encoding of their own instead of a template.
_ENCODINGS: dict[str, Callable[[], Renderer]] = {
    "gpt_oss": lambda: HarmonyEncoding(clock=_clock),
    "deepseek_v3_2": lambda: DeepSeekEncoding("v3.2"),
    "deepseek_v4": lambda: DeepSeekEncoding("v4"),
}


def _renderer(source: PromptSource, dialect: Dialect, steps: int) -> Renderer:
    """What writes the prompts: the model's template, its own encoding, or the project's template."""
    if source.template is not None:
        special = {"bos_token": source.bos, "eos_token": source.eos}
        return ChatTemplate(source.template, special, clock=_clock, budget=lambda: Budget(steps))
    if source.builtin and source.origin == "built in":
        return default_template(clock=_clock)
    encoding = _ENCODINGS.get(dialect.name)
    if encoding is not None:
        return encoding()
    if source.builtin:
        return default_template(clock=_clock)
    raise AssemblyError(f"{source.origin} has no chat template. Give one with --template FILE.")


def _dialect(settings: Settings, model_id: str, profile: Profile | None, source: PromptSource) -> tuple[Dialect, str]:
    """How the model writes, and why we think so. Nothing is guessed silently."""
    if settings.dialect != "auto":
        return resolve(settings.dialect, settings.reasoning), "as told"
    if profile is not None:
        reasoning = settings.reasoning or profile.reasoning
        return resolve(profile.dialect, reasoning, fenced=profile.fenced_json), f"profile {profile.name}"
    if source.template is None and source.builtin:
        return resolve("qwen3_coder", settings.reasoning), "the built-in template"
    found = detect(model_id, source.template or "", source.tokenizer.special_tokens)
    if found.dialect is None:
        near = f" It may be one of: {', '.join(found.candidates)}." if found.candidates else ""
        raise AssemblyError(
            f"How {model_id} writes reasoning and tool calls is not clear: {found.why}.{near} Say it with "
            "--dialect NAME; `turnwire dialects` lists them."
        )
    return resolve(found.dialect.name, settings.reasoning) if settings.reasoning else found.dialect, found.why
