"""What requests share: the served models, the heartbeat, the stores, and what finished turns are reported to.

Promise: no route and no transport is known here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import msgspec

from turnwire.continuity import sentence
from turnwire.gateway.door.keys import Keyring
from turnwire.gateway.door.limits import request_limits
from turnwire.gateway.door.shared_limits import SharedLimits
from turnwire.gateway.door.usage import UsageLedger
from turnwire.gateway.hosted.tools import HostedTools
from turnwire.gateway.large_bodies.pool import LargeBodies
from turnwire.gateway.models import Found, ServedModels, UnknownModel
from turnwire.gateway.settings import Settings
from turnwire.gateway.setup.seal_keys import seal_keys
from turnwire.gateway.stores.journal import open_journal
from turnwire.gateway.stores.responses import ResponseStore
from turnwire.gateway.stores.store import Retention, open_store
from turnwire.gateway.telemetry.capturing import open_capture
from turnwire.gateway.telemetry.journal import Journal, TurnSummary, ended_turn, summary_of
from turnwire.gateway.telemetry.kept_turns import KeptTurns
from turnwire.gateway.telemetry.metrics import Metrics
from turnwire.gateway.telemetry.pushing import open_pushed_metrics
from turnwire.gateway.telemetry.records import Recorder
from turnwire.gateway.telemetry.tracing import open_tracing
from turnwire.gateway.turns.asking import unsaid
from turnwire.gateway.turns.heartbeat import Heartbeat
from turnwire.gateway.turns.read_ahead import NextPrompts
from turnwire.gateway.turns.record import TurnRecord
from turnwire.gateway.turns.runtime import ModelRuntime
from turnwire.gateway.turns.turn import Turn
from turnwire.profiles import codex_entry
from turnwire.prompts.recall.seals import Sealer
from turnwire.protocols.codex_catalog import alias_entries, catalog_etag
from turnwire.protocols.fields.decoded import DecodedParts
from turnwire.protocols.models import ModelRow
from turnwire.protocols.wire import Inbound, TurnFailure

if TYPE_CHECKING:
    from turnwire.gateway.processes.siblings import Siblings

__all__ = ["Gateway"]

log = logging.getLogger("turnwire.gateway")


class Gateway:
    """The gateway, whoever talks to it."""

    def __init__(self, settings: Settings, runtimes: Sequence[ModelRuntime], siblings: Siblings | None = None) -> None:
        self.settings = settings
        self.siblings = siblings
        self.runtimes = list(runtimes)
        self.heartbeat = Heartbeat(
            keepalive_s=settings.keepalive, idle_s=settings.idle_timeout, stall_s=settings.stall_timeout
        )
        self.keys = Keyring.load(settings.keys) if settings.keys else Keyring()
        self.metrics = Metrics()
        self.next_prompts = NextPrompts(settings.speculative_prefill)
        self.journal = Journal(settings.turns)
        self.tracing = open_tracing(settings.traces)
        self.pushed_metrics = open_pushed_metrics(settings.push_metrics)
        self.recorder = Recorder(settings.record) if settings.record else None
        self.capturing = open_capture(
            settings, self.runtimes, lambda outcome: self.metrics.captures.labels(outcome).inc()
        )
        self.max_body = settings.max_body
        self.limits = request_limits(settings)
        self.decoded = DecodedParts(settings.memory // 4)
        # What is recorded or captured must be here as a whole.
        self.keeps_bodies = self.recorder is not None or self.capturing is not None
        self.large_bodies = None if self.keeps_bodies else LargeBodies(self.limits)
        self.dispatch = settings.enable_streaming_tool_dispatch
        self.draining = False
        shared = (settings.store or "").partition(":")[0] in ("redis", "rediss", "unix")
        sealer = Sealer(seal_keys(settings)) if shared else None
        self.store = open_store(settings.store, Retention(memory_bytes=settings.memory // 4), sealer)
        kept = open_journal(settings.store, sealer, max_bytes=settings.journal_bytes, age=settings.journal_age)
        self.kept_turns = KeptTurns(kept) if kept is not None else None
        self.shared_limits = SharedLimits(settings.store) if shared and settings.store and settings.keys else None
        self.responses = ResponseStore(self.store, self.decoded)
        self.usage = UsageLedger(settings.usage)
        self.hosted = HostedTools(settings.tools)
        self._started = int(time.time())
        self._counted: WeakSet[TurnFailure] = WeakSet()
        self._entries = [entry for runtime in self.runtimes for entry in _catalog_entries(runtime)]
        self.etag = catalog_etag(self._entries)
        self.models = ServedModels(self.runtimes)

    # ------------------------------------------------------------------------------------------------------- models

    def rows(self) -> list[ModelRow]:
        """What is served, for the model lists."""
        return [
            ModelRow(
                id=runtime.id,
                display_name=runtime.display_name,
                created=self._started,
                window=runtime.window,
                max_output=runtime.window,
                aliases=runtime.aliases,
                roles=runtime.roles,
                tools=not runtime.writes_prompts or runtime.builder.traits.tools,
                hosted=tuple(self.settings.tools),
                input_modalities=("text", "image") if runtime.sees else ("text",),
                reasoning=runtime.profile is not None and runtime.profile.thinking.default != "never",
            )
            for runtime in self.runtimes
        ]

    def entries(self) -> list[dict[str, Any]]:
        """What is served, as Codex wants to know it."""
        return self._entries

    def runtime_for(self, model: str) -> ModelRuntime:
        """The model that a name means: by id, alias, role or default."""
        return self._found(model, None).model

    def serving(self, inbound: Inbound[Any]) -> ModelRuntime:
        """The model that answers a request; what the client should know about the choice becomes a note."""
        conversation = inbound.conversation
        found = self._found(conversation.model, conversation.context.turn_class)
        inbound.notes += found.notes
        if not conversation.model:
            inbound.conversation = msgspec.structs.replace(conversation, model=found.model.id)
        return found.model

    def _found(self, model: str, turn_class: str | None) -> Found[ModelRuntime]:
        try:
            return self.models.find(model, turn_class)
        except UnknownModel as error:
            raise TurnFailure("not_found", str(error)) from None

    # --------------------------------------------------------------------------------------------------- bookkeeping

    def refused(self, api: str, failure: TurnFailure) -> None:
        """A request that was refused before its turn began."""
        if failure not in self._counted:
            self.metrics.failures.labels(api, failure.kind).inc()
        log.info("refused %s %s: %s", api, failure.kind, failure.message, extra={"turnwire": {"api": api}})

    def expected(self, turn: TurnRecord[Any]) -> None:
        """A client says that it will go on from a conversation, and asks for nothing yet."""
        self.next_prompts.expected(turn)

    def begun(self, turn: Turn) -> None:
        """A turn that is about to run."""
        self.next_prompts.begun(turn)
        inbound = turn.record.inbound
        inbound.notes = (*inbound.notes, *unsaid(turn.record))
        if self.capturing is not None:
            self.capturing.begin(turn)

    def finished(self, turn: TurnRecord[Any]) -> None:
        """A turn that ran, whatever became of it."""
        if turn.outcome is None:
            if self.capturing is not None:
                self.capturing.forget(turn)
            return
        ended, usage = ended_turn(turn), turn.outcome.usage
        self.metrics.observe_turn(turn, ended)
        self.usage.count(ended.key, prompt=usage.prompt, cached=usage.cached, output=usage.output)
        if turn.outcome.failure is not None:
            # One that is also refused with a status comes by `refused` once more.
            self._counted.add(turn.outcome.failure)
        if turn.continuity.lost:
            log.warning("turn %s: %s", turn.turn_id, sentence(turn.continuity))
        self.journal.add(ended)
        if log.isEnabledFor(logging.INFO):
            log.info("%s", ended.line, extra={"turnwire": ended})
        if self.recorder is not None:
            self.recorder.write(turn)
        views = (self.kept_turns, self.capturing, self.tracing, self.pushed_metrics)
        if any(views):
            self._show(turn, summary_of(ended))
        self.next_prompts.finished(turn)

    def _show(self, turn: TurnRecord[Any], summary: TurnSummary) -> None:
        """Give a turn that is over to whoever keeps or sends summaries."""
        if self.kept_turns is not None:
            self.kept_turns.add(summary)
        if self.capturing is not None:
            self.capturing.end(turn, summary)
        if self.tracing is not None:
            self.tracing.turn(turn, summary)
        if self.pushed_metrics is not None:
            self.pushed_metrics.turn(summary)


def _catalog_entries(runtime: ModelRuntime) -> list[dict[str, Any]]:
    entry = codex_entry(
        runtime.profile, runtime.id, window=runtime.window, title=runtime.display_name, images=runtime.sees
    )
    return alias_entries(entry, runtime.aliases)
