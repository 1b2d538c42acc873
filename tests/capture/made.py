"""Captured turns that no gateway made."""

from __future__ import annotations

from typing import Any

from turnwire.capture.format import (
    FORMAT,
    CapturedModel,
    CapturedPrompt,
    CapturedRequest,
    CapturedTurn,
    CaptureHead,
)


def head() -> CaptureHead:
    model = CapturedModel(
        id="m", engine="scripted", dialect="plain", window=1000, template="t", tokenizer="k", capabilities={}
    )
    return CaptureHead(format=FORMAT, turnwire="0", python="3", started=0.0, settings="s", models=(model,))


def turn(
    turn_id: str = "t1",
    *,
    prompt: list[int] | None = None,
    output: list[int] | None = None,
    body: str = "{}",
    **over: Any,
) -> CapturedTurn:
    """A turn with these ids."""
    fields: dict[str, Any] = {
        "turn_id": turn_id,
        "api": "messages",
        "model": "m",
        "tenant": "default",
        "at": 0.0,
        "created": 0,
        "dispatch": False,
        "request": CapturedRequest(headers={}, body=body),
        "prompt": CapturedPrompt(ids=prompt or [1, 2, 3]),
        "steps": (),
        "answer": (),
        "output_ids": output or [],
        "finish": "stop",
    }
    return CapturedTurn(**(fields | over))
