"""Counters and histograms of the gateway, in Prometheus' form.

Promise: labels are bounded (API, model, key, reason, code: never ids or payloads); nothing is recorded per token. A
turn that ends is added to plain sums; Prometheus' own objects take those over when somebody reads them.
"""

from __future__ import annotations

from typing import Any

import msgspec
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from turnwire.engines.pool.pool import PoolStatistics, WorkerPool
from turnwire.engines.pool.read_ahead import ReadAheadStatistics
from turnwire.gateway.telemetry.journal import EndedTurn
from turnwire.gateway.turns.record import TurnRecord

__all__ = ["Metrics"]

_INSTANTS = (0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.1)
_MOST_TENANTS = 100
_MOST_TURNS = 256
"""Turns whose times wait to be taken over where nobody reads."""
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


# A time of creation with every sample doubles the page and is of no use to anybody.
disable_created_metrics()  # type: ignore[no-untyped-call]


class _Ended(msgspec.Struct, gc=False):
    """What the turns with the same labels came to since somebody read."""

    turns: int = 0
    prompt: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0
    silence: float = 0.0


class Metrics:
    """All of a gateway's metrics, in a registry of its own."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self.turns = Counter(
            "turnwire_turns_total", "Turns by how they ended.", ["api", "model", "finish"], registry=registry
        )
        self.failures = Counter(
            "turnwire_failures_total",
            "Failures and refusals sent to clients, by API or route and by kind.",
            ["api", "kind"],
            registry=registry,
        )
        self.first_token = Histogram(
            "turnwire_first_token_seconds",
            "Request read to first token, by whether the session's prefix held.",
            ["model", "prefix"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.turn_seconds = Histogram(
            "turnwire_turn_seconds", "Whole turns.", ["api", "model"], buckets=_SECONDS, registry=registry
        )
        self.tokens = Counter(
            "turnwire_tokens_total",
            "Tokens by kind: prompt, cached, output, reasoning.",
            ["model", "kind"],
            registry=registry,
        )
        self.key_turns = Counter("turnwire_key_turns_total", "Turns by API key.", ["key"], registry=registry)
        self.key_tokens = Counter(
            "turnwire_key_tokens_total",
            "Tokens by API key and kind: prompt, cached, output, reasoning.",
            ["key", "kind"],
            registry=registry,
        )
        self.wasted = Counter(
            "turnwire_wasted_prefill_tokens_total",
            "Prompt tokens that a broken prefix made the engine read again, by cause.",
            ["model", "cause"],
            registry=registry,
        )
        self.silence = Counter(
            "turnwire_silence_seconds_total",
            "Seconds in which a live turn's engine said nothing.",
            ["model"],
            registry=registry,
        )
        self.dispatch = Histogram(
            "turnwire_call_dispatch_seconds",
            "A tool call's last token parsed to its bytes handed to the socket.",
            ["api"],
            buckets=_INSTANTS,
            registry=registry,
        )
        self.rescues = Counter(
            "turnwire_rescues_total",
            "Broken model output that was repaired, by kind.",
            ["model", "kind"],
            registry=registry,
        )
        self.notes = Counter("turnwire_notes_total", "Notes by code, rescues included.", ["code"], registry=registry)
        self.aborts = Counter(
            "turnwire_aborts_total",
            "Turns that were stopped before their end, by how far they had come: queue, prefill, stream.",
            ["model", "stage"],
            registry=registry,
        )
        self.captures = Counter(
            "turnwire_captures_total",
            "Captured turns by what became of them: written, dropped (too many waited), failed.",
            ["outcome"],
            registry=registry,
        )
        self.tenant_tokens = Counter(
            "turnwire_tenant_tokens_total",
            "Tokens by tenant, model and kind; tenants beyond the first hundred are `other`.",
            ["tenant", "model", "kind"],
            registry=registry,
        )
        self._tenants: set[str] = set()
        # By API, model, key, tenant and finish; the others by the labels of their metrics.
        self._ended: dict[tuple[str, str, str, str, str], _Ended] = {}
        self._routed: dict[tuple[str, str, str], int] = {}
        self._seconds: dict[tuple[str, str], list[float]] = {}
        self._first_tokens: dict[tuple[str, str], list[float]] = {}
        self._waiting = 0
        ProcessCollector(registry=registry)
        self.live = Gauge("turnwire_live_turns", "Turns running now.", registry=registry)
        self.waiting = Gauge("turnwire_waiting_turns", "Turns waiting for a worker.", ["model"], registry=registry)
        self.workers = Gauge("turnwire_workers", "Workers by state.", ["model", "state"], registry=registry)
        self.moves = Counter(
            "turnwire_worker_events_total", "Retries, migrations and refusals.", ["model", "event"], registry=registry
        )
        self.routes = Counter(
            "turnwire_routes_total",
            "Turns by the worker they went to and what spoke for it.",
            ["model", "worker", "why"],
            registry=registry,
        )
        self.belief = Counter(
            "turnwire_cache_belief_tokens_total",
            "Prompt tokens that a worker was believed to hold, and that it then reported.",
            ["model", "worker", "kind"],
            registry=registry,
        )
        self.belief_error = Counter(
            "turnwire_cache_belief_error_tokens_total",
            "Prompt tokens by which the belief was wrong: too many (over) or too few (under).",
            ["model", "worker", "direction"],
            registry=registry,
        )
        self.ahead = Counter(
            "turnwire_read_ahead_total",
            "Prompts read ahead by what came of them: hit, cut, wasted, needless, busy, warmed.",
            ["model", "outcome"],
            registry=registry,
        )
        self.ahead_tokens = Counter(
            "turnwire_read_ahead_tokens_total", "Prompt tokens read ahead.", ["model"], registry=registry
        )
        self.ahead_saved = Counter(
            "turnwire_read_ahead_saved_seconds_total",
            "Seconds of reading that turns found done.",
            ["model"],
            registry=registry,
        )
        self._ahead_seen: dict[str, ReadAheadStatistics] = {}
        self._seen: dict[str, PoolStatistics] = {}

    def observe_turn(self, turn: TurnRecord[Any], ended: EndedTurn) -> None:
        """Count a turn that is over."""
        model, usage, verdict = ended.model, ended.usage, ended.verdict
        labels = (ended.api, model, ended.key, self._tenant(ended.tenant), ended.finish)
        sums = self._ended.get(labels)
        if sums is None:
            sums = self._ended[labels] = _Ended()
        sums.turns += 1
        sums.prompt += usage.prompt
        sums.cached += usage.cached
        sums.output += usage.output
        sums.reasoning += usage.reasoning
        sums.silence += ended.silence
        self._seconds.setdefault((ended.api, model), []).append(ended.seconds)
        if ended.waited is not None:
            self._first_tokens.setdefault((model, verdict.state), []).append(ended.waited)
        if verdict.lost:
            self.wasted.labels(model, verdict.cause).inc(verdict.lost)
        if ended.failure is not None:
            self.failures.labels(ended.api, ended.failure).inc()
        for seconds in turn.dispatches:
            self.dispatch.labels(ended.api).observe(seconds)
        if ended.route is not None:
            self._observe_route(turn, model)
        if ended.notes:
            for note in turn.notes:
                self.notes.labels(note.code).inc()
                if note.code.startswith("rescue."):
                    self.rescues.labels(model, note.code.removeprefix("rescue.")).inc()
        self._waiting += 1
        if self._waiting >= _MOST_TURNS:
            self._take_over()

    def _take_over(self) -> None:
        """Bring the metrics up to date with the turns that have ended."""
        for (api, model, key, tenant, finish), ended in self._ended.items():
            self.turns.labels(api, model, finish).inc(ended.turns)
            self.key_turns.labels(key).inc(ended.turns)
            self.silence.labels(model).inc(ended.silence)
            for kind in ("prompt", "cached", "output", "reasoning"):
                count = getattr(ended, kind)
                self.tokens.labels(model, kind).inc(count)
                self.tenant_tokens.labels(tenant, model, kind).inc(count)
                self.key_tokens.labels(key, kind).inc(count)
        for labels, count in self._routed.items():
            self.routes.labels(*labels).inc(count)
        for histogram, times in ((self.turn_seconds, self._seconds), (self.first_token, self._first_tokens)):
            for names, seconds in times.items():
                observe = histogram.labels(*names).observe
                for each in seconds:
                    observe(each)
            times.clear()
        self._ended.clear()
        self._routed.clear()
        self._waiting = 0

    def _observe_route(self, turn: TurnRecord[Any], model: str) -> None:
        """Count where a turn went, and compare what its worker was believed to hold with what it reported. Where other
        turns were reading the same prompt at that moment, nothing certain was believed."""
        route, outcome = turn.route, turn.outcome
        if route is None:
            return
        labels = (model, route.label, route.why)
        self._routed[labels] = self._routed.get(labels, 0) + 1
        reports = turn.runtime.engine.capabilities.cached_tokens and outcome is not None and outcome.finish is not None
        if outcome is None or not reports or route.why == "only" or route.pending > route.cached:
            return
        self.belief.labels(model, route.label, "believed").inc(route.cached)
        self.belief.labels(model, route.label, "reported").inc(outcome.usage.cached)
        wrong = route.cached - outcome.usage.cached
        self.belief_error.labels(model, route.label, "over" if wrong > 0 else "under").inc(abs(wrong))

    def _tenant(self, name: str) -> str:
        """The tenant as a label: there are a hundred of them and `other`."""
        if name not in self._tenants and len(self._tenants) < _MOST_TENANTS:
            self._tenants.add(name)
        return name if name in self._tenants else "other"

    def observe_pool(self, model: str, pool: WorkerPool) -> None:
        """Take over what a model's workers have counted since the last time."""
        self.waiting.labels(model).set(pool.waiting)
        for state in ("healthy", "suspect", "down"):
            self.workers.labels(model, state).set(sum(worker.state == state for worker in pool.workers))
        now, before = msgspec.structs.replace(pool.statistics), self._seen.get(model, PoolStatistics())
        self._seen[model] = now
        for event in ("retries", "migrations", "migrations_failed", "moved_late", "refused"):
            self.moves.labels(model, event).inc(getattr(now, event) - getattr(before, event))
        self._observe_ahead(model, pool.read_ahead.statistics)
        prefill = now.left_prefill - before.left_prefill
        self.aborts.labels(model, "queue").inc(now.left_queue - before.left_queue)
        self.aborts.labels(model, "prefill").inc(prefill)
        self.aborts.labels(model, "stream").inc(now.aborts - before.aborts - prefill)

    def _observe_ahead(self, model: str, statistics: ReadAheadStatistics) -> None:
        now, before = msgspec.structs.replace(statistics), self._ahead_seen.get(model, ReadAheadStatistics())
        self._ahead_seen[model] = now
        for outcome in ("hit", "cut", "wasted", "needless", "busy", "warmed"):
            self.ahead.labels(model, outcome).inc(getattr(now, outcome) - getattr(before, outcome))
        self.ahead_tokens.labels(model).inc(now.tokens - before.tokens)
        self.ahead_saved.labels(model).inc(now.saved - before.saved)

    def page(self) -> bytes:
        """The text that a scraper reads."""
        self._take_over()
        return generate_latest(self._registry)
