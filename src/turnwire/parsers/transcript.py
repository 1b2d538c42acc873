"""A parse as a value: the ordered blocks of a turn with the raw text after each, and the notes.

Promise: joining the `raw` of all blocks gives the model's output back, character for character.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from turnwire.turns import BlockClosed, BlockDelta, BlockOpened, Event, Finished, Note, ToolCallClosed

__all__ = ["Transcript", "TranscriptBlock", "transcribe"]


class TranscriptBlock(msgspec.Struct):
    """One block. A call that must not be run (cut off, or arguments that are not JSON) is a `malformed_call`."""

    type: Literal["reasoning", "text", "tool_call", "malformed_call"]
    text: str | None = None
    name: str | None = None
    arguments: str | None = None
    id: str | None = None
    raw: str = ""


class Transcript(msgspec.Struct):
    """A whole turn."""

    blocks: list[TranscriptBlock]
    notes: list[Note]
    finish: str | None = None


def transcribe(events: Iterable[Event]) -> Transcript:
    """Fold a turn's events. Raw text that belongs to no block goes to its nearest neighbour."""
    turn = Transcript([], [])
    by_index: dict[int, TranscriptBlock] = {}
    texts: dict[int, list[str]] = {}
    raws: list[list[str]] = []
    waiting: list[str] = []
    for event in events:
        raw = getattr(event, "raw", "")
        if isinstance(event, BlockOpened):
            block = by_index[event.index] = TranscriptBlock(event.kind)
            turn.blocks.append(block)
            raws.append(waiting)
            waiting = []
            texts[event.index] = []
            if event.kind == "tool_call":
                block.name, block.id = event.name, event.call_id or None
        elif isinstance(event, BlockDelta):
            texts[event.index].append(event.text)
        elif isinstance(event, BlockClosed):
            by_index[event.index].text = "".join(texts[event.index])
        elif isinstance(event, ToolCallClosed):
            block = by_index[event.index]
            block.arguments = event.arguments
            if event.malformed:
                block.type = "malformed_call"
        elif isinstance(event, Note):
            turn.notes.append(event)
        elif isinstance(event, Finished):
            turn.finish = event.reason
        if raw:
            (raws[-1] if raws else waiting).append(raw)
    for block, pieces in zip(turn.blocks, raws, strict=True):
        block.raw = "".join(pieces)
    return turn
