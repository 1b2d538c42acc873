"""Captures turns as they run: a tap between engine and turn, and one between turn and client.

Promise: nothing is tapped unless a capture was asked for and wants this turn; what is collected is references and
times, and everything else happens in the writer's thread. Sessions are sampled whole or not at all.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from hashlib import blake2b
from threading import Lock
from typing import Any

import msgspec

from turnwire.capture.format import (
    MASKED,
    CapturedPrompt,
    CapturedRequest,
    CapturedTurn,
    DoneStep,
    EventStep,
    FailedStep,
    Step,
    TokenStep,
)
from turnwire.capture.parsing import parsed_turn
from turnwire.capture.redaction import Redactor
from turnwire.capture.view import turn_view
from turnwire.engines.interface import Completion, EngineError, EventBatch, Route, RoutedReceiver, TokenBatch
from turnwire.gateway.settings import Settings, SettingsError
from turnwire.gateway.telemetry.capture_files import CaptureFiles, CaptureWriter
from turnwire.gateway.telemetry.fingerprints import capture_head
from turnwire.gateway.telemetry.journal import TurnSummary
from turnwire.gateway.turns.record import TurnRecord
from turnwire.gateway.turns.runtime import ModelRuntime
from turnwire.gateway.turns.sink import Reader, Sink
from turnwire.gateway.turns.turn import Turn
from turnwire.prompts.prompt import Tokenizer
from turnwire.protocols.responses import CompactedEncoder

__all__ = ["CaptureRules", "Capturing", "open_capture"]

_FILTERS = ("model", "tenant", "api", "client", "session")


class CaptureRules:
    """Which turns are captured: those that every kind of filter lets through (`model=qwen*`, `client=claude-cli/*`),
    and of these a share by session."""

    def __init__(self, filters: Sequence[str] = (), sample: float = 1.0) -> None:
        self._filters: dict[str, list[str]] = {}
        self._sample = sample
        for one in filters:
            kind, equals, pattern = one.partition("=")
            if kind not in _FILTERS or not equals or not pattern:
                raise SettingsError(f"capture_filter: {one!r} is none; write one like {_FILTERS[0]}=qwen*")
            self._filters.setdefault(kind, []).append(pattern)

    def wants(self, record: TurnRecord[Any]) -> bool:
        """Whether a turn is captured."""
        if not self._filters and self._sample >= 1:
            return True
        context = record.inbound.conversation.context
        told = {
            "model": record.runtime.id,
            "tenant": record.tenant,
            "api": record.api,
            "client": context.client or "",
            "session": context.session or "",
        }
        for kind, patterns in self._filters.items():
            if not any(fnmatchcase(told[kind], pattern) for pattern in patterns):
                return False
        drawn = blake2b((context.session or record.turn_id).encode(), digest_size=8).digest()
        return int.from_bytes(drawn, "big") < self._sample * (1 << 64)


class _Tap:
    """One turn being captured: receives for the turn, writes to its client, and keeps what passes with its time."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self._receiver: RoutedReceiver = turn.receiver
        # The turn that goes on with an answer writes where the one before wrote.
        self._sink: Sink = turn.sink._sink if isinstance(turn.sink, _Tap) else turn.sink
        self._began = turn.record.started
        self.pushed: list[tuple[float, TokenBatch | EventBatch | Completion | EngineError]] = []
        self.written: list[tuple[float, bytes]] = []
        turn.receiver, turn.sink = self, self

    # ------------------------------------------------------------------------------------- from the engine

    def tokens(self, batch: TokenBatch) -> None:
        self.pushed.append((time.monotonic(), batch))
        self._receiver.tokens(batch)

    def events(self, batch: EventBatch) -> None:
        self.pushed.append((time.monotonic(), batch))
        self._receiver.events(batch)

    def routed(self, route: Route) -> None:
        self._receiver.routed(route)

    def done(self, completion: Completion) -> None:
        self.pushed.append((time.monotonic(), completion))
        self._receiver.done(completion)

    def failed(self, error: EngineError) -> None:
        self.pushed.append((time.monotonic(), error))
        self._receiver.failed(error)

    # --------------------------------------------------------------------------------------- to the client

    @property
    def full(self) -> bool:
        return self._sink.full

    def attach(self, reader: Reader) -> None:
        self._sink.attach(reader)

    def open(self) -> None:
        self._sink.open()

    def write(self, data: bytes) -> None:
        self.written.append((time.monotonic(), data))
        self._sink.write(data)

    def write_last(self, data: bytes) -> None:
        self.written.append((time.monotonic(), data))
        self._sink.write_last(data)

    # --------------------------------------------------------------------------------------------- the end

    @property
    def size(self) -> int:
        """About the bytes that the turn holds."""
        record = self.turn.record
        written = sum(len(data) for _, data in self.written)
        return len(record.body) + 8 * len(record.prompt.ids) + written + 200 * len(self.pushed) + 4096

    def line(self, summary: TurnSummary, ended: float, redactor: Redactor) -> CapturedTurn:
        """The turn as a line of the capture."""
        record, began = self.turn.record, self._began
        outcome = record.outcome
        assert outcome is not None
        context = record.inbound.conversation.context
        websocket = record.headers.get("upgrade", "").lower() == "websocket"
        turn = CapturedTurn(
            turn_id=record.turn_id,
            api=record.api,
            model=record.runtime.id,
            tenant=record.tenant,
            at=round(summary.at - (ended - began), 6),
            created=record.created,
            dispatch=bool(record.inbound.dispatch),
            request=CapturedRequest(
                headers=record.headers,
                body=record.body.decode("utf-8", "replace"),
                framing="lines" if websocket else "sse",
                route="compact" if isinstance(self.turn.encoder, CompactedEncoder) else "",
                choices=record.inbound.choices,
            ),
            prompt=CapturedPrompt(
                ids=list(record.prompt.ids),
                tail=record.prompt.tail,
                sections=tuple((part.kind, part.index, part.start, part.end) for part in record.prompt.sections),
                stamp=record.prompt.stamp,
            ),
            steps=tuple(_step(round(at - began, 6), item) for at, item in self.pushed),
            answer=tuple((round(at - began, 6), data.decode("utf-8", "replace")) for at, data in self.written),
            output_ids=list(outcome.output_ids),
            call_ids=tuple(outcome.call_ids),
            beats=tuple(round(at - began, 6) for at in record.beats),
            verdict=msgspec.to_builtins(record.continuity),
            summary=msgspec.to_builtins(summary),
            session=context.session,
            parent=context.parent,
            agent=context.agent,
            client=context.client,
            turn_class=context.turn_class,
            finish=record.finish,
            ended_by=record.ended_by,
            failure=outcome.failure.message if outcome.failure is not None else None,
            hosted=bool(record.inbound.hosted),
            place=record.inbound.conversation.assistant_turns,
            notes=tuple((note.code, note.message) for note in record.notes),
        )
        tokenizer = record.runtime.tokenizer
        turn = redactor.turn(turn, tokenizer.decode, _speller(tokenizer))
        blocks = parsed_turn(turn, record.dialect, record.inbound.conversation.tools)
        return msgspec.structs.replace(turn, blocks=blocks)


