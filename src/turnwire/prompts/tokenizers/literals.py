"""Tokenizes text in which some spellings of special tokens are content and have to stay text.

Promise: outside the stretches that hold such a spelling the ids are those of the whole text; inside there is no control
token. A stretch reaches from one special token that is really meant to the next, since tokenizers treat the text
between two of them by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec

__all__ = ["Markers", "encode_around"]


class Markers(msgspec.Struct, frozen=True, kw_only=True):
    """The added tokens of a tokenizer. `expression` finds any of them; `takes_before` and `takes_after` are those that
    take the blanks beside them along."""

    expression: re.Pattern[str] | None
    takes_before: frozenset[str] = frozenset()
    takes_after: frozenset[str] = frozenset()


def encode_around(
    text: str,
    literal: Sequence[tuple[int, int]],
    markers: Markers,
    encode: Callable[[str], list[int]],
    plain: Callable[[str, bool], list[int]],
) -> list[int]:
    """The ids of `text`, in which the ascending spans `literal` are ordinary characters. `encode` reads text with its
    special tokens, `plain` without any; its second argument says whether the stretch begins the text."""
    ids: list[int] = []
    at = 0
    for start, end in _stretches(text, literal, markers):
        if start > at:
            ids += encode(text[at:start])
        ids += plain(text[start:end], start == 0)
        at = end
    if at < len(text):
        ids += encode(text[at:])
    return ids


def _stretches(text: str, literal: Sequence[tuple[int, int]], markers: Markers) -> list[tuple[int, int]]:
    """The stretches between meant markers that hold literal spans."""
    spans = _merged(literal)
    found: list[tuple[int, int]] = []
    meant = _meant(text, spans, markers)
    place = 0
    for before, after in pairwise([None, *meant, None]):
        start = before.end() if before is not None else 0
        end = after.start() if after is not None else len(text)
        held = False
        while place < len(spans) and spans[place][0] < end:
            held = True
            place += 1
        if not held:
            continue
        if before is not None and before[0] in markers.takes_after:
            start = end - len(text[start:end].lstrip())
        if after is not None and after[0] in markers.takes_before:
            end = start + len(text[start:end].rstrip())
        found.append((start, end))
    return found


def _merged(literal: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in literal:
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _meant(text: str, spans: Sequence[tuple[int, int]], markers: Markers) -> list[re.Match[str]]:
    """The markers in `text` that lie on none of the spans."""
    found: list[re.Match[str]] = []
    at, place = 0, 0
    while markers.expression is not None and (match := markers.expression.search(text, at)) is not None:
        while place < len(spans) and spans[place][1] <= match.start():
            place += 1
        if place < len(spans) and spans[place][0] < match.end():
            at = match.start() + 1
        else:
            found.append(match)
            at = match.end()
    return found
