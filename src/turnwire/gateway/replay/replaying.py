"""Runs a capture again through the gateway's own code, with everything that chance or the world decided put back.

Promise: what is compared is made by the same decode, prompt, parse and encode that serve requests: prompt ids, output
ids and every byte of the answer. Ids of turns and calls, seals, clocks, verdicts and the engine's batches come from the
capture. A turn that cannot be compared says why; it is never counted as equal.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from turnwire.capture.difference import Difference, blocks_differ, ids_differ, text_differs
from turnwire.capture.fingerprint import tokenizer_print
from turnwire.capture.format import CapturedTurn, CaptureError, ParsedBlock
from turnwire.capture.parsing import blocks_of
from turnwire.capture.reading import Capture
from turnwire.continuity import Verdict
from turnwire.engines.captured.engine import OTHER_TOKENIZER, CapturedEngine
from turnwire.engines.embedded.on_disk import file_on_disk
from turnwire.gateway.apis.chat import Chat
from turnwire.gateway.apis.completions import Completions
from turnwire.gateway.apis.messages import Messages
from turnwire.gateway.apis.responses import Compact, Responses
from turnwire.gateway.door.guard import KeyUse
from turnwire.gateway.door.keys import Key
from turnwire.gateway.gateway import Gateway
from turnwire.gateway.replay.sealer import CapturedSealer
from turnwire.gateway.settings import ModelSettings, Settings
from turnwire.gateway.setup.assembly import assemble_models
from turnwire.gateway.telemetry.fingerprints import template_print
from turnwire.gateway.turns.admission import admit
from turnwire.gateway.turns.arrival import Arrival
from turnwire.gateway.turns.endings import ClientGone
from turnwire.gateway.turns.record import TurnRecord
from turnwire.gateway.turns.sink import Reader
from turnwire.gateway.turns.turn import Turn
from turnwire.protocols.framing import LINES, SSE
from turnwire.protocols.reply import Reply
from turnwire.protocols.wire import TurnFailure

__all__ = ["Replayed", "replay", "replay_settings"]

log = logging.getLogger("turnwire.replay")
_COMPLETED = re.compile(r'"completed_at":(\d+)')


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one turn: how it differed, or why it was not compared."""

    turn: CapturedTurn
    differences: tuple[Difference, ...] = ()
    skipped: str = ""
    blocks: tuple[ParsedBlock, ...] = ()


def replay_settings(capture: Capture, place: str, base: Settings) -> Settings:
    """The settings under which a capture is replayed: the captured ones that decide prompts and answers, over what the
    operator gives (tokenizer, template, profiles). The file of a model that the embedded engine ran is looked for on
    this machine."""
    served = base.models or tuple(
        ModelSettings(
            name=model.id,
            aliases=model.aliases,
            dialect=base.dialect if base.dialect != "auto" else model.dialect,
            reasoning=base.reasoning,
            tokenizer=base.tokenizer or (file_on_disk(model.id) if model.engine == "embedded" else None),
            template=base.template,
            window=model.window,
        )
        for model in capture.models.values()
    )
    models = tuple(msgspec.structs.replace(model, engine=f"capture:{place}", engines=()) for model in served)
    kept = next(iter(capture.models.values())).settings
    known = {field.name for field in msgspec.structs.fields(Settings)}
    return msgspec.structs.replace(
        base,
        models=models,
        capture=None,
        keys=None,
        store=None,
        **{name: value for name, value in kept.items() if name in known},
    )


class _Collected:
    """A client that takes everything."""

    full = False

    def __init__(self) -> None:
        self.data = bytearray()

    def attach(self, reader: Reader) -> None:
        """There is nothing to report."""

    def open(self) -> None:
        """There is nothing to open."""

    def write(self, data: bytes) -> None:
        self.data += data

    write_last = write


