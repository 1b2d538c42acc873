"""Tokenizes only what is new: a cache of text parts, cut where a cut cannot change a token.

Promise: exact. `encode` gives the ids of tokenizing the whole text, always; when a text extends an earlier one, only
the part after the last cut is tokenized. Memory is bounded; several threads may share one.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from threading import Lock
from typing import Protocol

import msgspec

from turnwire.prompts.prompt import Detokenizer, Tokenizer
from turnwire.prompts.size import Density
from turnwire.prompts.tokenizers.facts import Cuts
from turnwire.prompts.tokenizers.literals import Markers, encode_around

__all__ = ["CacheFigures", "CuttableTokenizer", "PrefixTokenizer"]

# Parts are cut again when they are longer than this, so that a text which grows at its end is mostly found again.
_LONG = 4096
# What is not longer than this is tokenized by a fast encoder in less time than its parts are looked up.
_SHORT = 1024
_LETTER_BLANK = re.compile("[A-Za-z] ")
_ENTRY_OVERHEAD = 200


class CuttableTokenizer(Tokenizer, Protocol):
    """A tokenizer that knows where its texts may be cut."""

    def encode_many(self, texts: list[str]) -> list[list[int]]: ...

    def encode_plain(self, text: str, first: bool) -> list[int]: ...

    @property
    def cuts(self) -> Cuts: ...

    @property
    def markers(self) -> Markers: ...

    @property
    def density(self) -> Density | None: ...


class CacheFigures(msgspec.Struct, frozen=True):
    """What the cache did: characters found and characters tokenized, and the bytes it holds now."""

    found: int
    tokenized: int
    bytes: int
    entries: int


class PrefixTokenizer:
    """A tokenizer around another one that remembers the ids of text parts, least recently used first out."""

    def __init__(self, inner: CuttableTokenizer, *, max_bytes: int = 64 * 1024 * 1024) -> None:
        if max_bytes <= 0:
            raise ValueError("max_bytes must be positive")
        self._inner = inner
        self.may_cut = inner.may_cut
        self._max_bytes = max_bytes
        self._cuts = inner.cuts
        self._direct: bool = getattr(inner, "fast", False)
        # A marker put before every part that does not come first, where the tokenizer tells the two apart. A first
        # part never starts with it: it would have been cut there.
        self._anchor = _anchor(self._cuts.clean, inner.special_tokens) if self._cuts.first_differs else ""
        self._known: OrderedDict[str, array[int]] = OrderedDict()
        self._bytes = 0
        self._found = 0
        self._tokenized = 0
        self._lock = Lock()

    def encode(self, text: str) -> list[int]:
        if self._direct and len(text) <= _SHORT:
            return self._inner.encode(text)
        parts = self._parts(text)
        ids: list[int] = []
        places: list[array[int] | int | None] = []
        missing: dict[str, None] = {}
        clean = self._cuts.clean
        with self._lock:
            known = self._known
            for part in parts:
                marker = clean.get(part)
                if marker is not None:
                    places.append(marker)
                    continue
                found = known.get(part)
                if found is None:
                    missing[part] = None
                    self._tokenized += len(part)
                else:
                    known.move_to_end(part)
                    self._found += len(part)
                places.append(found)
        new = self._tokenize(list(missing)) if missing else {}
        for part, place in zip(parts, places, strict=True):
            if place is None:
                ids.extend(new[part])
            elif isinstance(place, int):
                ids.append(place)
            else:
                ids.extend(place)
        return ids

    def encode_literal(self, text: str, literal: Sequence[tuple[int, int]]) -> list[int]:
        return encode_around(text, literal, self._inner.markers, self.encode, self._inner.encode_plain)

    def decode(self, ids: Sequence[int], *, skip_special: bool = False) -> str:
        return self._inner.decode(ids, skip_special=skip_special)

    def detokenizer(self, *, skip_special: bool = False) -> Detokenizer:
        return self._inner.detokenizer(skip_special=skip_special)

    @property
    def special_tokens(self) -> dict[str, int]:
        return self._inner.special_tokens

    @property
    def density(self) -> Density | None:
        return self._inner.density

    @property
    def control_tokens(self) -> dict[str, int]:
        return self._inner.control_tokens

    @property
    def vocab_size(self) -> int:
        return self._inner.vocab_size

    @property
    def figures(self) -> CacheFigures:
        with self._lock:
            return CacheFigures(self._found, self._tokenized, self._bytes, len(self._known))

    def _parts(self, text: str) -> list[str]:
        """The text in parts whose tokens are independent of each other, the markers among them."""
        markers = self._cuts.markers
        if self._cuts.first_differs and not self._anchor:
            return [text] if text else []
        whole = [text] if markers is None else self._at_clean_markers(markers.split(text))
        if self._anchor:
            clean = self._cuts.clean
            return [whole[0], *(part if part in clean or not part else self._anchor + part for part in whole[1:])]
        if not self._cuts.after_letter or len(text) <= _LONG:
            return [part for part in whole if part]
        parts: list[str] = []
        for part in whole:
            if len(part) <= _LONG:
                if part:
                    parts.append(part)
                continue
            start = 0
            while len(part) - start > _LONG:
                cut = _LETTER_BLANK.search(part, start + _LONG // 2)
                if cut is None:
                    break
                parts.append(part[start : cut.start() + 1])
                start = cut.start() + 1
            parts.append(part[start:])
        return parts

    def _at_clean_markers(self, pieces: list[str]) -> list[str]:
        """What a split at markers gave (text, marker, text, ...) with the text around unclean markers joined again:
        those may take blanks with them, so a cut beside them is not safe."""
        clean = self._cuts.clean
        if all(piece in clean for piece in pieces[1::2]):
            return pieces
        joined = [pieces[0]]
        for marker, after in zip(pieces[1::2], pieces[2::2], strict=True):
            if marker in clean:
                joined += (marker, after)
            else:
                joined[-1] += marker + after
        return joined

    def _tokenize(self, parts: list[str]) -> dict[str, list[int]]:
        anchor = self._anchor
        found: dict[str, list[int]] = {}
        for part, fresh in zip(parts, self._inner.encode_many(parts), strict=True):
            found[part] = fresh[1:] if anchor and part.startswith(anchor) else fresh
        with self._lock:
            for part, fresh in found.items():
                if part not in self._known:
                    ids = self._known[part] = array("I", fresh)
                    self._bytes += _size(part, ids)
            while self._bytes > self._max_bytes:
                part, ids = self._known.popitem(last=False)
                self._bytes -= _size(part, ids)
        return found


def _anchor(clean: Iterable[str], added: Iterable[str]) -> str:
    """A clean marker that is the beginning of no other added token: whatever is put behind it, it is read as itself.
    Empty where there is none."""
    begins = {one for one, following in pairwise(sorted(added)) if following.startswith(one)}
    return next((marker for marker in clean if marker not in begins), "")


def _size(part: str, ids: array[int]) -> int:
    return sys.getsizeof(part) + 4 * len(ids) + _ENTRY_OVERHEAD
