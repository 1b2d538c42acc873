"""OpenTelemetry spans of turns, for those who installed it.

Promise: a turn becomes one span with two children (waiting for the first token, then speaking), named and typed by the
conventions for generative AI and written when the turn is over, so that nothing is paid while it runs. A client's
`traceparent` is the parent. Without the packages, asking for traces is an error that says what to install; not asking
costs nothing.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from turnwire.gateway.telemetry.journal import TurnSummary
from turnwire.gateway.turns.record import TurnRecord

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer

__all__ = ["Tracing", "TracingError", "open_tracing", "otlp_endpoint"]


class TracingError(Exception):
    """Traces or metrics that cannot be sent; the message says what to change."""


class Tracing:
    """Writes turns to a tracer."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer: Tracer = provider.get_tracer("turnwire")
        self._propagator = TraceContextTextMapPropagator()

    def turn(self, turn: TurnRecord[Any], summary: TurnSummary) -> None:
        """One turn that is over."""
        from opentelemetry import trace

        now = time.time_ns()
        ago = time.monotonic()

        def at(moment: float) -> int:
            return now - int((ago - moment) * 1e9)

        began = at(turn.started)
        parent = self._propagator.extract(turn.headers)
        span = self._tracer.start_span(
            f"chat {summary.model}",
            context=parent,
            kind=trace.SpanKind.CLIENT,
            start_time=began,
            attributes=_attributes(summary),
        )
        if summary.failure is not None:
            span.set_status(trace.StatusCode.ERROR, summary.failure)
        inside = trace.set_span_in_context(span)
        first = at(turn.first_token) if turn.first_token is not None else now
        self._tracer.start_span("first token", context=inside, start_time=began).end(first)
        if turn.first_token is not None:
            self._tracer.start_span("speaking", context=inside, start_time=first).end(now)
        span.end(now)

    def close(self) -> None:
        """Send what was not sent yet."""
        self._provider.shutdown()


def _attributes(summary: TurnSummary) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "turnwire",
        "gen_ai.request.model": summary.model,
        "gen_ai.response.model": summary.model,
        "gen_ai.response.id": summary.turn_id,
        "gen_ai.response.finish_reasons": (summary.finish,),
        "gen_ai.usage.input_tokens": summary.prompt_tokens,
        "gen_ai.usage.output_tokens": summary.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": summary.cached_tokens,
        "user.id": summary.tenant,
        "turnwire.api": summary.api,
        "turnwire.tenant": summary.tenant,
        "turnwire.prefix": summary.prefix,
        "turnwire.lost_tokens": summary.lost,
        "turnwire.calls": summary.calls,
        "turnwire.silence": summary.silence,
        "turnwire.notes": summary.notes,
    }
    if summary.session is not None:
        attributes["gen_ai.conversation.id"] = attributes["session.id"] = summary.session
    if summary.agent is not None:
        attributes["gen_ai.agent.id"] = summary.agent
    if summary.failure is not None:
        attributes["error.type"] = summary.failure
    return attributes


def open_tracing(target: str | None) -> Tracing | None:
    """Tracing to an OTLP/HTTP address (`http://host:4318`); None where nobody asked for it."""
    if not target:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise TracingError("--traces needs OpenTelemetry: pip install 'turnwire[otel]'") from None
    endpoint = otlp_endpoint("--traces", target, "/v1/traces")
    name = os.environ.get("OTEL_SERVICE_NAME") or "turnwire"
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    return Tracing(provider)


def otlp_endpoint(flag: str, target: str, path: str) -> str:
    """The address of one signal at a receiver that was named with or without its path."""
    if not target.startswith(("http://", "https://")):
        raise TracingError(f"{flag} {target}: give the address of an OTLP receiver, such as http://127.0.0.1:4318")
    endpoint = target.rstrip("/")
    return endpoint if endpoint.endswith(path) else endpoint + path