class _World:
    """What the captured world said: the time, and the turn that runs."""

    def __init__(self) -> None:
        self.at = 0.0
        self.completed = 0.0
        self.turn: Turn | None = None
        self.captured: CapturedTurn | None = None
        self._beats = 0

    def begin(self, captured: CapturedTurn, turn: Turn) -> None:
        self.turn, self.captured, self._beats = turn, captured, 0

    def clock(self) -> datetime:
        return datetime.fromtimestamp(self.at, UTC).astimezone()

    def watch(self, turn_id: str, at: float | None) -> None:
        """Before each step of the engine: send the signs of life that were sent before it, and the captured end."""
        turn, captured = self.turn, self.captured
        if turn is None or captured is None:
            return
        while self._beats < len(captured.beats) and (at is None or captured.beats[self._beats] < at):
            self._beats += 1
            turn.open_stream()
            turn.beat()
        if at is None and captured.ended_by is not None:
            if captured.answer:
                turn.open_stream()
            turn.expire(captured.ended_by)


async def replay(capture: Capture, settings: Settings, only: str | None = None) -> AsyncIterator[Replayed]:
    """Every turn of a capture, oldest first, run again and compared; with `only`, nothing after that turn."""
    world, sealer = _World(), CapturedSealer(capture)
    warnings: list[str] = []
    runtimes = await assemble_models(settings, sealer=sealer, clock=world.clock, warn=warnings.append)
    try:
        for runtime in runtimes:
            captured = capture.models.get(runtime.id)
            if captured is None or not runtime.writes_prompts or not captured.tokenizer:
                continue
            if tokenizer_print(runtime.tokenizer) != captured.tokenizer:
                raise CaptureError(f"{runtime.id} was captured with another tokenizer; {OTHER_TOKENIZER}.")
            if template_print(runtime) != captured.template and settings.template is None:
                raise CaptureError(f"{runtime.id} was captured with another chat template; give it with --template.")
        # Only now: that of another tokenizer has become an error.
        for warning in warnings:
            log.warning(warning)
        gateway = Gateway(settings, runtimes)
        for runtime in runtimes:
            # Between a turn and its engine there is no pool: its retries are in the capture already.
            (worker,) = runtime.engine.workers  # type: ignore[attr-defined]
            runtime.engine = worker.engine
            assert isinstance(runtime.engine, CapturedEngine)
            runtime.engine.watcher = world.watch
        run = _Run(gateway, world, sealer)
        for turn in capture.turns:
            if not turn.memory:
                yield await run.turn(turn)
            else:
                await run.turn(turn)
            if turn.turn_id == only:
                return
    finally:
        for runtime in runtimes:
            await runtime.engine.close()


