"""From settings to a served model: engine, tokenizer, template, dialect, profile, seals, stores.

Promise: what was chosen and why is logged; what cannot be used is an AssemblyError that says what to change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import PurePath
from typing import TypeAlias

import msgspec

from turnwire.continuity import SessionTracker
from turnwire.engines.embedded.downloads import Progress
from turnwire.engines.interface import Engine, EngineError, EngineInfo, ImageWriting
from turnwire.engines.scripted.script import ScriptError
from turnwire.engines.spec import SpecError
from turnwire.gateway.models import ServedModels
from turnwire.gateway.settings import ModelSettings, Settings
from turnwire.gateway.setup.config_check import tool_problems
from turnwire.gateway.setup.engine_keys import EngineKeyError
from turnwire.gateway.setup.seal_keys import SealKeyError, seal_keys
from turnwire.gateway.setup.sources import PromptSource, SourceError
from turnwire.gateway.setup.starting import cache_bounds, is_path, start_engines
from turnwire.gateway.stores.turns_redis import RedisTurnStore
from turnwire.gateway.stores.turns_sqlite import SQLiteTurnStore
from turnwire.gateway.turns.runtime import ModelRuntime
from turnwire.parsers import Dialect, Encoding, UnknownDialect, detect, dialect_from_flag, resolve
from turnwire.profiles import Profile, ProfileBook, ProfileError, load_book
from turnwire.prompts.builder import PromptBuilder
from turnwire.prompts.policy import ReplayPolicy
from turnwire.prompts.recall.seals import Sealer
from turnwire.prompts.recall.store import MemoryTurnStore
from turnwire.prompts.stability import StabilityOptions
from turnwire.prompts.templates.encodings.deepseek import DeepSeekEncoding
from turnwire.prompts.templates.encodings.harmony import HarmonyEncoding
from turnwire.prompts.templates.probing.images import image_mark
from turnwire.prompts.templates.sandbox import Budget, TemplateFailure
from turnwire.prompts.templates.template import ChatTemplate, Renderer, default_template
from turnwire.turns import Sampling

__all__ = ["AssemblyError", "Clock", "assemble", "assemble_models"]

log = logging.getLogger("turnwire.assembly")

Clock: TypeAlias = Callable[[], datetime]

# Where neither the engine, the profile nor the operator states a window.
DEFAULT_WINDOW = 131_072
# The longest answer of the embedded engine to a request that sets no bound.
EMBEDDED_OUTPUT = 2_048


class AssemblyError(Exception):
    """A gateway that cannot be put together; the message says what to change."""


class _Shared(msgspec.Struct, frozen=True):
    """What all models of a gateway have in common."""

    settings: Settings
    book: ProfileBook
    sealer: Sealer
    store: RedisTurnStore | SQLiteTurnStore | MemoryTurnStore
    progress: Progress | None
    clock: Clock
    warn: Callable[[str], None]


async def assemble(settings: Settings, progress: Progress | None = None) -> ModelRuntime:
    """The one model that the settings describe, or the first of several."""
    first, *others = await assemble_models(settings, progress)
    for other in others:
        await other.engine.close()
    return first


async def assemble_models(
    settings: Settings,
    progress: Progress | None = None,
    *,
    sealer: Sealer | None = None,
    clock: Clock | None = None,
    warn: Callable[[str], None] = log.warning,
) -> list[ModelRuntime]:
    """Start every model's engines and put the models together. `progress` is called as downloads advance. A replay
    brings the `sealer` and the templates' `clock` of the time that it replays, and takes the engines' warnings."""
    started: list[ModelRuntime] = []
    if wrong := tool_problems(settings.tools):
        raise AssemblyError(wrong[0])
    try:
        sealer = sealer or Sealer(seal_keys(settings))
        store = _turn_store(settings, sealer)
        shared = _Shared(settings, load_book(settings.profiles), sealer, store, progress, clock or _clock, warn)
        for model in settings.served():
            started += [await _assembled(model, shared)]
        ServedModels(started)
    except BaseException as error:
        for runtime in started:
            await runtime.engine.close()
        if isinstance(error, (SealKeyError, ProfileError, ValueError)):
            raise AssemblyError(str(error)) from None
        raise
    return started


async def _assembled(model: ModelSettings, shared: _Shared) -> ModelRuntime:
    """One model, started. With several, the words of a failure begin with its name."""
    told = f"{model.name}: " if shared.settings.models else ""
    engine: Engine | None = None
    try:
        engine, info, source = await start_engines(model, shared.settings, shared.book, shared.progress)
        return _runtime(model, shared, engine, info, source)
    except BaseException as error:
        if engine is not None:
            await engine.close()
        if isinstance(error, EngineError):
            spec = ",".join(model.specs)
            raise AssemblyError(f"{told}The engine {spec} cannot be used: {error.message}") from None
        if isinstance(error, TemplateFailure):
            words = f"The chat template cannot be used: {error}. Give one with --template FILE."
            raise AssemblyError(f"{told}{words}") from None
        if isinstance(error, (SpecError, SourceError, EngineKeyError, UnknownDialect, ScriptError, AssemblyError)):
            raise AssemblyError(f"{told}{error}") from None
        raise


def _runtime(
    model: ModelSettings, shared: _Shared, engine: Engine, info: EngineInfo, source: PromptSource
) -> ModelRuntime:
    settings = shared.settings
    model_id = _model_id(model, info)
    profile = shared.book.find(model_id) or (shared.book.find(info.model) if info.model else None)
    info = msgspec.structs.replace(info, warnings=(*info.warnings, *_against(profile, info)))
    for warning in info.warnings:
        shared.warn(f"{info.name}: {warning}")
    dialect, why = _dialect(model, model_id, profile, source)
    renderer = _renderer(source, dialect, settings.template_steps, shared.clock)
    if engine.capabilities.yields == "events":
        log.info("model %s: prompts are written and counted by %s", model_id, info.name)
    else:
        log.info("model %s: dialect %s (%s), tokenizer and template: %s", model_id, dialect.name, why, source.origin)
    images, mark = _images(info, renderer)
    special = source.tokenizer.special_tokens
    known = profile.template_args if profile else None
    policy = ReplayPolicy(history=model.history_thinking or settings.history_thinking or "auto", known=known)
    stability = StabilityOptions(canonical_tools=settings.tool_order == "canonical", hoist_system=settings.hoist_system)
    return ModelRuntime(
        model_id,
        aliases=model.aliases,
        roles=model.roles,
        fallbacks=model.fallbacks,
        display_name=profile.title if profile else None,
        engine=engine,
        info=info,
        dialect=dialect,
        builder=PromptBuilder(
            renderer,
            source.tokenizer,
            policy=policy,
            stability=stability,
            end_tokens=source.ends or None,
            content_control=model.content_control or settings.content_control,
            image=mark,
            bounds=cache_bounds(settings),
        ),
        images=images,
        tokenizer=source.tokenizer,
        window=model.window or info.window or (profile.window if profile else None) or DEFAULT_WINDOW,
        profile=profile,
        sampling=_sampling(model, profile),
        sealer=shared.sealer,
        store=shared.store,
        tracker=SessionTracker(max_bytes=settings.memory // 4 // len(settings.served())),
        sessions=None if isinstance(shared.store, MemoryTurnStore) else shared.store,
        # Not every engine reads the model's own list of end tokens.
        stop_token_ids=tuple(special[end] for end in source.ends if end in special),
    )


def _images(info: EngineInfo, renderer: Renderer) -> tuple[ImageWriting | None, str | None]:
    """How images reach the engine beside prompts that are written here, and the text that stands for one."""
    if info.images is None:
        return None, None
    mark = info.images.mark or image_mark(renderer)
    if mark is None:
        log.warning("%s: its model sees images, but the chat template has no place for one: give --template", info.name)
        return None, None
    return info.images, mark


def _sampling(model: ModelSettings, profile: Profile | None) -> Sampling:
    """The operator's defaults over the publisher's."""
    if model.specs[0].partition(":")[0] == "embedded" and model.defaults.max_tokens is None:
        # A small model on a CPU that nobody bounds can talk for minutes: that looks like a gateway that hangs.
        model = msgspec.structs.replace(
            model, defaults=msgspec.structs.replace(model.defaults, max_tokens=EMBEDDED_OUTPUT)
        )
    given = {name: value for name, value in msgspec.structs.asdict(model.defaults).items() if value is not None}
    return msgspec.structs.replace(profile.sampling if profile else Sampling(), **given)


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


def _model_id(model: ModelSettings, info: EngineInfo) -> str:
    """The id clients use: the operator's choice, but never a path, of this machine or of the engine's."""
    if model.name and not is_path(model.name):
        return model.name
    found = info.model or model.name or "turnwire"
    return PurePath(found).stem if found.endswith(".gguf") or found.startswith(("/", "~", "./")) else found


def _turn_store(settings: Settings, sealer: Sealer) -> RedisTurnStore | SQLiteTurnStore | MemoryTurnStore:
    """Turns live where responses do: in Redis, beside the SQLite file, or in memory."""
    spec = settings.store or "memory"
    kind, _, path = spec.partition(":")
    if kind in ("redis", "rediss", "unix"):
        return RedisTurnStore(spec, sealer)
    return SQLiteTurnStore(f"{path}.turns") if kind == "sqlite" else MemoryTurnStore(max_bytes=settings.memory // 4)


def _clock() -> datetime:
    return datetime.now(UTC).astimezone()


# Models that come with an encoding of their own instead of a template.
_ENCODINGS: dict[Encoding, Callable[[Clock], Renderer]] = {
    Encoding.HARMONY: lambda clock: HarmonyEncoding(clock=clock),
    Encoding.DEEPSEEK_V3_2: lambda _: DeepSeekEncoding("v3.2"),
    Encoding.DEEPSEEK_V4: lambda _: DeepSeekEncoding("v4"),
}


def _renderer(source: PromptSource, dialect: Dialect, steps: int, clock: Clock) -> Renderer:
    """What writes the prompts: the model's template, its own encoding, or the project's template."""
    if source.template is not None:
        special = {"bos_token": source.bos, "eos_token": source.eos}
        return ChatTemplate(source.template, special, clock=clock, budget=lambda: Budget(steps))
    if source.builtin and source.origin == "built in":
        return default_template(clock=clock)
    if dialect.encoding is not None:
        return _ENCODINGS[dialect.encoding](clock)
    if source.builtin:
        return default_template(clock=clock)
    raise AssemblyError(f"{source.origin} has no chat template. Give one with --template FILE.")


def _dialect(model: ModelSettings, model_id: str, profile: Profile | None, source: PromptSource) -> tuple[Dialect, str]:
    """How the model writes, and why we think so. Nothing is guessed silently."""
    if model.dialect != "auto":
        return dialect_from_flag(model.dialect, model.reasoning), "as set"
    if profile is not None:
        reasoning = model.reasoning or profile.reasoning
        return resolve(profile.dialect, reasoning, fenced=profile.fenced_json), f"profile {profile.name}"
    if source.template is None and source.builtin:
        return resolve("qwen3_coder", model.reasoning), "the built-in template"
    found = detect(model_id, source.template or "", source.tokenizer.special_tokens)
    if found.dialect is None:
        near = f" It may be one of: {', '.join(found.candidates)}." if found.candidates else ""
        raise AssemblyError(
            f"How {model_id} writes reasoning and tool calls is not clear: {found.why}.{near} Say it with "
            "--dialect NAME; `turnwire dialects` lists them."
        )
    if found.warning:
        log.warning("model %s: %s", model_id, found.warning)
    return resolve(found.dialect.name, model.reasoning) if model.reasoning else found.dialect, found.why
