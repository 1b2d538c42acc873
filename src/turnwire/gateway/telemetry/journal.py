"""What the gateway remembers and logs of finished turns: numbers, codes and ids, never payloads.

Promise: bounded. A summary holds nothing that a client or a model wrote, beyond the ids that name its session and
tenant; the log has one line per turn, as text or as JSON.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from turnwire.continuity import header as prefix_header
from turnwire.continuity import sentence
from turnwire.gateway.turns.record import TurnRecord

__all__ = [
    "Journal",
    "JsonLines",
    "Span",
    "TurnFilter",
    "TurnSummary",
    "sections_of",
    "spans_of",
    "start_log",
    "summary_of",
]

_STANDARD = "turnwire"
_MOST_SECTIONS = 40
_MOST_SPANS = 200


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
        if self.first_token is None or self.seconds <= self.first_token or self.output_tokens < 2:
            return None
        return (self.output_tokens - 1) / (self.seconds - self.first_token)

    @property
    def line(self) -> str:
        """For a log that people read."""
        first = "-" if self.first_token is None else f"{self.first_token:.3f}"
        speed = "-" if self.speed is None else f"{self.speed:.1f}"
        return (
            f"turn {self.turn_id} {self.api} {self.model} prompt={self.prompt_tokens} cached={self.cached_tokens} "
            f"output={self.output_tokens} seconds={self.seconds:.3f} first={first} tok/s={speed} finish={self.finish} "
            f"session={self.session or '-'} client={self.client or '-'} tenant={self.tenant} key={self.key or '-'} "
            f"worker={self.worker or '-'} route={self.route or '-'} prefix={self.prefix} "
            f"notes={','.join(self.notes) or '-'}"
        )


def summary_of(turn: TurnRecord[Any]) -> TurnSummary:
    """The summary of a turn that is over."""
    outcome, verdict = turn.outcome, turn.continuity
    assert outcome is not None
    context = turn.inbound.conversation.context
    first = turn.first_token
    sections, layout = sections_of(turn)
    return TurnSummary(
        turn_id=turn.turn_id,
        at=round(time.time(), 3),
        api=turn.api,
        model=turn.runtime.id,
        tenant=turn.tenant,
        key=turn.key,
        session=context.session,
        turn_class=context.turn_class,
        finish=turn.finish,
        failure=outcome.failure.kind if outcome.failure else None,
        prompt_tokens=outcome.usage.prompt,
        cached_tokens=outcome.usage.cached,
        output_tokens=outcome.usage.output,
        reasoning_tokens=outcome.usage.reasoning,
        calls=len(outcome.call_ids),
        first_token=None if first is None else round(first - turn.started, 4),
        seconds=round(time.monotonic() - turn.started, 4),
        silence=round(turn.silence, 3),
        prefix=prefix_header(verdict),
        lost=verdict.lost,
        cause=verdict.cause if verdict.lost else None,
        notes=tuple(sorted({note.code for note in turn.notes})),
        story=sentence(verdict),
        fix=verdict.words.fix if verdict.words is not None else "",
        compared=verdict.turn,
        shared=verdict.shared,
        parent=context.parent,
        agent=context.agent,
        client=context.client,
        worker=turn.route.worker if turn.route is not None else None,
        route=turn.route.why if turn.route is not None else None,
        predicted=turn.route.cached if turn.route is not None and turn.route.why != "only" else None,
        pending=turn.route.pending if turn.route is not None else 0,
        queued=round(turn.route.queued, 4) if turn.route is not None else 0.0,
        spans=spans_of(turn),
        sections=sections,
        layout=layout,
    )


def spans_of(turn: TurnRecord[Any], now: float | None = None) -> tuple[Span, ...]:
    """The parts of a turn so far, in order; the middle of very many is one part of kind `more`."""
    began, now = turn.started, time.monotonic() if now is None else now
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


def sections_of(turn: TurnRecord[Any]) -> tuple[dict[str, int], tuple[tuple[str, int], ...]]:
    """The prompt's tokens by the kind of section that they came from, and its layout: the sections in order, each with
    its tokens. In the layout neighbours of one kind are one; the middle of a long conversation is one section of kind
    `more`."""
    sizes: dict[str, int] = {}
    kinds: list[str] = []
    counts: list[int] = []
    last = ""
    for section in turn.prompt.sections:
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
        self._turns: deque[TurnSummary] = deque(maxlen=size)
        self._listeners: set[Callable[[TurnSummary], None]] = set()

    def add(self, summary: TurnSummary) -> None:
        self._turns.appendleft(summary)
        for listener in tuple(self._listeners):
            listener(summary)

    def listen(self, listener: Callable[[TurnSummary], None]) -> Callable[[], None]:
        """Call `listener` with every turn from now on; what is returned ends that."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    def last(self, limit: int, wanted: TurnFilter | None = None) -> Iterator[TurnSummary]:
        """At most `limit` of them, of those that are wanted."""
        for summary in self._turns:
            if limit <= 0:
                return
            if wanted is None or wanted.fits(summary.turn_id, summary.session, summary.model):
                limit -= 1
                yield summary


class JsonLines(logging.Formatter):
    """A log record as one line of JSON; what a caller passes as `extra={"turnwire": {...}}` becomes fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, _STANDARD, {}),
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
