"""The smallest part of a capture that shows one turn.

Promise: the turn, and of the others only those that its prompt recalls, without the bytes that were sent for them
except their seals. Replaying the bundle gives the turn the same prompt and the same answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from turnwire.capture.format import CapturedTurn, Line, ParsedBlock
from turnwire.capture.reading import Capture

__all__ = ["bundle", "recalled_by"]

_SEAL = re.compile(r"tw1\.[A-Za-z0-9_-]+")
_MAC = 48


def recalled_by(capture: Capture, turn: CapturedTurn) -> list[CapturedTurn]:
    """The turns that this one's request may bring back: by a seal, by a call's id, by a response's id, or because its
    prompt begins with what they wrote."""
    body, ids = turn.request.body, turn.prompt.ids
    found = []
    for other in capture.turns:
        if other.at >= turn.at or other.tenant != turn.tenant or other.model != turn.model:
            continue
        seals = {seal[-_MAC:] for seal in _SEAL.findall(other.answered)}
        said = [*other.prompt.ids, *other.output_ids]
        if (
            any(seal in body for seal in seals)
            or any(call in body for call in other.call_ids)
            or other.turn_id in body
            or (other.output_ids and ids[: len(said)] == said)
        ):
            found.append(other)
    return found


def bundle(capture: Capture, turn: CapturedTurn, expected: Sequence[ParsedBlock] | None = None) -> Iterator[Line]:
    """The lines of the bundle. With `expected`, replaying it checks what the output is parsed into."""
    model = capture.models[turn.model]
    yield msgspec.structs.replace(capture.head, models=(model,))
    needed: dict[str, CapturedTurn] = {}
    waiting = recalled_by(capture, turn)
    while waiting:
        one = waiting.pop()
        if one.turn_id not in needed:
            needed[one.turn_id] = one
            waiting += recalled_by(capture, one)
    for one in sorted(needed.values(), key=lambda each: each.at):
        yield _memory(one)
    words = dict(zip(turn.prompt.ids, capture.spell(turn.model, turn.prompt.ids), strict=True))
    words |= dict(zip(turn.output_ids, capture.spell(turn.model, turn.output_ids), strict=True))
    yield msgspec.structs.replace(
        turn, spelled=words, expected=None if expected is None else tuple(expected), memory=False
    )


def _memory(turn: CapturedTurn) -> CapturedTurn:
    """A turn of which only what can be recalled counts."""
    seals = "".join(f"{seal}\n" for seal in dict.fromkeys(_SEAL.findall(turn.answered)))
    return msgspec.structs.replace(
        turn, memory=True, answer=((turn.seconds, seals),) if seals else (), summary={}, spelled={}, blocks=()
    )
