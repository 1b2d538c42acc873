"""A captured turn as a page shows it: its prompt token by token beside the turn it was compared with.

Promise: what is shown is what was captured, cut to a bounded size; where something was cut the numbers say so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from turnwire.capture.format import CapturedTurn, TokenStep
from turnwire.capture.reading import Capture

__all__ = ["page_data", "turn_view"]

_MOST_TOKENS = 20_000
_MOST_FRAMES = 2_000
_AROUND = 12

Spell = Callable[[str, Sequence[int]], list[str]]


def turn_view(turn: CapturedTurn, before: CapturedTurn | None, spell: Spell) -> dict[str, Any]:
    """The turn for people. `before` is the turn that its prompt was compared with, where that is known."""
    ids, model = turn.prompt.ids, turn.model
    cut = max(len(ids) - _MOST_TOKENS, 0)
    shown = {
        "turn_id": turn.turn_id,
        "sections": [list(section) for section in turn.prompt.sections],
        "prompt": {"size": len(ids), "cut": cut, "from": cut, "pieces": spell(model, ids[cut:])},
        "output": {
            "pieces": spell(model, turn.output_ids[:_MOST_TOKENS]),
            "batches": [[step.at, len(step.ids)] for step in turn.steps if isinstance(step, TokenStep)][:_MOST_FRAMES],
            "text": turn.text[: 4 * _MOST_TOKENS],
        },
        "blocks": [
            {"kind": block.kind, "text": block.text, "name": block.name, "arguments": block.arguments}
            for block in turn.blocks
        ],
        "wire": [[at, text] for at, text in turn.answer[:_MOST_FRAMES]],
        "request": turn.request.body[:200_000],
        "redacted": turn.redacted,
        "difference": None,
    }
    shared = int(turn.verdict.get("shared", 0))
    if before is not None and turn.verdict.get("state") == "broken":
        earlier = [*before.prompt.ids, *before.output_ids]
        start = max(shared - _AROUND, 0)
        shown["difference"] = {
            "at": shared,
            "same": spell(model, ids[start:shared]),
            "before": spell(model, earlier[shared : shared + 2 * _AROUND]),
            "now": spell(model, ids[shared : shared + 2 * _AROUND]),
        }
    return shown


def page_data(capture: Capture, turns: Sequence[CapturedTurn]) -> dict[str, Any]:
    """Everything that the console asks a gateway for, from a capture."""
    known = {turn.turn_id: turn for turn in capture.turns}
    views = {
        turn.turn_id: turn_view(turn, known.get(str(turn.verdict.get("turn", ""))), capture.spell) for turn in turns
    }
    return {
        "turns": [turn.summary for turn in reversed(turns)],
        "payloads": views,
        "head": {"turnwire": capture.head.turnwire, "started": capture.head.started},
    }