def _step(at: float, item: TokenBatch | EventBatch | Completion | EngineError) -> Step:
    match item:
        case TokenBatch():
            return TokenStep(at, item.text, item.ids, tuple((one.token, one.logprob, one.top) for one in item.logprobs))
        case EventBatch():
            return EventStep(at, item.events)
        case Completion():
            return DoneStep(
                at,
                item.reason,
                item.prompt_tokens,
                item.output_tokens,
                item.cached_tokens,
                item.stop_sequence,
                item.reasoning_tokens,
            )
        case EngineError():
            return FailedStep(at, item.kind, item.message, item.retry_after)


def _speller(tokenizer: Tokenizer) -> Callable[[Sequence[int]], Iterable[str]]:
    def spell(ids: Sequence[int]) -> Iterable[str]:
        detokenizer = tokenizer.detokenizer()
        return [detokenizer.feed((token,)) for token in ids]

    return spell


class RecentTurns:
    """The turns captured last, up to a number of bytes: what the console shows of them is read from here."""

    def __init__(self, most_bytes: int = 64 << 20) -> None:
        self._most = most_bytes
        self._turns: OrderedDict[str, tuple[CapturedTurn, int]] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def add(self, turn: CapturedTurn, size: int) -> None:
        """Keep one; older ones leave."""
        with self._lock:
            self._turns[turn.turn_id] = (turn, size)
            self._bytes += size
            while self._bytes > self._most and len(self._turns) > 1:
                _, (_, gone) = self._turns.popitem(last=False)
                self._bytes -= gone

    def get(self, turn_id: str) -> CapturedTurn | None:
        """A turn by its id, while it is kept."""
        with self._lock:
            found = self._turns.get(turn_id)
        return found[0] if found is not None else None


