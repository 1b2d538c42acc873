"""Where a replayed turn differs from the captured one.

Promise: the first difference of ids and of text is exact, and shown with its surroundings. Masked ids stand for any
number of ids, at least one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from turnwire.capture.format import MASKED, ParsedBlock

__all__ = ["Difference", "Stage", "blocks_differ", "ids_differ", "text_differs"]

Stage: TypeAlias = Literal["decode", "prompt", "output", "parse", "answer", "end"]
_AROUND = 8
_AROUND_TEXT = 60
_NUMBER = re.compile(r"\d+")


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """`captured` and `replayed` are what was there on each side, from token or character `at` on."""

    turn_id: str
    stage: Stage
    at: int
    captured: str
    replayed: str

    def __str__(self) -> str:
        return (
            f"turn {self.turn_id}: {self.stage} differs at {self.at}\n    captured {self.captured}\n"
            f"    replayed {self.replayed}"
        )


def ids_differ(turn_id: str, stage: Stage, captured: Sequence[int], replayed: Sequence[int]) -> Difference | None:
    """The first difference of two lists of ids."""
    runs = _runs(captured)
    place = 0
    for number, (start, run) in enumerate(runs):
        if number == 0:
            found = 0 if list(replayed[: len(run)]) == run else -1
        elif number == len(runs) - 1 and run:
            found = len(replayed) - len(run)
            found = found if found > place and list(replayed[found:]) == run else -1
        else:
            found = _find(replayed, run, place + 1)
        if found < 0:
            at = _parting(captured[start:], replayed[place:]) if len(runs) == 1 else place
            return _ids(turn_id, stage, captured, replayed, start + at if len(runs) == 1 else at)
        place = found + len(run)
    if place != len(replayed) and not (captured and captured[-1] == MASKED):
        return _ids(turn_id, stage, captured, replayed, place)
    return None


def _runs(ids: Sequence[int]) -> list[tuple[int, list[int]]]:
    """The runs between masked ids, each with where it starts."""
    if MASKED not in ids:
        return [(0, list(ids))]
    runs: list[tuple[int, list[int]]] = [(0, [])]
    masked = False
    for place, token in enumerate(ids):
        if token == MASKED:
            masked = True
        elif masked:
            runs.append((place, [token]))
            masked = False
        else:
            runs[-1][1].append(token)
    return [*runs, (len(ids), [])] if masked else runs


def _find(ids: Sequence[int], run: list[int], start: int) -> int:
    if not run:
        return start
    for place in range(start, len(ids) - len(run) + 1):
        if ids[place] == run[0] and list(ids[place : place + len(run)]) == run:
            return place
    return -1


def _parting(one: Sequence[int], other: Sequence[int]) -> int:
    for place, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return place
    return min(len(one), len(other))


def _ids(turn_id: str, stage: Stage, captured: Sequence[int], replayed: Sequence[int], at: int) -> Difference:
    start = max(at - _AROUND, 0)
    return Difference(
        turn_id=turn_id,
        stage=stage,
        at=at,
        captured=f"{list(captured[start : at + _AROUND])} of {len(captured)}",
        replayed=f"{list(replayed[start : at + _AROUND])} of {len(replayed)}",
    )


def text_differs(
    turn_id: str, stage: Stage, captured: str, replayed: str, *, numbers: bool = True
) -> Difference | None:
    """The first difference of two texts. Without `numbers`, all numbers are equal: a redacted prompt has others."""
    if not numbers:
        captured, replayed = _NUMBER.sub("0", captured), _NUMBER.sub("0", replayed)
    if captured == replayed:
        return None
    low, high = 0, min(len(captured), len(replayed))
    while low < high:
        middle = (low + high + 1) // 2
        if captured[:middle] == replayed[:middle]:
            low = middle
        else:
            high = middle - 1
    start = max(low - _AROUND_TEXT, 0)
    return Difference(
        turn_id=turn_id,
        stage=stage,
        at=low,
        captured=repr(captured[start : low + _AROUND_TEXT]),
        replayed=repr(replayed[start : low + _AROUND_TEXT]),
    )


def blocks_differ(turn_id: str, expected: Sequence[ParsedBlock], parsed: Sequence[ParsedBlock]) -> Difference | None:
    """The first block that was not parsed as expected."""
    for place in range(max(len(expected), len(parsed))):
        want = expected[place] if place < len(expected) else None
        have = parsed[place] if place < len(parsed) else None
        if want != have:
            return Difference(turn_id=turn_id, stage="parse", at=place, captured=repr(want), replayed=repr(have))
    return None
