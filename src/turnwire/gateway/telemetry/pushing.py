"""OpenTelemetry metrics of turns, for those who installed it and named a receiver.

Promise: the instruments are those of the conventions for generative AI, with their names, units and bucket borders;
a turn is counted once, when it is over. Attributes are bounded: API, model, kind of token, kind of failure; no ids.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from turnwire.gateway.telemetry.journal import TurnSummary
from turnwire.gateway.telemetry.tracing import TracingError, otlp_endpoint

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider

__all__ = ["INSTRUMENTS", "PushedMetrics", "open_pushed_metrics"]

_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_FIRST = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_EACH = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
_TOKENS = tuple(4**power for power in range(14))
INSTRUMENTS: dict[str, tuple[str, str, tuple[float, ...]]] = {
    "gen_ai.client.token.usage": ("{token}", "Tokens that a turn read and wrote.", _TOKENS),
    "gen_ai.server.request.duration": ("s", "Whole turns.", _SECONDS),
    "gen_ai.server.time_to_first_token": ("s", "Time to the first token.", _FIRST),
    "gen_ai.server.time_per_output_token": ("s", "Time for each token after the first.", _EACH),
}
"""Unit, meaning and bucket borders by name."""


class PushedMetrics:
    """Counts turns on a meter."""

    def __init__(self, provider: MeterProvider) -> None:
        self._provider = provider
        meter = provider.get_meter("turnwire")
        self._made = {
            name: meter.create_histogram(name, unit, about, explicit_bucket_boundaries_advisory=borders)
            for name, (unit, about, borders) in INSTRUMENTS.items()
        }

    def turn(self, summary: TurnSummary) -> None:
        """One turn that is over."""
        about: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "turnwire",
            "gen_ai.request.model": summary.model,
            "gen_ai.response.model": summary.model,
            "turnwire.api": summary.api,
        }
        tokens = self._made["gen_ai.client.token.usage"]
        tokens.record(summary.prompt_tokens, about | {"gen_ai.token.type": "input"})
        tokens.record(summary.output_tokens, about | {"gen_ai.token.type": "output"})
        failed = {"error.type": summary.failure} if summary.failure is not None else {}
        self._made["gen_ai.server.request.duration"].record(summary.seconds, about | failed)
        if summary.first_token is not None:
            self._made["gen_ai.server.time_to_first_token"].record(summary.first_token, about)
        if summary.speed is not None:
            self._made["gen_ai.server.time_per_output_token"].record(1 / summary.speed, about)

    def close(self) -> None:
        """Send what was not sent yet."""
        self._provider.shutdown()


def open_pushed_metrics(target: str | None) -> PushedMetrics | None:
    """Metrics to an OTLP/HTTP address (`http://host:4318`), sent every minute or as `OTEL_METRIC_EXPORT_INTERVAL` says;
    None where nobody asked for it."""
    if not target:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
    except ImportError:
        raise TracingError("--push-metrics needs OpenTelemetry: pip install 'turnwire[otel]'") from None
    endpoint = otlp_endpoint("--push-metrics", target, "/v1/metrics")
    name = os.environ.get("OTEL_SERVICE_NAME") or "turnwire"
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=endpoint))
    return PushedMetrics(MeterProvider([reader], Resource.create({"service.name": name})))
