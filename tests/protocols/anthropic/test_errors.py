"""Status, envelope and retry headers of every kind of failure."""

from __future__ import annotations

import json

import pytest

from turnwire.protocols.anthropic import error_reply
from turnwire.protocols.wire import TurnFailure

RETRY_NEVER = ("x-should-retry", "false")


@pytest.mark.parametrize(
    ("kind", "status", "error_type", "headers"),
    [
        ("invalid_request", 400, "invalid_request_error", (RETRY_NEVER,)),
        ("authentication", 401, "authentication_error", (RETRY_NEVER,)),
        ("permission", 403, "permission_error", (RETRY_NEVER,)),
        ("not_found", 404, "not_found_error", (RETRY_NEVER,)),
        ("too_large", 413, "request_too_large", (RETRY_NEVER,)),
        ("rate_limited", 429, "rate_limit_error", (("retry-after", "2"),)),
        ("overloaded", 529, "overloaded_error", (("retry-after", "2"),)),
        ("context_overflow", 400, "invalid_request_error", ()),
        ("engine_failed", 503, "api_error", (("retry-after", "1"),)),
        ("timeout", 504, "timeout_error", (("retry-after", "1"),)),
        ("internal", 500, "api_error", ()),
    ],
)
def test_table(kind: str, status: int, error_type: str, headers: tuple[tuple[str, str], ...]) -> None:
    reply = error_reply(TurnFailure(kind, "words"))  # type: ignore[arg-type]
    assert (reply.status, reply.headers, reply.media_type) == (status, headers, "application/json")
    assert json.loads(reply.body) == {"type": "error", "error": {"type": error_type, "message": "words"}}


def test_the_failures_own_wait_wins() -> None:
    assert error_reply(TurnFailure("overloaded", "x", retry_after=0.2)).headers == (("retry-after", "1"),)
    assert error_reply(TurnFailure("rate_limited", "x", retry_after=30)).headers == (("retry-after", "30"),)


def test_details_travel() -> None:
    failure = TurnFailure("invalid_request", "x", code="c", details={"unsupported": ["thread"]})
    assert json.loads(error_reply(failure).body)["error"]["details"] == {"unsupported": ["thread"], "error_code": "c"}
