"""Compaction: a long conversation summarised by the model itself, carried as a `compaction` item.

Promise: pure functions. `summary_request` is the turn to run; `compaction_item` carries its answer opaquely;
`read_summary` gives exactly that text back, or None for a carrier that is not ours. The carrier is bounded.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Sequence
from typing import Any

import msgspec

from turnwire.turns import Conversation, Message, TextBlock, ToolChoice

__all__ = [
    "COMPACTION_TYPES",
    "SUMMARY_PROMPT",
    "compaction_item",
    "kept_messages",
    "read_summary",
    "summary_request",
    "summary_text",
]

COMPACTION_TYPES = ("compaction", "compaction_summary", "context_compaction")

SUMMARY_PROMPT = """\
Stop working on the task now and write a hand-over note about this conversation. The note replaces everything above: \
whoever continues sees only the note and the user's messages. Do not call tools. State, briefly and exactly:
1. what the user wants, with every constraint and preference they gave;
2. what has been done and found so far: files read or changed, commands and their results, decisions and why;
3. what is still open, and the very next step;
4. names, paths, identifiers, numbers and short code that will be needed again, verbatim.
Answer with the note alone."""

_SUMMARY_HEAD = "The earlier part of this conversation was replaced by this hand-over note:\n\n"
_MAGIC = "twc1."
_MAX_SUMMARY = 4 * 1024 * 1024
_KEPT_BYTES = 64 * 1024


def summary_request(conversation: Conversation) -> Conversation:
    """The turn that summarises a conversation. Everything before its last message is left as it was, tools included,
    so the engine's prefix cache serves the whole history."""
    ask = Message(role="user", blocks=(TextBlock(text=SUMMARY_PROMPT),))
    return msgspec.structs.replace(
        conversation,
        messages=(*conversation.messages, ask),
        tool_choice=ToolChoice(mode="none"),
        format=None,
        context=msgspec.structs.replace(conversation.context, turn_class="compaction"),
    )


def compaction_item(item_id: str, summary: str) -> dict[str, Any]:
    """The item that carries a summary."""
    packed = zlib.compress(summary.encode(), 6)
    return {
        "id": item_id,
        "type": "compaction",
        "encrypted_content": _MAGIC + base64.urlsafe_b64encode(packed).decode(),
    }


def read_summary(carried: str) -> str | None:
    """The summary in a compaction item's `encrypted_content`, or None where it is not ours or is damaged."""
    if not carried.startswith(_MAGIC):
        return None
    try:
        packed = base64.b64decode(carried[len(_MAGIC) :], altchars=b"-_", validate=True)
        reader = zlib.decompressobj()
        text = reader.decompress(packed, _MAX_SUMMARY)
        return text.decode() if reader.eof else None
    except (binascii.Error, zlib.error, ValueError):
        return None


def summary_text(summary: str) -> str:
    """How a summary is shown to the model."""
    return _SUMMARY_HEAD + summary


def kept_messages(items: Sequence[Any]) -> list[dict[str, Any]]:
    """The user's own messages that stay beside the summary in a compacted conversation: the latest, within bounds."""
    kept: list[dict[str, Any]] = []
    budget = _KEPT_BYTES
    for item in reversed(items):
        if isinstance(item, dict) and item.get("type", "message") == "message" and item.get("role") == "user":
            budget -= len(msgspec.json.encode(item))
            if budget < 0:
                break
            kept.append(item)
    kept.reverse()
    return kept
