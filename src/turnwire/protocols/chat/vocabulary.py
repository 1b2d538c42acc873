"""Words and objects that the streamed and the whole answer share.

Promise: tables and pure functions over them.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import turnwire
from turnwire.protocols.chat.messages import SEAL_FORMAT
from turnwire.turns import Finished, FinishReason, ToolCallClosed, Usage

__all__ = [
    "BLOCK_BREAK",
    "completion_id",
    "dispatch_object",
    "ending",
    "fingerprint",
    "finish_reason",
    "seal_detail",
    "usage_object",
]

BLOCK_BREAK = "\n\n"
"""Stands between two thoughts, or two pieces of prose, that had something else between them."""

_FINISH: dict[FinishReason, str] = {
    "stop": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
}


def completion_id(turn_id: str) -> str:
    """The id of a turn's completion."""
    return f"chatcmpl-{turn_id}"


@lru_cache(maxsize=256)
def fingerprint(model: str) -> str:
    """What an answer depends on beside its request: the model, and the version that writes its prompts."""
    return "fp_" + hashlib.sha256(f"{turnwire.__version__}\n{model}".encode()).hexdigest()[:10]


def ending(finished: Finished) -> dict[str, object]:
    """How a choice ended; where a stop string ended it, which one (a field of vLLM's)."""
    ended: dict[str, object] = {"finish_reason": finish_reason(finished.reason)}
    if finished.stop_sequence is not None:
        ended["stop_reason"] = finished.stop_sequence
    return ended


def finish_reason(reason: FinishReason) -> str:
    """How the API calls an ending; an abort or an error is not an ending and never gets here."""
    return _FINISH.get(reason, "stop")


def usage_object(usage: Usage) -> dict[str, object]:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.output,
        "total_tokens": usage.prompt + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def seal_detail(seal: str, index: int) -> dict[str, object]:
    """Our carrier in `reasoning_details`: clients that return what they were given give the turn's exact order back."""
    return {"type": "reasoning.encrypted", "data": seal, "format": SEAL_FORMAT, "index": index}


def dispatch_object(call: ToolCallClosed, choice: int, index: int) -> dict[str, object]:
    """A completed call, as `tool_call_dispatch` announces it."""
    return {
        "choice_index": choice,
        "tool_call": {
            "index": index,
            "id": call.call_id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        },
    }