class _Run:
    """One replay."""

    def __init__(self, gateway: Gateway, world: _World, sealer: CapturedSealer) -> None:
        limits = gateway.limits.wire
        self._gateway = gateway
        self._world = world
        self._sealer = sealer
        responses = Responses(gateway.responses, limits, lambda: None, now=lambda: world.completed)
        compact = Compact(gateway.responses, limits, lambda: None, now=lambda: world.completed)
        self._apis: dict[str, Any] = {
            "messages": Messages(gateway.store, limits),
            "chat": Chat(limits),
            "completions": Completions(limits),
            "responses": responses,
            "compact": compact,
        }
        self._responses = responses

    async def turn(self, captured: CapturedTurn) -> Replayed:
        """One turn, run again."""
        if captured.imported:
            return Replayed(turn=captured, skipped="it is from a transcript, which has neither tokens nor bytes")
        api = self._apis.get(captured.request.route or captured.api)
        if api is None or captured.request.choices > 1:
            why = "it is one of several choices" if api is not None else f"nothing is known of the API {captured.api}"
            return Replayed(turn=captured, skipped=why)
        if captured.hosted:
            return Replayed(turn=captured, skipped="the gateway ran tools for it, whose results are not captured")
        world = self._world
        world.at, unknown = captured.at, self._sealer.unknown
        completed = _COMPLETED.findall(captured.answered)
        world.completed = float(completed[-1]) if completed else 0.0
        try:
            records = await admit(self._gateway, api, self._arrival(captured))
        except TurnFailure as failure:
            difference = Difference(
                turn_id=captured.turn_id, stage="decode", at=0, captured="a turn", replayed=f"refused: {failure}"
            )
            lost = "previous_response" in failure.message or "not found" in failure.message
            why = "it goes on from a response that is not in this capture" if lost else ""
            return Replayed(turn=captured, differences=() if lost else (difference,), skipped=why)
        (record,) = records
        self._put_back(captured, record)
        sink = _Collected()
        encoder = api.begin([record], LINES if captured.request.framing == "lines" else SSE)[0]
        ids = iter(captured.call_ids)
        turn = Turn(record, encoder, sink, mint=lambda: next(ids, "unforeseen"), finished=self._finished(api))
        if captured.expected is not None and record.reply is None:
            record.reply = Reply()
        world.begin(captured, turn)
        refused = ""
        try:
            await turn.run()
        except TurnFailure as failure:
            refused = failure.message
        except ClientGone:
            pass
        finally:
            await api.end(records)
        missing = self._sealer.unknown > unknown or _missing(captured, record)
        return self._judged(captured, record, bytes(sink.data), refused, incomplete=missing)

    @staticmethod
    def _arrival(captured: CapturedTurn) -> Arrival:
        key = Key(name=captured.tenant, hash="", tenant=captured.tenant)
        return Arrival(
            headers=captured.request.headers,
            body=captured.request.body.encode(),
            started=time.monotonic(),
            use=None if captured.tenant == "default" else KeyUse(key),
        )

    @staticmethod
    def _put_back(captured: CapturedTurn, record: TurnRecord[Any]) -> None:
        """Everything that chance, time or other turns decided."""
        verdict = msgspec.convert(captured.verdict, Verdict)
        evicted = {"cause": None} if verdict.cause == "evicted" else {}
        record.turn_id = captured.turn_id
        record.created = captured.created
        record.continuity = msgspec.structs.replace(verdict, cached=None, **evicted)
        record.inbound.dispatch = captured.dispatch
        if captured.request.framing == "lines":
            record.inbound.stream = True

    def _finished(self, api: Any) -> Any:
        async def finished(record: TurnRecord[Any]) -> None:
            await api.finished(record)
            # A connection remembers its own responses, stored or not; here they are all remembered.
            running = self._responses.running(record) if record.api == "responses" else None
            if running is not None and isinstance(api, Responses):
                await self._gateway.responses.put(record.tenant, running.stored())

        return finished

    @staticmethod
    def _judged(
        captured: CapturedTurn, record: TurnRecord[Any], answer: bytes, refused: str, *, incomplete: bool
    ) -> Replayed:
        outcome, name = record.outcome, captured.turn_id
        prompt = ids_differ(name, "prompt", captured.prompt.ids, list(record.prompt.ids))
        if prompt is not None and incomplete:
            return Replayed(turn=captured, skipped="its history holds turns that are not in this capture")
        blocks = blocks_of(record.reply) if captured.expected is not None else ()
        if captured.expected is not None:
            found = [prompt, blocks_differ(name, captured.expected, blocks)]
        else:
            output = list(outcome.output_ids) if outcome is not None else []
            failure = text_differs(name, "end", captured.failure or "", refused) if refused else None
            if refused and failure is None and captured.answered and not captured.output_ids:
                why = "it waited for an engine until its stream was opened, and then failed as it does here"
                return Replayed(turn=captured, skipped=why)
            gone = not captured.answered and captured.redacted
            found = [
                prompt,
                ids_differ(name, "output", captured.output_ids, output),
                None
                if gone
                else text_differs(name, "answer", captured.answered, answer.decode(), numbers=not captured.redacted),
                failure,
            ]
        return Replayed(turn=captured, differences=tuple(one for one in found if one is not None), blocks=blocks)


def _missing(captured: CapturedTurn, record: TurnRecord[Any]) -> bool:
    """Whether a turn was recalled then that cannot be recalled now."""
    then = {code for code, _ in captured.notes}
    return any(note.code == "replay.missing" for note in record.prompt.notes) and "replay.missing" not in then
