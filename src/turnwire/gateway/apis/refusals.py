"""Refusals outside of turns, each in the shape of the API whose path was asked for.

Promise: the one place that phrases them, for the door, the small routes, unknown paths and defects.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response

from turnwire.gateway.routes import Shape, label_of, methods_of, shape_of
from turnwire.gateway.turns.endings import ClientGone
from turnwire.protocols import anthropic, chat, responses
from turnwire.protocols.wire import ErrorReply, TurnFailure

__all__ = ["Handler", "answering", "defect", "refusal", "unrouted"]

log = logging.getLogger("turnwire.gateway")

Handler = Callable[[Request], Awaitable[Response]]

_PHRASES: Mapping[Shape, Callable[[TurnFailure], ErrorReply]] = {
    "anthropic": anthropic.error_reply,
    "openai": chat.error_reply,
}


def refusal(path: str, headers: Mapping[str, str], failure: TurnFailure) -> ErrorReply:
    """A failure in the shape of the API that the path belongs to; paths of several APIs go by the headers."""
    shape = shape_of(path)
    if shape == "responses":
        return responses.early_refusal(failure, headers)
    if shape != "anthropic" and "anthropic-version" in headers:
        shape = "anthropic"
    return _PHRASES.get(shape, chat.error_reply)(failure)


def _refused(request: Request, failure: TurnFailure) -> Response:
    error = refusal(request.scope["path"], request.headers, failure)
    return Response(error.body, error.status, dict(error.headers), error.media_type)


def answering(handler: Handler, refused: Callable[[str, TurnFailure], None]) -> Handler:
    """A handler whose TurnFailure becomes a refusal; `refused` is called with it and with what it is counted under."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except TurnFailure as failure:
            refused(label_of(request.scope["path"]), failure)
            return _refused(request, failure)
        except ClientGone:
            return Response(status_code=499)

    return answer


async def unrouted(request: Request, error: Exception) -> Response:
    """A path or method that nobody serves."""
    allowed = methods_of(request.scope["path"])
    if allowed:
        failure = TurnFailure("invalid_request", f"Use {' or '.join(allowed)} here.", code="method_not_allowed")
        told = _refused(request, failure)
        return Response(told.body, 405, {"allow": ", ".join(allowed)}, told.media_type)
    return _refused(request, TurnFailure("not_found", "Nothing is served here.", code="unknown_route"))


async def defect(request: Request, error: Exception) -> Response:
    """A defect of ours outside of a turn; the trace is in the log."""
    return _refused(request, TurnFailure("internal", "The gateway failed to answer this request."))
