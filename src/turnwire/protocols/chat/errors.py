"""Failures in OpenAI's words: status, envelope and the headers that steer a client's retries.

Promise: a table. Overflow carries the sentence and the code that make clients compact; load carries `retry-after`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from turnwire.protocols.wire import ErrorKind, ErrorReply, TurnFailure

__all__ = ["error_object", "error_reply"]

_KINDS: Mapping[ErrorKind, tuple[int, str, str | None]] = {
    "invalid_request": (400, "invalid_request_error", None),
    "authentication": (401, "authentication_error", "invalid_api_key"),
    "permission": (403, "permission_error", "insufficient_permissions"),
    "not_found": (404, "invalid_request_error", "model_not_found"),
    "too_large": (413, "invalid_request_error", "request_too_large"),
    "rate_limited": (429, "rate_limit_error", "rate_limit_exceeded"),
    "overloaded": (503, "server_error", "server_is_overloaded"),
    "context_overflow": (400, "invalid_request_error", "context_length_exceeded"),
    "engine_failed": (502, "server_error", "engine_failed"),
    "timeout": (504, "server_error", "timeout"),
    "internal": (500, "server_error", "internal_error"),
}
_RETRY_AFTER: Mapping[str, float] = {"rate_limited": 2.0, "overloaded": 2.0, "engine_failed": 1.0, "timeout": 1.0}


def error_object(failure: TurnFailure) -> dict[str, object]:
    """The error envelope."""
    _, kind, code = _KINDS[failure.kind]
    message = failure.message
    if failure.kind == "context_overflow" and failure.window is not None:
        message = (
            f"This model's maximum context length is {failure.window} tokens. However, your messages resulted in "
            f"{failure.prompt_tokens} tokens. Please reduce the length of the messages."
        )
    return {"error": {"message": message, "type": kind, "param": failure.param, "code": failure.code or code}}


def error_reply(failure: TurnFailure) -> ErrorReply:
    """A failure before the first byte of the answer."""
    status = _KINDS[failure.kind][0]
    wait = failure.retry_after if failure.retry_after is not None else _RETRY_AFTER.get(failure.kind)
    headers = () if wait is None else (("retry-after", str(max(0, math.ceil(wait)))),)
    return ErrorReply(status=status, body=msgspec.json.encode(error_object(failure)), headers=headers)
