"""Failures: each kind has the status and the words that make a client do the right thing."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, get_args

import msgspec
import pytest

from turnwire.protocols import responses
from turnwire.protocols.responses.answer.errors import TABLE
from turnwire.protocols.wire import ErrorKind, Inbound, TurnFacts, TurnFailure

from .conformance import check_events, parse_stream

Decode = Callable[..., Inbound]

# The expression with which Codex reads how long it is to wait.
CODEX_WAIT = re.compile(r"(?i)try again in\s*(\d+(?:\.\d+)?)\s*(s|ms|seconds?)")
OVERFLOW = TurnFailure("context_overflow", "too long", prompt_tokens=300_000, window=262_144)


def test_every_kind_has_a_row() -> None:
    assert set(TABLE) == set(get_args(ErrorKind))


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        (TurnFailure("invalid_request", "m", param="input[0]"), 400, None),
        (TurnFailure("invalid_request", "m", code="previous_response_not_found"), 400, "previous_response_not_found"),
        (TurnFailure("authentication", "m"), 401, "invalid_api_key"),
        (TurnFailure("not_found", "m"), 404, "not_found"),
        (TurnFailure("not_found", "m", code="model_not_found"), 400, "model_not_found"),
        (TurnFailure("too_large", "m"), 400, "request_too_large"),
        (OVERFLOW, 400, "context_length_exceeded"),
        (TurnFailure("rate_limited", "m", retry_after=1.5), 429, "rate_limit_exceeded"),
        (TurnFailure("overloaded", "m"), 503, "server_is_overloaded"),
        (TurnFailure("engine_failed", "m"), 502, "server_error"),
        (TurnFailure("internal", "m"), 500, "server_error"),
    ],
)
def test_as_a_status(failure: TurnFailure, status: int, code: str | None) -> None:
    reply = responses.error_reply(failure)
    error = msgspec.json.decode(reply.body)["error"]
    assert (reply.status, error["code"], error["param"]) == (status, code, failure.param)
    assert set(error) == {"message", "type", "param", "code"}


def test_a_429_is_never_bare() -> None:
    for wait, whole in ((None, "2"), (0.2, "1"), (1.5, "2"), (30.0, "30")):
        reply = responses.error_reply(TurnFailure("rate_limited", "Slow down.", retry_after=wait))
        assert dict(reply.headers)["retry-after"] == whole
        found = CODEX_WAIT.search(msgspec.json.decode(reply.body)["error"]["message"])
        assert found is not None
        assert float(found.group(1)) == (wait or 2.0)


def test_an_overflow_on_a_stream_is_a_failed_response(decode: Decode, facts: TurnFacts) -> None:
    reply = responses.refusal(OVERFLOW, decode(stream=True), facts)
    assert (reply.status, reply.media_type) == (200, "text/event-stream")
    events, problems = parse_stream(reply.body)
    assert problems == []
    assert check_events(events) == []
    error = events[-1]["response"]["error"]
    assert error["code"] == "context_length_exceeded"
    assert "maximum context length is 262144 tokens" in error["message"]


def test_an_overflow_of_a_document_is_a_400(decode: Decode, facts: TurnFacts) -> None:
    reply = responses.refusal(OVERFLOW, decode(), facts)
    assert reply.status == 400
    assert "maximum context length is 262144 tokens" in msgspec.json.decode(reply.body)["error"]["message"]


@pytest.mark.parametrize(
    ("headers", "fields", "status"),
    [
        ({"originator": "codex_exec"}, {"stream": True}, 200),
        ({"x-codex-window-id": "a:0"}, {"stream": True}, 200),
        ({}, {"stream": True, "client_metadata": {"x-codex-window-id": "a:0"}}, 200),
        ({"user-agent": "codex_exec/0.166.0"}, {"stream": True}, 429),
        ({}, {"stream": True}, 429),
        ({"originator": "codex_exec"}, {}, 429),
    ],
)
def test_a_rate_limit_waits_in_codex_and_is_a_429_elsewhere(
    decode: Decode, facts: TurnFacts, headers: dict[str, str], fields: dict[str, Any], status: int
) -> None:
    failure = TurnFailure("rate_limited", "Too many requests.", retry_after=1.5)
    reply = responses.refusal(failure, decode(headers=headers, **fields), facts)
    assert reply.status == status
    if status == 200:
        error = parse_stream(reply.body)[0][-1]["response"]["error"]
        assert error == {"code": "rate_limit_exceeded", "message": "Too many requests. Please try again in 1.5s."}


def test_a_refusal_at_the_door(facts: TurnFacts) -> None:
    failure = TurnFailure("rate_limited", "This key may ask once; try again in 0.5s.", retry_after=0.5)
    reply = responses.early_refusal(failure, {"originator": "codex_cli_rs"})
    events, problems = parse_stream(reply.body)
    assert (reply.status, problems, check_events(events)) == (200, [], [])
    assert events[-1]["response"]["error"]["message"] == failure.message
    assert responses.early_refusal(failure, {}).status == 429
    assert responses.early_refusal(TurnFailure("authentication", "m"), {"originator": "codex_exec"}).status == 401
