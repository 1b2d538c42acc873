"""Failures as the Messages wire phrases them: status, envelope and the headers that steer a client's retries.

Promise: a table. Overflow carries the sentence that makes clients compact; permanent refusals say so in
`x-should-retry`; load carries `retry-after`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from turnwire.protocols.wire import ErrorKind, ErrorReply, TurnFailure

__all__ = ["error_object", "error_reply"]

_KINDS: Mapping[ErrorKind, tuple[int, str]] = {
    "invalid_request": (400, "invalid_request_error"),
    "authentication": (401, "authentication_error"),
    "permission": (403, "permission_error"),
    "not_found": (404, "not_found_error"),
    "too_large": (413, "request_too_large"),
    "rate_limited": (429, "rate_limit_error"),
    "overloaded": (529, "overloaded_error"),
    "context_overflow": (400, "invalid_request_error"),
    "engine_failed": (503, "api_error"),
    "timeout": (504, "timeout_error"),
    "internal": (500, "api_error"),
}
_PERMANENT = frozenset({"invalid_request", "authentication", "permission", "not_found", "too_large"})
_RETRY_AFTER: Mapping[str, float] = {"rate_limited": 2.0, "overloaded": 2.0, "engine_failed": 1.0, "timeout": 1.0}
"""Seconds to say where the failure itself names none."""

_encode = msgspec.json.Encoder().encode


def error_reply(failure: TurnFailure) -> ErrorReply:
    """A failure before the first byte of the answer."""
    status, kind = _KINDS[failure.kind]
    headers: list[tuple[str, str]] = []
    if failure.kind in _PERMANENT:
        headers.append(("x-should-retry", "false"))
    wait = failure.retry_after if failure.retry_after is not None else _RETRY_AFTER.get(failure.kind)
    if wait is not None:
        headers.append(("retry-after", str(max(0, math.ceil(wait)))))
    return ErrorReply(status=status, body=_encode(error_object(kind, failure)), headers=tuple(headers))


def _message(failure: TurnFailure) -> str:
    """The sentence for the client; overflow in the one form that every client recognises."""
    if failure.kind == "context_overflow" and failure.prompt_tokens is not None and failure.window is not None:
        return f"prompt is too long: {failure.prompt_tokens} tokens > {failure.window} maximum"
    return failure.message


def error_object(kind: str, failure: TurnFailure) -> dict[str, object]:
    """The error envelope; `details.error_code` is the failure's stable code."""
    error: dict[str, object] = {"type": kind, "message": _message(failure)}
    details = dict(failure.details or {})
    if failure.code is not None:
        details.setdefault("error_code", failure.code)
    if details:
        error["details"] = details
    return {"type": "error", "error": error}
