"""What operators can see: metrics, log lines, the last turns, spans; and that none of it holds payloads."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from turnwire.gateway.door.keys import hash_key
from turnwire.gateway.telemetry.journal import JsonLines
from turnwire.gateway.telemetry.pushing import INSTRUMENTS, PushedMetrics, open_pushed_metrics
from turnwire.gateway.telemetry.tracing import Tracing, TracingError, open_tracing

from .conftest import Client, Serve
from .test_liveness import BODIES, HELD, PATHS, Visit, counted, reached, until
from .test_messages import MIXED, TOOLS, request

SECRET_WORDS = "the password is hunter2"


async def metrics(client: Client) -> str:
    async with client.session.get(client.base + "/metrics") as answer:
        assert answer.status == 200
        return await answer.text()


def value(page: str, name: str, **labels: str) -> float:
    """The sum of a metric's samples that have these labels."""
    total = 0.0
    for line in page.splitlines():
        found = re.fullmatch(rf"{name}(?:{{(.*)}})? (\S+)", line)
        if found and all(f'{key}="{wanted}"' in (found[1] or "") for key, wanted in labels.items()):
            total += float(found[2])
    return total


async def test_a_turn_is_counted_in_every_way_that_helps(serve: Serve) -> None:
    client = await serve({"text": MIXED}, {"text": "Done.\n</think>\n\nSeven."})
    _, first = await client.post("/v1/messages", request(stream=False))
    results = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": "ok"}
        for block in first["content"]
        if block["type"] == "tool_use"
    ]
    history = [
        *request()["messages"],
        {"role": "assistant", "content": first["content"]},
        {"role": "user", "content": results},
    ]
    await client.post("/v1/messages", request(stream=False, messages=history))
    page = await metrics(client)
    assert value(page, "turnwire_turns_total", api="messages", finish="tool_calls") == 1
    assert value(page, "turnwire_turns_total", api="messages", finish="stop") == 1
    assert value(page, "turnwire_first_token_seconds_count", prefix="first") == 1
    assert value(page, "turnwire_first_token_seconds_count", prefix="held") == 1
    assert value(page, "turnwire_call_dispatch_seconds_count", api="messages") == 2
    assert value(page, "turnwire_tokens_total", kind="prompt") > 0
    assert value(page, "turnwire_tokens_total", kind="cached") > 0
    assert value(page, "turnwire_tokens_total", kind="reasoning") > 0
    assert value(page, "turnwire_workers", state="healthy") == 1


async def test_a_broken_prefix_is_counted_with_its_cause(serve: Serve) -> None:
    client = await serve({"text": "One.\n</think>\n\nYes."})
    words = "A system prompt that is long enough to fill some blocks. " * 30
    for system in (words, "Changed. " + words):
        body = request(stream=False, system=system, metadata={"user_id": "u_session_5"})
        await client.post("/v1/messages", body, **{"x-claude-code-session-id": "s1"})
    page = await metrics(client)
    assert value(page, "turnwire_first_token_seconds_count", prefix="broken") == 1
    assert value(page, "turnwire_wasted_prefill_tokens_total") > 100
    assert 'cause="None"' not in page


async def test_aborts_are_counted_by_stage_and_silence_in_seconds(serve: Serve) -> None:
    for stage in ("prefill", "stream"):
        client = await serve(HELD[stage], keepalive=0.05)
        engine = counted(client)
        visit = Visit(client, "messages")
        await reached(client, engine, visit, stage, stream=True)
        await until(lambda visit=visit: visit.seen.count(b"event: ping\n") >= 2)
        await visit.leave()
        await until(lambda client=client: len(client.gateway.heartbeat) == 0)
        page = await metrics(client)
        assert value(page, "turnwire_aborts_total", stage=stage) == 1
        assert value(page, "turnwire_aborts_total") == 1
        assert value(page, "turnwire_turns_total", finish="gone") == 1
        assert value(page, "turnwire_silence_seconds_total") > 0
        # A second look counts nothing twice.
        assert value(await metrics(client), "turnwire_aborts_total") == 1


