"""What the gateway remembers and logs of finished turns: numbers, codes and ids, never payloads.

Promise: bounded. What is kept of a turn holds nothing that a client or a model wrote, beyond the ids that name its
session and tenant; a summary is made of it when somebody reads it. The log has one line per turn, as text or as JSON.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from turnwire.continuity import Verdict, sentence
from turnwire.continuity import header as prefix_header
from turnwire.engines.interface import Route
from turnwire.gateway.turns.record import BlockTimes, TurnRecord
from turnwire.prompts.prompt import Section
from turnwire.turns import TurnContext, Usage

__all__ = [
    "EndedTurn",
    "Journal",
    "JsonLines",
    "Span",
    "TurnFilter",
    "TurnSummary",
    "ended_turn",
    "sections_of",
    "spans_of",
    "start_log",
    "summary_of",
]

_STANDARD = "turnwire"
_MOST_SECTIONS = 40
_MOST_SPANS = 200
_MOST_KEPT = 256
"""Sections of a prompt, and blocks of an answer, up to which a turn takes no more memory than a summary may."""


class Span(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A part of a turn, in seconds since its request was read: `queue`, `prefill`, or a block of the answer
    (`reasoning`, `text`, `tool_call` with the name of the tool)."""

    kind: str
    start: float
    end: float
    name: str = ""


