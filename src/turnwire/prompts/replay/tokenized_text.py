"""Parts of a prompt: text that was tokenized once, and a bounded cache of it.

Promise: the same text always has the same ids, so prompts that share parts share tokens; the cache is bounded and may
be shared by threads.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from turnwire.prompts.prompt import Section, Tokenizer
from turnwire.token_ids import TokenIds
from turnwire.turns import Note

__all__ = ["Label", "TokenizedText", "TokenizedTextCache", "sections_of", "tokenized"]

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


def tokenized(
    tokenizer: Tokenizer,
    text: str,
    labels: Sequence[Label],
    literal: Sequence[tuple[int, int]] = (),
    *,
    at: int = 0,
    before: int = 0,
) -> tuple[list[int], list[int]]:
    """The ids of `text[at:]`, and for each label from there on how many tokens come before it, `before` of them before
    `at`. The spans `literal` stay text whatever they spell. The text is cut where labels start at a token that allows
    it; the count of any other label may be off by a token."""

    def encoded(start: int, end: int) -> list[int]:
        part = text[start:end]
        inside = [(max(a, start) - start, min(b, end) - start) for a, b in literal if a < end and start < b]
        return tokenizer.encode_literal(part, inside) if inside else tokenizer.encode(part)

    ids: list[int] = []
    starts: list[int] = []
    cut = at
    counted, counted_at = 0, at
    for label in labels:
        if label.start > cut and tokenizer.may_cut(text, label.start):
            ids += encoded(cut, label.start)
            cut = label.start
            counted, counted_at = len(ids), cut
        elif label.start > counted_at:
            counted += len(encoded(counted_at, label.start))
            counted_at = label.start
        starts.append(before + counted)
    ids += encoded(cut, len(text))
    total = before + len(ids)
    return ids, [min(start, total) for start in starts]


def sections_of(labels: Sequence[Label], starts: Sequence[int], total: int) -> tuple[Section, ...]:
    """The sections that labels make of `total` tokens. Where a label starts inside a token, its section starts at the
    next one."""
    ends = [*starts[1:], total]
    return tuple(
        Section(label.kind, label.index, start, end)  # type: ignore[arg-type]
        for label, start, end in zip(labels, starts, ends, strict=True)
        if end > start
    )
