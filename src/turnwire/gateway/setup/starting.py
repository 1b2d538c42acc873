"""From a model's settings to its started engines and the source of its prompts.

Promise: an address alone is enough: the server is asked what it is, which model it serves and where its tokenizer is.
What the operator says is never overruled; what cannot be found out is said exactly; a start that fails leaves nothing
open.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from turnwire.engines.detection.signs import ServerKind
from turnwire.engines.embedded.downloads import Progress, is_model
from turnwire.engines.interface import Engine, EngineError, EngineInfo
from turnwire.engines.pool.pool import PoolLimits, Worker, WorkerPool
from turnwire.engines.pool.router import Router
from turnwire.engines.spec import CONVERSATION_KINDS, EngineKind, EngineSpec, SpecError, create_engine, parse_spec
from turnwire.engines.upstream.thinking import Switches
from turnwire.gateway.settings import ModelSettings, Settings
from turnwire.gateway.setup.addresses import each_address
from turnwire.gateway.setup.engine_keys import engine_key
from turnwire.gateway.setup.routing_policy import find_policy
from turnwire.gateway.setup.sources import PromptSource, SourceError, find_source
from turnwire.parsers import detect
from turnwire.profiles import ProfileBook, load_book
from turnwire.prompts.cache_bounds import CacheBounds
from turnwire.prompts.prompt import Tokenizer
from turnwire.prompts.tokenizers.gguf_file import GGUFError

if TYPE_CHECKING:
    from turnwire.engines.detection.probe import ServerFacts, ServerModel

__all__ = ["cache_bounds", "embedded_model", "is_path", "new_engine", "start_engines"]

log = logging.getLogger("turnwire.assembly")

Started: TypeAlias = tuple[Engine, EngineInfo, PromptSource]

_TOKEN_SERVERS: dict[str, ServerKind] = {
    "vllm": "vllm",
    "sglang": "sglang",
    "trtllm": "trtllm",
    "llamacpp": "llamacpp",
}
"""Servers that take token ids, and so need the model's tokenizer here."""
_TEXT_SERVERS = frozenset({"ollama", "lmstudio", "openai", "litellm", "openrouter", "nim"})
"""Servers that take conversations, and complete text as well."""
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")


