"""Failures of HTTP engines in neutral words: a table of what engines say, and the kind it means.

Promise: every refusal becomes an EngineError whose kind tells the gateway what to do; the engine's own words are kept,
shortened to a length that is safe to show.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import msgspec

from turnwire.engines.interface import EngineError
from turnwire.unreadable import UNREADABLE

__all__ = ["KeyRefused", "Kind", "ended_by", "failure", "refusal"]

Kind: TypeAlias = Literal[
    "unreachable", "disconnected", "overloaded", "context_overflow", "invalid_request", "timeout", "internal"
]

_LONGEST = 600


class KeyRefused(EngineError):
    """The engine wants an API key, or another one. No other try makes sense until the operator gives it."""


_WORDINGS: tuple[tuple[str, Kind], ...] = (
    # vLLM, and most OpenAI-compatible servers
    ("maximum context length", "context_overflow"),
    ("maximum model length", "context_overflow"),
    ("max_model_len", "context_overflow"),
    ("context_length_exceeded", "context_overflow"),
    ("context window", "context_overflow"),
    # SGLang
    ("model's context length", "context_overflow"),
    ("kv memory budget", "context_overflow"),
    ("exceeds the maximum allowed length", "context_overflow"),
    ("request queue is full", "overloaded"),
    ("higher priority request", "overloaded"),
    # TensorRT-LLM
    ("max_seq_len", "context_overflow"),
    ("max_num_tokens", "context_overflow"),
    ("max_input_len", "context_overflow"),
    ("default_max_tokens", "context_overflow"),
    # llama.cpp
    ("exceed_context_size_error", "context_overflow"),
    ("available context size", "context_overflow"),
    ("loading model", "overloaded"),
    # Hosted services
    ("prompt is too long", "context_overflow"),
    ("input is too long", "context_overflow"),
    ("too many tokens", "context_overflow"),
    ("rate limit", "overloaded"),
    ("overloaded", "overloaded"),
)

_STATUS: dict[int, Kind] = {
    400: "invalid_request",
    404: "invalid_request",
    408: "timeout",
    413: "context_overflow",
    422: "invalid_request",
    429: "overloaded",
    502: "unreachable",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}


class _Error(msgspec.Struct):
    message: object = None
    type: object = None
    code: object = None


class _Answer(msgspec.Struct):
    """The shapes in which engines wrap an error: OpenAI's, FastAPI's, and bare ones."""

    error: _Error | str | None = None
    message: object = None
    detail: object = None
    type: object = None


_DECODER = msgspec.json.Decoder(_Answer)


def failure(engine: str, said: str, *, status: int = 500, retry_after: float | None = None) -> EngineError:
    """What an engine said of a failure, as an EngineError."""
    said = " ".join(said.split())[:_LONGEST]
    lowered = said.lower()
    if status in (401, 403):
        return KeyRefused(
            "internal",
            f"{engine} wants an API key that it knows (HTTP {status}); give it with --engine-key-env NAME or "
            f"--engine-key-file FILE. It says: {said}",
        )
    kind: Kind = _STATUS.get(status, "internal")
    for wording, meaning in _WORDINGS:
        if wording in lowered:
            kind = meaning
            break
    return EngineError(kind, f"{engine}: {said}" if said else f"{engine}: HTTP {status}", retry_after=retry_after)


_ABORTED = frozenset({"abort", "aborted", "cancelled"})


def ended_by(engine: str, word: str | None) -> EngineError:
    """An end that is not the engine's own completion. One that aborts a generation is on its way out, or was asked to
    go: another worker can go on."""
    kind: Kind = "disconnected" if word in _ABORTED else "internal"
    return EngineError(kind, f"{engine} ended the generation before it was complete ({str(word)[:40]!r})")


def refusal(
    engine: str, status: int, body: bytes, retry_after: str | None = None, *, location: str | None = None
) -> EngineError:
    """A whole error response, as an EngineError. A redirect is one, too: it is not followed."""
    if 300 <= status < 400:
        there = f" to {location[:200]}" if location and location.isprintable() else ""
        said = f"{engine} redirects{there} (HTTP {status}), which is not followed: give the engine's own address"
        return EngineError("internal", said)
    return failure(engine, _words(body), status=status, retry_after=_seconds(retry_after))


def _words(body: bytes) -> str:
    try:
        said = _said(_DECODER.decode(body))
    except UNREADABLE:
        said = None
    return body[:_LONGEST].decode("utf-8", "replace") if said is None else said


def _said(answer: _Answer) -> str | None:
    if isinstance(answer.error, str):
        return answer.error
    if answer.error is not None:
        said = str(answer.error.message or "")
        return said if not answer.error.type or str(answer.error.type) in said else f"{said} ({answer.error.type})"
    for words in (answer.message, answer.detail):
        if words:
            return words if isinstance(words, str) else msgspec.json.encode(words).decode()
    return None


def _seconds(retry_after: str | None) -> float | None:
    try:
        seconds = float(retry_after) if retry_after else math.nan
    except ValueError:
        return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None
