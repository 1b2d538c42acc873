"""Parts of a prompt: text that was tokenized once, and a bounded cache of it.

Promise: the same text always has the same ids, so prompts that share parts share tokens; the cache is bounded and may
be shared by threads.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from itertools import accumulate

import msgspec

from turnwire.prompts.prompt import Section, Tokenizer
from turnwire.token_ids import TokenIds
from turnwire.turns import Note

__all__ = ["Label", "LiteralSpans", "TokenizedText", "TokenizedTextCache", "sections_of", "tokenized"]

_OVERHEAD = 256


class Label(msgspec.Struct, frozen=True, gc=False):
    """From character `start` on, a piece's text is this part of the conversation."""

    kind: str
    index: int
    start: int


class TokenizedText(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Tokenized text; `sections` count from the piece's own start. `tail` is its generation header, None where it was
    not looked for; `notes` say what its rendering had to leave out."""

    ids: TokenIds
    sections: tuple[Section, ...]
    tail: str | None = None
    notes: tuple[Note, ...] = ()


class TokenizedTextCache:
    """The pieces used last, up to a number of tokens in all."""

    def __init__(self, max_tokens: int = 4_000_000) -> None:
        self._max = max_tokens
        self._held: OrderedDict[bytes, TokenizedText] = OrderedDict()
        self._total = 0
        self._lock = threading.Lock()

    def get(self, key: bytes) -> TokenizedText | None:
        with self._lock:
            piece = self._held.get(key)
            if piece is not None:
                self._held.move_to_end(key)
            return piece

    def put(self, key: bytes, piece: TokenizedText) -> None:
        with self._lock:
            before = self._held.pop(key, None)
            if before is not None:
                self._total -= len(before.ids) + _OVERHEAD
            self._held[key] = piece
            self._total += len(piece.ids) + _OVERHEAD
            while self._total > self._max and len(self._held) > 1:
                self._total -= len(self._held.popitem(last=False)[1].ids) + _OVERHEAD

    def __len__(self) -> int:
        return len(self._held)


class LiteralSpans:
    """Ascending spans of a text that stay text whatever they spell."""

    __slots__ = ("_longest", "spans")

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        self.spans = spans
        self._longest = max((last - first for first, last in spans), default=0)

    def within(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of them between two places, counted from the first place."""
        if not self.spans:
            return []
        low, high = bisect_left(self.spans, (start - self._longest, 0)), bisect_left(self.spans, (end, 0))
        return [
            (max(first, start) - start, min(last, end) - start) for first, last in self.spans[low:high] if start < last
        ]

    def allow_cut(self, tokenizer: Tokenizer, text: str, at: int) -> bool:
        """Whether the text can be cut at `at`: a control token begins there, outside every span."""
        return tokenizer.may_cut(text, at) and not self.within(at, at + 1)


def tokenized(
    tokenizer: Tokenizer,
    text: str,
    labels: Sequence[Label],
    literal: Sequence[tuple[int, int]] = (),
    *,
    at: int = 0,
    end: int | None = None,
    before: int = 0,
) -> tuple[list[int], list[int]]:
    """The ids of `text[at:end]`, and for each label from there on how many tokens come before it, `before` of them
    before `at`. The spans `literal` stay text whatever they spell. The text is cut where labels start at a token that
    allows it, as it must at `end`; the count of any other label may be off by a token."""

    end = len(text) if end is None else end
    spans = LiteralSpans(literal)

    def encoded(start: int, end: int) -> list[int]:
        part, inside = text[start:end], spans.within(start, end)
        return tokenizer.encode_literal(part, inside) if inside else tokenizer.encode(part)

    ids: list[int] = []
    starts: list[int] = []
    cut = at
    counted, counted_at = 0, at
    for label in labels:
        if label.start > cut and spans.allow_cut(tokenizer, text, label.start):
            ids += encoded(cut, label.start)
            cut = label.start
            counted, counted_at = len(ids), cut
        elif label.start > counted_at:
            counted += len(encoded(counted_at, label.start))
            counted_at = label.start
        starts.append(before + counted)
    if cut < end:
        ids += encoded(cut, end)
    total = before + len(ids)
    # A count that is off by a token is lowered to the next one; those at cuts are exact, and stay.
    return ids, list(accumulate(reversed(starts), min, initial=total))[:0:-1]


def sections_of(labels: Sequence[Label], starts: Sequence[int], total: int) -> tuple[Section, ...]:
    """The sections that labels make of `total` tokens. Where a label starts inside a token, its section starts at the
    next one."""
    ends = [*starts[1:], total]
    return tuple(
        Section(label.kind, label.index, start, end)  # type: ignore[arg-type]
        for label, start, end in zip(labels, starts, ends, strict=True)
        if end > start
    )