class TurnSummary(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One turn. Times are seconds, `at` is when it ended (unix); `prefix` is what the answer's `x-turnwire-prefix`
    said, `lost` how many tokens a broken prefix cost, `story` the same in a sentence without any text of a client;
    `parent` and `agent` say whose sub-agent the session is; `predicted` is how many tokens the worker was believed to
    hold, `pending` how many of them it was reading for other turns; `sections` are the prompt's tokens by where they
    came from, `layout` the same in order; `notes` are codes."""

    turn_id: str
    at: float
    api: str
    model: str
    tenant: str
    session: str | None
    turn_class: str
    finish: str
    failure: str | None
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int
    calls: int
    first_token: float | None
    seconds: float
    silence: float
    prefix: str
    lost: int
    cause: str | None
    notes: tuple[str, ...]
    story: str = ""
    fix: str = ""
    compared: str = ""
    shared: int = 0
    parent: str | None = None
    agent: str | None = None
    client: str | None = None
    key: str = ""
    worker: str | None = None
    route: str | None = None
    predicted: int | None = None
    pending: int = 0
    queued: float = 0.0
    spans: tuple[Span, ...] = ()
    sections: dict[str, int] = {}
    layout: tuple[tuple[str, int], ...] = ()

    @property
    def speed(self) -> float | None:
        """Output tokens a second after the first token."""
        return _speed(self.output_tokens, self.seconds, self.first_token)


def _speed(tokens: int, seconds: float, first: float | None) -> float | None:
    return None if first is None or seconds <= first or tokens < 2 else (tokens - 1) / (seconds - first)


class EndedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a turn that is over: small parts of its record, and nothing that is made of them. `at` is unix
    seconds, other times are monotonic; `notes` are codes."""

    turn_id: str
    at: float
    api: str
    model: str
    tenant: str
    key: str
    context: TurnContext
    finish: str
    failure: str | None
    usage: Usage
    calls: int
    started: float
    first_token: float | None
    ended: float
    silence: float
    verdict: Verdict
    notes: tuple[str, ...]
    route: Route | None
    blocks: Sequence[BlockTimes]
    sections: Sequence[Section]

    @property
    def session(self) -> str | None:
        """The session that its client named."""
        return self.context.session

    @property
    def seconds(self) -> float:
        """How long it took."""
        return round(self.ended - self.started, 4)

    @property
    def waited(self) -> float | None:
        """How long its client waited for the first token."""
        return None if self.first_token is None else round(self.first_token - self.started, 4)

    @property
    def line(self) -> str:
        """For a log that people read."""
        context, usage, route = self.context, self.usage, self.route
        seconds, first = self.seconds, self.waited
        speed = _speed(usage.output, seconds, first)
        return (
            f"turn {self.turn_id} {self.api} {self.model} prompt={usage.prompt} cached={usage.cached} "
            f"output={usage.output} seconds={seconds:.3f} first={'-' if first is None else f'{first:.3f}'} "
            f"tok/s={'-' if speed is None else f'{speed:.1f}'} finish={self.finish} "
            f"session={context.session or '-'} client={context.client or '-'} tenant={self.tenant} "
            f"key={self.key or '-'} worker={route.worker if route is not None else '-'} "
            f"route={route.why if route is not None else '-'} prefix={prefix_header(self.verdict)} "
            f"notes={','.join(self.notes) or '-'}"
        )


def ended_turn(turn: TurnRecord[Any]) -> EndedTurn:
    """What is kept of a turn that is over."""
    outcome, verdict = turn.outcome, turn.continuity
    assert outcome is not None
    inbound, prompt = turn.inbound, turn.prompt
    noted = inbound.notes or prompt.notes or outcome.notes
    return EndedTurn(
        turn_id=turn.turn_id,
        at=time.time(),
        api=turn.api,
        model=turn.runtime.id,
        tenant=turn.tenant,
        key=turn.key,
        context=inbound.conversation.context,
        finish=turn.finish,
        failure=outcome.failure.kind if outcome.failure else None,
        usage=outcome.usage,
        calls=len(outcome.call_ids),
        started=turn.started,
        first_token=turn.first_token,
        ended=time.monotonic(),
        silence=turn.silence,
        # The detail repeats words of the prompt.
        verdict=msgspec.structs.replace(verdict, detail="") if verdict.detail else verdict,
        notes=tuple(sorted({note.code for note in turn.notes})) if noted else (),
        route=turn.route,
        blocks=turn.blocks,
        sections=prompt.sections,
    )


def summary_of(turn: EndedTurn) -> TurnSummary:
    """The summary of a turn that is over."""
    context, usage, verdict, route = turn.context, turn.usage, turn.verdict, turn.route
    sections, layout = sections_of(turn.sections)
    return TurnSummary(
        turn_id=turn.turn_id,
        at=round(turn.at, 3),
        api=turn.api,
        model=turn.model,
        tenant=turn.tenant,
        key=turn.key,
        session=context.session,
        turn_class=context.turn_class,
        finish=turn.finish,
        failure=turn.failure,
        prompt_tokens=usage.prompt,
        cached_tokens=usage.cached,
        output_tokens=usage.output,
        reasoning_tokens=usage.reasoning,
        calls=turn.calls,
        first_token=turn.waited,
        seconds=turn.seconds,
        silence=round(turn.silence, 3),
        prefix=prefix_header(verdict),
        lost=verdict.lost,
        cause=verdict.cause if verdict.lost else None,
        notes=turn.notes,
        story=sentence(verdict),
        fix=verdict.words.fix if verdict.words is not None else "",
        compared=verdict.turn,
        shared=verdict.shared,
        parent=context.parent,
        agent=context.agent,
        client=context.client,
        worker=route.worker if route is not None else None,
        route=route.why if route is not None else None,
        predicted=route.cached if route is not None and route.why != "only" else None,
        pending=route.pending if route is not None else 0,
        queued=round(route.queued, 4) if route is not None else 0.0,
        spans=spans_of(turn, turn.ended),
        sections=sections,
        layout=layout,
    )


def spans_of(turn: TurnRecord[Any] | EndedTurn, now: float) -> tuple[Span, ...]:
    """The parts of a turn until `now`, in order; the middle of very many is one part of kind `more`."""
    began = turn.started
    first = turn.first_token if turn.first_token is not None else now
    queued = turn.route.queued if turn.route is not None else 0.0
    spans = [Span(kind="queue", start=0.0, end=round(queued, 4))] if queued >= 0.001 else []
    spans.append(Span(kind="prefill", start=round(queued, 4), end=round(max(first - began, queued), 4)))
    spans += [
        Span(
            kind=block.kind,
            name=block.name,
            start=round(block.opened - began, 4),
            end=round((now if block.closed is None else block.closed) - began, 4),
        )
        for block in turn.blocks
    ]
    half = _MOST_SPANS // 2
    if len(spans) > _MOST_SPANS:
        spans[half:-half] = [Span(kind="more", start=spans[half].start, end=spans[-half - 1].end)]
    return tuple(spans)


def sections_of(sections: Sequence[Section]) -> tuple[dict[str, int], tuple[tuple[str, int], ...]]:
    """A prompt's tokens by the kind of section that they came from, and its layout: the sections in order, each with
    its tokens. In the layout neighbours of one kind are one; the middle of a long conversation is one section of kind
    `more`."""
    sizes: dict[str, int] = {}
    kinds: list[str] = []
    counts: list[int] = []
    last = ""
    for section in sections:
        kind, size = section.kind, section.end - section.start
        if kind in sizes:
            sizes[kind] += size
        else:
            sizes[kind] = size
        if kind == last or (last and kind == "frame"):
            counts[-1] += size
        elif size:
            kinds.append(kind)
            counts.append(size)
            last = kind
    half = _MOST_SECTIONS // 2
    if len(kinds) > _MOST_SECTIONS:
        kinds[half:-half], counts[half:-half] = ["more"], [sum(counts[half:-half])]
    return sizes, tuple(zip(kinds, counts, strict=True))


class TurnFilter(msgspec.Struct, frozen=True):
    """Which turns are wanted: of one session, of one model, the one with an id; all where nothing is said."""

    session: str | None = None
    model: str | None = None
    turn: str | None = None

    def fits(self, turn: str, session: str | None, model: str) -> bool:
        """Whether a turn is wanted."""
        return (
            (self.session is None or session == self.session)
            and (self.model is None or model == self.model)
            and (self.turn is None or turn == self.turn)
        )


class Journal:
    """The last turns of this process, newest first."""

    def __init__(self, size: int) -> None:
        self._turns: deque[EndedTurn | TurnSummary] = deque(maxlen=size)
        self._listeners: set[Callable[[TurnSummary], None]] = set()

    def add(self, turn: EndedTurn) -> None:
        small = len(turn.sections) <= _MOST_KEPT and len(turn.blocks) <= _MOST_KEPT
        self._turns.appendleft(turn if small else summary_of(turn))
        if self._listeners:
            summary = summary_of(turn)
            for listener in tuple(self._listeners):
                listener(summary)

    def listen(self, listener: Callable[[TurnSummary], None]) -> Callable[[], None]:
        """Call `listener` with every turn from now on; what is returned ends that."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    def last(self, limit: int, wanted: TurnFilter | None = None) -> Iterator[TurnSummary]:
        """At most `limit` of them, of those that are wanted."""
        for turn in self._turns:
            if limit <= 0:
                return
            if wanted is None or wanted.fits(turn.turn_id, turn.session, turn.model):
                limit -= 1
                yield summary_of(turn) if isinstance(turn, EndedTurn) else turn


class JsonLines(logging.Formatter):
    """A log record as one line of JSON; what a caller passes as `extra={"turnwire": {...}}` becomes fields, of a turn
    that is over the fields of its summary."""

    def format(self, record: logging.LogRecord) -> str:
        told = getattr(record, _STANDARD, {})
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **(msgspec.structs.asdict(summary_of(told)) if isinstance(told, EndedTurn) else told),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


def start_log(level: str, form: str) -> None:
    """Log to standard error, as text or as JSON."""
    handler = logging.StreamHandler()
    text = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonLines() if form == "json" else text)
    logging.basicConfig(level=level.upper(), handlers=[handler])
