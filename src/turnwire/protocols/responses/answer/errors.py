"""Failures as the Responses API phrases them, chosen so that each client does the right thing next.

Promise: one table. A failure before the first byte is an HTTP status, except where only a `response.failed` event makes
a client recover: an overflow on a stream always (Codex then compacts), a rate limit when Codex asks (it gives up on a
429 but waits when the message says for how long).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from turnwire.protocols.wire import ErrorKind, ErrorReply, TurnFailure

__all__ = ["error_reply", "failed_error"]


class _Row(msgspec.Struct, frozen=True):
    status: int
    type: str
    code: str | None
    stream_code: str


TABLE: Mapping[ErrorKind, _Row] = {
    # 400 is the only 4xx that Codex does not send again, so everything that trying again cannot fix is a 400.
    "invalid_request": _Row(400, "invalid_request_error", None, "invalid_prompt"),
    "authentication": _Row(401, "invalid_request_error", "invalid_api_key", "server_error"),
    "permission": _Row(403, "invalid_request_error", "permission_denied", "invalid_prompt"),
    "not_found": _Row(404, "invalid_request_error", "not_found", "invalid_prompt"),
    "too_large": _Row(400, "invalid_request_error", "request_too_large", "invalid_prompt"),
    "rate_limited": _Row(429, "rate_limit_error", "rate_limit_exceeded", "rate_limit_exceeded"),
    "overloaded": _Row(503, "server_error", "server_is_overloaded", "rate_limit_exceeded"),
    "context_overflow": _Row(400, "invalid_request_error", "context_length_exceeded", "context_length_exceeded"),
    "engine_failed": _Row(502, "server_error", "server_error", "server_error"),
    "timeout": _Row(504, "server_error", "server_error", "server_error"),
    "internal": _Row(500, "server_error", "server_error", "server_error"),
}

WAITING: frozenset[ErrorKind] = frozenset({"rate_limited", "overloaded"})
DEFAULT_WAIT = 2.0


def error_reply(failure: TurnFailure) -> ErrorReply:
    """A failure as an HTTP answer."""
    row = TABLE[failure.kind]
    code = failure.code or row.code
    status = 400 if code == "model_not_found" else row.status
    body = {"error": {"message": message_of(failure), "type": row.type, "param": failure.param, "code": code}}
    headers: tuple[tuple[str, str], ...] = ()
    if failure.kind in WAITING:
        wait = failure.retry_after or DEFAULT_WAIT
        headers = (("retry-after", str(max(1, round(wait + 0.49)))), ("retry-after-ms", str(round(wait * 1000))))
    return ErrorReply(status=status, body=msgspec.json.encode(body), headers=headers)


def failed_error(failure: TurnFailure) -> dict[str, str]:
    """A failure as the `error` of a failed response object."""
    code = TABLE[failure.kind].stream_code
    if failure.kind == "invalid_request" and failure.code:
        code = failure.code
    return {"code": code, "message": message_of(failure)}


def message_of(failure: TurnFailure) -> str:
    """The message, with the phrases that clients look for: how long to wait, how large the window is."""
    if failure.kind in WAITING and "try again in" not in failure.message:
        wait = failure.retry_after or DEFAULT_WAIT
        return f"{failure.message.rstrip('. ')}. Please try again in {wait:.3g}s."
    if failure.kind == "context_overflow" and failure.window is not None:
        used = f" However, your input is {failure.prompt_tokens} tokens." if failure.prompt_tokens else ""
        return f"This model's maximum context length is {failure.window} tokens.{used} Please shorten the input."
    return failure.message