async def test_a_failure_is_counted_once_whether_told_as_status_or_in_the_stream(serve: Serve) -> None:
    client = await serve({"text": "x", "finish": "error", "after": 0, "error": "internal"})
    status, _ = await client.post("/v1/messages", request(stream=False))
    assert status == 503
    assert value(await metrics(client), "turnwire_failures_total", kind="engine_failed") == 1
    await client.post("/v1/messages", b"{")
    assert value(await metrics(client), "turnwire_failures_total", kind="invalid_request") == 1


async def test_a_refused_request_is_counted_by_its_route_and_not_by_its_path(serve: Serve) -> None:
    client = await serve({"text": "Hi."})
    for number in range(3):
        async with client.session.get(f"{client.base}/v1/models/nobody-{number}") as answer:
            assert answer.status == 404
    page = await metrics(client)
    assert value(page, "turnwire_failures_total", api="/v1/models/{model}") == 3
    assert "nobody" not in page


async def test_what_the_door_refuses_is_counted_too(serve: Serve, tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text(
        f'[[key]]\nname = "a"\nhash = "{hash_key("a")}"\nrequests_per_minute = 1\n'
        f'[[key]]\nname = "root"\nhash = "{hash_key("root")}"\nscopes = ["admin"]\n'
    )
    client = await serve({"text": "Hm.\n</think>\n\nHi."}, keys=str(keys))
    for status in (200, 429):
        assert (await client.post("/v1/messages", request(stream=False), **{"x-api-key": "a"}))[0] == status
    for path in ("/secret-1", "/secret-2", "/v1/models"):
        async with client.session.get(client.base + path) as answer:
            assert answer.status == 401
    async with client.session.get(client.base + "/metrics", headers={"x-api-key": "root"}) as answer:
        page = await answer.text()
    assert value(page, "turnwire_failures_total", api="messages", kind="rate_limited") == 1
    assert value(page, "turnwire_failures_total", api="other", kind="authentication") == 2
    assert value(page, "turnwire_failures_total", api="/v1/models", kind="authentication") == 1
    assert "secret" not in page


async def test_rescues_have_their_own_count(serve: Serve) -> None:
    broken = "Hm.\n</think>\n\n<function=Bash>\n<parameter=command>\nls\n</parameter>\n</function>"
    client = await serve({"text": broken})
    status, _ = await client.post("/v1/messages", request(stream=False))
    assert status == 200
    page = await metrics(client)
    notes = value(page, "turnwire_notes_total", code="rescue.missing_wrapper")
    assert value(page, "turnwire_rescues_total", kind="missing_wrapper") == notes > 0


@pytest.mark.parametrize("api", list(PATHS))
async def test_the_last_turns_are_kept_without_what_was_said(serve: Serve, api: str) -> None:
    client = await serve({"text": f"Hm.\n</think>\n\nYes, {SECRET_WORDS}."}, turns=3)
    body = json.loads(json.dumps(BODIES[api]).replace("How many lines?", SECRET_WORDS)) | {"stream": False}
    for _ in range(5):
        status, _ = await client.post(PATHS[api], body, **{"x-claude-code-session-id": "session-7"})
        assert status == 200
    async with client.session.get(client.base + "/admin/turns?limit=2") as answer:
        text = await answer.text()
    assert "hunter2" not in text
    shown = json.loads(text)
    assert shown["live"] == 0
    assert [turn["finish"] for turn in shown["turns"]] == ["stop", "stop"]
    assert shown["turns"][0]["at"] >= shown["turns"][1]["at"]
    assert shown["turns"][0]["output_tokens"] > 0
    async with client.session.get(client.base + "/admin/turns") as answer:
        assert len((await answer.json())["turns"]) == 3
    async with client.session.get(client.base + "/admin/turns?session=another") as answer:
        assert (await answer.json())["turns"] == []
    for wrong in ("0", "x", "99999", "-1", "²"):
        async with client.session.get(client.base + "/admin/turns", params={"limit": wrong}) as answer:
            assert answer.status == 400


async def test_log_lines_are_json_with_ids_and_no_payloads(serve: Serve) -> None:
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    handler = Keep()
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("turnwire")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        client = await serve({"text": f"Hm.\n</think>\n\nYes, {SECRET_WORDS}."})
        body = request(messages=[{"role": "user", "content": SECRET_WORDS}], stream=False, tools=[])
        await client.post("/v1/messages", body, **{"x-claude-code-session-id": "session-7"})
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    records = [json.loads(line) for line in lines]
    turn = next(record for record in records if "turn_id" in record)
    assert turn["level"] == "info"
    assert turn["session"] == "session-7"
    assert turn["finish"] == "stop"
    assert turn["prompt_tokens"] > 0
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00", record["time"]) for record in records)
    assert not any("hunter2" in line for line in lines)


def test_a_trace_is_one_line() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        import sys

        record = logging.LogRecord("turnwire.x", logging.ERROR, "f", 1, "bad %s", ("news",), sys.exc_info())
    line = JsonLines().format(record)
    assert "\n" not in line
    assert json.loads(line)["message"] == "bad news"
    assert "ValueError" in json.loads(line)["trace"]


async def test_turns_become_spans_under_the_clients_own(serve: Serve) -> None:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    client = await serve({"text": f"Hm.\n</think>\n\nYes, {SECRET_WORDS}.", "first_delay_ms": 5, "delay_ms": 1})
    client.gateway.tracing = Tracing(provider)
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    headers = {"traceparent": f"00-{trace_id}-b7ad6b7169203331-01"}
    body = request(messages=[{"role": "user", "content": SECRET_WORDS}], stream=False, tools=TOOLS)
    await client.post("/v1/messages", body, **headers)
    named: dict[str, Any] = {span.name: span for span in spans.get_finished_spans()}
    turn, waiting, speaking = named["chat test-model"], named["first token"], named["speaking"]
    assert f"{turn.context.trace_id:032x}" == trace_id
    assert turn.parent is not None
    assert waiting.parent.span_id == speaking.parent.span_id == turn.context.span_id
    assert turn.start_time <= waiting.start_time <= waiting.end_time == speaking.start_time <= turn.end_time
    assert turn.attributes["gen_ai.request.model"] == "test-model"
    assert turn.attributes["gen_ai.usage.output_tokens"] > 0
    assert not any("hunter2" in span.to_json() for span in named.values())


async def test_turns_are_counted_on_the_instruments_of_the_conventions(serve: Serve) -> None:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    client = await serve({"text": "Hm.\n</think>\n\nYes, of course.", "first_delay_ms": 5, "delay_ms": 1})
    client.gateway.pushed_metrics = PushedMetrics(MeterProvider([reader]))
    await client.post("/v1/messages", request(messages=[{"role": "user", "content": SECRET_WORDS}], stream=False))
    (row,) = client.gateway.journal.last(1)
    data: Any = reader.get_metrics_data()
    assert "hunter2" not in data.to_json()
    metrics = data.resource_metrics[0].scope_metrics[0].metrics
    named = {metric.name: (metric.unit, list(metric.data.data_points)) for metric in metrics}
    assert set(named) == set(INSTRUMENTS)
    unit, points = named["gen_ai.client.token.usage"]
    assert unit == "{token}"
    counted = {point.attributes["gen_ai.token.type"]: point.sum for point in points}
    assert counted == {"input": row.prompt_tokens, "output": row.output_tokens}
    (whole,) = named["gen_ai.server.request.duration"][1]
    assert (whole.count, whole.sum) == (1, row.seconds)
    assert whole.attributes["gen_ai.request.model"] == "test-model"


def test_tracing_is_off_unless_asked_for_and_says_what_it_needs() -> None:
    assert open_tracing(None) is None
    assert open_pushed_metrics(None) is None
    with pytest.raises(TracingError, match="--push-metrics nowhere: give the address"):
        open_pushed_metrics("nowhere")
    with pytest.raises(TracingError, match="OTLP"):
        open_tracing("nowhere")