def cache_bounds(settings: Settings) -> CacheBounds:
    """How much of earlier prompts the caches of each model hold."""
    return CacheBounds.within(settings.memory // len(settings.served()))


async def start_engines(
    model: ModelSettings, settings: Settings, book: ProfileBook, progress: Progress | None
) -> Started:
    """The started engines of a model as one pool, what they reported, and what its prompts are written with."""
    specs = [parse_spec(text) for text in await each_address(model.specs)]
    start = _Start(model, settings, book, specs)
    await start.find_servers()
    start.check_kinds()
    if specs[0].kind == "embedded":
        return await start.embedded(progress)
    return await start.others()


async def new_engine(
    model: ModelSettings, settings: Settings, text: str, tokenizer: Tokenizer, *, like: EngineKind
) -> tuple[Engine, EngineSpec]:
    """One more engine of a model that is served already, not yet started, and what it is. `like` is the kind of those
    that it has: a server that takes conversations, too, is asked for text where they are."""
    start = _Start(model, settings, load_book(settings.profiles), [parse_spec(text)])
    await start.find_servers()
    return start.another(tokenizer, like)


def embedded_model(model: ModelSettings, spec: EngineSpec, *, table: bool) -> str | None:
    """What the embedded engine runs; None is its default model. The name in a `[[model]]` table may be free, for
    clients only, and then means the default model too; a path or a name given as `--model`, is always meant."""
    said = spec.target or model.source
    if said or not model.name:
        return said or None
    free = table and "/" not in model.name and not model.name.endswith(".gguf") and not is_model(model.name)
    return None if free else model.name


class _Start:
    """One model being started."""

    def __init__(self, model: ModelSettings, settings: Settings, book: ProfileBook, specs: list[EngineSpec]) -> None:
        self._model = model
        self._book = book
        self._settings = settings
        self._specs = specs
        self._key = engine_key(model.key_env, model.key_file, os.environ)
        self._place = model.source or model.name or None
        self._facts: ServerFacts | None = None
        self._warnings: list[str] = []

    # ------------------------------------------------------------------------------------------------- servers

    @property
    def _named(self) -> str | None:
        """The model's name at its server, if the operator gave one."""
        name = self._model.name
        return self._model.upstream_model or (name if name and not is_path(name) else None)

    async def find_servers(self) -> None:
        """Ask what answers at addresses that came without a kind."""
        for number, spec in enumerate(self._specs):
            if spec.kind != "auto":
                continue
            facts = await self._asked(spec)
            self._facts = self._facts or facts
            log.info("%s: %s answers", spec.target, facts.kind)
            kind: EngineKind = facts.kind
            target = spec.target if kind in CONVERSATION_KINDS and spec.target.endswith("/v1") else facts.base
            self._specs[number] = EngineSpec(kind, target)

    async def _asked(self, spec: EngineSpec, kind: ServerKind | None = None) -> ServerFacts:
        """What a server says of itself."""
        from turnwire.engines.detection.probe import find_server

        return await find_server(spec.target, self._key, kind=kind, model=self._named)

    def check_kinds(self) -> None:
        """One kind per model, so that a turn can go on at any of its workers."""
        if len({spec.kind for spec in self._specs}) > 1:
            kinds = ", ".join(dict.fromkeys(spec.kind for spec in self._specs))
            raise SpecError(
                f"all engines of one model must be of one kind, not {kinds}; write one [[model]] table for each kind, "
                "with fallbacks"
            )

    def _row(self, facts: ServerFacts) -> ServerModel | None:
        """The server's row of the model in question: the named one, else the first that chats."""
        rows = [row for row in facts.models if row.chats]
        return next((row for row in rows if row.id == self._named), rows[0] if rows else None)

    # ------------------------------------------------------------------------------------------------- starting

    async def others(self) -> Started:
        """Engines outside this process."""
        kind = self._specs[0].kind
        if kind in CONVERSATION_KINDS:
            written = await self._source_for_text(kind)
            if written is None:
                return await self._conversing()
            self._specs = [EngineSpec("completions", spec.target, server=kind) for spec in self._specs]
            return self._told(await self._started(written.tokenizer, written))
        if kind not in _TOKEN_SERVERS or self._model.tokenizer or self._model.source or is_path(self._model.name):
            source = self._source(self._place, builtin=kind in ("scripted", "capture"))
        else:
            found = await self._source_by_server(_TOKEN_SERVERS[kind])
            if found is None:
                return await self._conversing()
            source = found
        return await self._started(source.tokenizer, source)

    async def _source_by_server(self, kind: ServerKind) -> PromptSource | None:
        """Tokenizer and template from where the server says they are, else from the hub by the model's id. None where
        an address alone was given and neither is to be had: then the server's own chat route has to do."""
        asked = self._facts is not None
        facts = self._facts or await self._asked(self._specs[0], kind)
        row = self._row(facts)
        tried = []
        for place in dict.fromkeys((self._model.name, *(row.sources if row else ()))):
            if not place or not (is_path(place) or _HUB_ID.fullmatch(place)):
                continue
            try:
                source = self._source(place, builtin=False)
            except SourceError as error:
                tried.append(str(error))
                continue
            if facts.template is not None and self._model.template is None:
                source.template = facts.template
            return source
        name = row.id if row else "its model"
        why = " ".join(tried) or f"The server names no folder or hub id for {name} that can be read here."
        if not asked:
            raise SourceError(
                f"Prompts for {name} cannot be written here. {why} Give --tokenizer FOLDER (or a .gguf file); or name "
                f"the engine openai:{facts.base}/v1, which leaves prompts to the server and replays no turn exactly."
            )
        self._warnings.append(
            f"turns cannot be replayed exactly: its chat route is used, since the tokenizer of {name} is not at hand. "
            f"{why} Give --tokenizer FOLDER (or a .gguf file)"
        )
        self._specs = [EngineSpec("openai", f"{spec.target}/v1", server=spec.kind) for spec in self._specs]
        return None

    async def _source_for_text(self, kind: str) -> PromptSource | None:
        """Tokenizer and template for a server that completes plain text too, so that prompts can be written here: those
        that the operator names, or for Ollama those of the model's own file or its repository. None: the server's chat
        route has to do, as for a model that sees, since images go by that route only."""
        if kind not in _TEXT_SERVERS:
            return None
        if self._model.tokenizer or self._model.source or is_path(self._model.name):
            return self._source(self._place, builtin=False)
        if kind != "ollama":
            return None
        facts = self._facts or await self._asked(self._specs[0], "ollama")
        self._facts = facts
        row = self._row(facts)
        for place in row.sources if row is not None and not row.sees else ():
            try:
                source = self._source(place, builtin=False)
            except (SourceError, GGUFError, OSError):
                continue
            if source.template is not None and self._understood(row.id if row else "", source):
                return source
        return None

    def _understood(self, model: str, source: PromptSource) -> bool:
        """Whether it is known how the model writes; who asked for nothing shall not be asked for that."""
        if self._model.dialect != "auto" or self._book.find(self._model.name or model) or self._book.find(model):
            return True
        return detect(model, source.template or "", source.tokenizer.special_tokens).dialect is not None

    async def _conversing(self) -> Started:
        """Servers that write the prompts themselves; the project's own template stands in and is never read."""
        if self._named is None and self._facts is not None:
            able = [row.id for row in self._facts.models if row.chats]
            if len(able) > 1:
                raise EngineError(
                    "invalid_request", f"it has several models; name one with --model: {', '.join(able[:20])}"
                )
        source = self._source(None, builtin=True)
        return self._told(await self._started(source.tokenizer, source))

    def _told(self, started: Started) -> Started:
        """With what only the server's own list of models told."""
        pool, info, source = started
        if self._facts is not None and (row := self._row(self._facts)) is not None:
            sees = info.sees if info.sees is not None else row.sees
            info = msgspec.structs.replace(info, window=info.window or row.window, sees=sees)
        return pool, info, source

    async def embedded(self, progress: Progress | None) -> Started:
        """The model in this process: everything comes from its file."""
        from turnwire.engines.embedded.engine import EmbeddedEngine, EmbeddedSettings

        shape = EmbeddedSettings(window=self._model.window, gpu_layers=self._model.gpu_layers)
        meant = embedded_model(self._model, self._specs[0], table=bool(self._settings.models))
        engine = EmbeddedEngine(meant, settings=shape, progress=progress)
        try:
            info = await engine.start()
            source = self._source(str(engine.model_path), builtin=True)
        except BaseException:
            await engine.close()
            raise
        return self._pool([engine], source.tokenizer), info, source

    def _source(self, place: str | None, *, builtin: bool) -> PromptSource:
        model = self._model
        bounds = cache_bounds(self._settings)
        return find_source(place, tokenizer=model.tokenizer, template=model.template, builtin=builtin, bounds=bounds)

    async def _started(self, tokenizer: Tokenizer | None, source: PromptSource) -> Started:
        pool = self._pool([self._engine(spec, tokenizer) for spec in self._specs], source.tokenizer)
        try:
            info = await pool.start()
        except BaseException:
            await pool.close()
            raise
        return pool, msgspec.structs.replace(info, warnings=(*self._warnings, *info.warnings)), source

    def _engine(self, spec: EngineSpec, tokenizer: Tokenizer | None) -> Engine:
        """The engine of a spec with its key, asked for the model by the name that its server knows."""
        asked = self._model.upstream_model
        rows = self._facts.models if self._facts is not None else ()
        if asked is None and (spec.kind in CONVERSATION_KINDS or spec.kind in ("openai-raw", "completions")):
            able = [row.id for row in rows if row.chats]
            asked = self._named or (able[0] if len(able) == 1 else None)
        elif asked is None and any(row.id == self._named for row in rows):
            asked = self._named
        window = self._model.window
        if window is None and spec.kind == "completions" and spec.server != "ollama" and self._facts is not None:
            row = self._row(self._facts)
            window = row.window if row is not None else None
        return create_engine(spec, tokenizer, model=asked, api_key=self._key, window=window, switches=self._switches)

    def another(self, tokenizer: Tokenizer, like: EngineKind) -> tuple[Engine, EngineSpec]:
        """The engine of the one spec."""
        (spec,) = self._specs
        if like == "completions" and spec.kind in _TEXT_SERVERS:
            spec = EngineSpec(like, spec.target, server=spec.kind)
        return self._engine(spec, tokenizer), spec

    def _switches(self, name: str) -> Switches | None:
        """What the model's template calls thinking, where its profile knows."""
        profile = self._book.find(self._model.name or name) or self._book.find(name)
        return profile.template_args if profile is not None else None

    def _pool(self, engines: Sequence[Engine], tokenizer: Tokenizer) -> WorkerPool:
        workers = [Worker(engine, str(spec)) for engine, spec in zip(engines, self._specs, strict=True)]
        settings = self._settings
        limits = PoolLimits(
            concurrency=settings.concurrency, queue=settings.queue, queue_timeout=settings.queue_timeout
        )
        policy = find_policy(settings.routing_policy, settings.session_affinity)
        return WorkerPool(workers, tokenizer, limits, Router(policy, life=settings.session_life))


def is_path(model: str) -> bool:
    """Whether a model is named by a place on this machine."""
    return bool(model) and Path(model).expanduser().exists()
