"""Parts of a prompt: text that was tokenized once, and a bounded cache of it.

Promise: the same text always has the same ids, so prompts that share parts share tokens; the cache is bounded and may
be shared by threads.
"""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from turnwire.prompts.prompt import Section, Tokenizer
from turnwire.turns import Note

__all__ = ["Label", "TokenizedText", "TokenizedTextCache", "tokenized"]

_OVERHEAD = 256


class Label(msgspec.Struct, frozen=True, gc=False):
    """From character `start` on, a piece's text is this part of the conversation."""

    kind: str
    index: int
    start: int


class TokenizedText(msgspec.Struct, frozen=True, kw_only=True):
    """Tokenized text; `sections` count from the piece's own start. `tail` is its generation header,
    None where it was not looked for; `notes` say what its rendering had to leave out."""

    ids: array[int]
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
    tail: str | None = None,
    notes: tuple[Note, ...] = (),
    literal: Sequence[tuple[int, int]] = (),
) -> TokenizedText:
    """A piece from text, of which the spans `literal` stay text whatever they spell. Where a label starts inside a
    token, its section starts at the next one."""
    ids = tokenizer.encode_literal(text, literal) if literal else tokenizer.encode(text)
    starts = _offsets(tokenizer, text, [label.start for label in labels], len(ids), literal)
    ends = [*starts[1:], len(ids)]
    sections = tuple(
        Section(label.kind, label.index, start, end)  # type: ignore[arg-type]
        for label, start, end in zip(labels, starts, ends, strict=True)
        if end > start
    )
    return TokenizedText(ids=array("I", ids), sections=sections, tail=tail, notes=notes)


def _offsets(
    tokenizer: Tokenizer, text: str, positions: Sequence[int], total: int, literal: Sequence[tuple[int, int]]
) -> list[int]:
    """How many tokens come before each position. Where a special token starts there the count is exact; in between it
    may be off by a token for each position since."""

    def count(start: int, end: int) -> int:
        inside = [(max(a, start) - start, min(b, end) - start) for a, b in literal if a < end and start < b]
        part = text[start:end]
        return len(tokenizer.encode_literal(part, inside) if inside else tokenizer.encode(part))

    special = tuple(tokenizer.special_tokens)
    exact, exact_at = 0, 0
    counted, before = 0, 0
    found: list[int] = []
    for position in positions:
        if text.startswith(special, position):
            exact += count(exact_at, position)
            counted, exact_at = exact, position
        else:
            counted += count(before, position)
        before = position
        found.append(min(counted, total))
    return found