class Capturing:
    """A gateway's capture."""

    def __init__(
        self, rules: CaptureRules, redactor: Redactor, writer: CaptureWriter, runtimes: Sequence[ModelRuntime]
    ) -> None:
        self._rules = rules
        self._redactor = redactor
        self._writer = writer
        self._open: dict[str, _Tap] = {}
        self._tokenizers = {runtime.id: runtime.tokenizer for runtime in runtimes}
        self._recent = RecentTurns()

    def begin(self, turn: Turn) -> None:
        """A turn is about to run."""
        if self._rules.wants(turn.record):
            self._open[turn.record.turn_id] = _Tap(turn)

    def end(self, record: TurnRecord[Any], summary: TurnSummary) -> None:
        """A turn is over."""
        tap = self._open.pop(record.turn_id, None)
        if tap is not None:
            ended, size = time.monotonic(), tap.size

            def make() -> CapturedTurn:
                line = tap.line(summary, ended, self._redactor)
                self._recent.add(line, size)
                return line

            self._writer.put(make, size)

    def forget(self, record: TurnRecord[Any]) -> None:
        """A turn that never ran."""
        self._open.pop(record.turn_id, None)

    def view(self, turn_id: str) -> dict[str, Any] | None:
        """A turn that was captured lately, as a page shows it."""
        turn = self._recent.get(turn_id)
        if turn is None:
            return None
        return turn_view(turn, self._recent.get(str(turn.verdict.get("turn", ""))), self._spelled)

    def _spelled(self, model: str, ids: Sequence[int]) -> list[str]:
        # Piece by piece, so that a character of several tokens is shown whole, at its last one.
        detokenizer = self._tokenizers[model].detokenizer()
        return ["\N{BLACK VERTICAL RECTANGLE}" if token == MASKED else detokenizer.feed((token,)) for token in ids]

    def close(self) -> None:
        """Write what waits."""
        self._writer.close()


def open_capture(settings: Settings, runtimes: list[ModelRuntime], counted: Callable[[str], None]) -> Capturing | None:
    """The capture that the settings ask for, or None."""
    if not settings.capture:
        return None
    for pattern in settings.capture_redact:
        try:
            re.compile(pattern)
        except re.error as error:
            raise SettingsError(f"capture_redact: {pattern!r} is not a regular expression: {error}") from None
    tokenizers = {runtime.id: runtime.tokenizer for runtime in runtimes}
    files = CaptureFiles(
        settings.capture,
        capture_head(settings, runtimes),
        lambda model, token: tokenizers[model].decode([token]),
        file_bytes=settings.capture_file_bytes,
        folder_bytes=settings.capture_folder_bytes,
    )
    rules = CaptureRules(settings.capture_filter, settings.capture_sample)
    return Capturing(rules, Redactor(settings.capture_redact), CaptureWriter(files, counted=counted), runtimes)
