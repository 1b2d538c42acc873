"""How a turn ends other than by the engine's completion, and the failure that its client gets.

Promise: every kind of engine failure and every reason to end early has a row here.
"""

from __future__ import annotations

from turnwire.engines.interface import EngineError
from turnwire.protocols.wire import ErrorKind, TurnFailure

__all__ = ["ClientGone", "ending", "failure_of"]

_ENGINE_FAILURES: dict[str, ErrorKind] = {
    "unreachable": "overloaded",
    "disconnected": "engine_failed",
    "overloaded": "overloaded",
    "context_overflow": "context_overflow",
    "invalid_request": "invalid_request",
    "timeout": "timeout",
    "internal": "engine_failed",
}
# The message to a client whose turn the gateway itself ends; an ending without one has no client left.
_ENDINGS: dict[str, tuple[ErrorKind, str]] = {
    "idle": ("timeout", "The engine was silent for too long; try again."),
    "shutdown": ("overloaded", "The gateway is shutting down; try again."),
    "cancelled": ("permission", "The operator cancelled this turn."),
}


class ClientGone(Exception):
    """The client closed the connection before its answer was complete."""


def failure_of(error: EngineError) -> TurnFailure:
    """An engine's failure as the wire phrases it."""
    return TurnFailure(_ENGINE_FAILURES[error.kind], error.message, retry_after=error.retry_after)


def ending(reason: str) -> Exception:
    """What a turn that is ended early raises."""
    words = _ENDINGS.get(reason)
    return ClientGone() if words is None else TurnFailure(*words, retry_after=1)
