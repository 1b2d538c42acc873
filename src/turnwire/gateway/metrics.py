"""Counters and histograms of the gateway, in Prometheus' form.

Promise: labels are bounded (API, model, reason, code: never ids or payloads); nothing is recorded per token.
"""

from __future__ import annotations

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from .workers import WorkerPool

__all__ = ["Metrics"]

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    """All of a gateway's metrics, in a registry of its own."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self.turns = Counter(
            "turnwire_turns_total", "Turns by how they ended.", ["api", "model", "finish"], registry=registry
        )
        self.failures = Counter("turnwire_failures_total", "Failures by kind.", ["api", "kind"], registry=registry)
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
        self.notes = Counter("turnwire_notes_total", "Notes by code, rescues included.", ["code"], registry=registry)
        self.aborts = Counter("turnwire_aborts_total", "Turns left by their client.", ["stage"], registry=registry)
        self.live = Gauge("turnwire_live_turns", "Turns running now.", registry=registry)
        self.waiting = Gauge("turnwire_waiting_turns", "Turns waiting for a worker.", ["model"], registry=registry)
        self.moves = Gauge(
            "turnwire_worker_events", "Retries, migrations and refusals so far.", ["model", "event"], registry=registry
        )

    def observe_pool(self, model: str, pool: WorkerPool) -> None:
        """Take over what a model's workers have counted."""
        self.waiting.labels(model).set(pool.waiting)
        for event, count in msgspec.structs.asdict(pool.statistics).items():
            self.moves.labels(model, event).set(count)

    def page(self) -> bytes:
        """The text that a scraper reads."""
        return generate_latest(self._registry)
