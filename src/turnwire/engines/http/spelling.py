"""Text for engines that give token ids only: our own tokenizer spells them, our own eyes find the stop strings.

Promise: the text is what the given ids spell, special tokens included; it never ends inside a code point; nothing of a
stop string that came true is in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from turnwire.engines.http.stops import StopFinder
from turnwire.engines.vocabulary import Vocabulary

__all__ = ["Speller", "SpellingTokenizer"]


class _Detokenizer(Protocol):
    def feed(self, ids: Sequence[int]) -> str: ...

    def flush(self) -> str: ...


class SpellingTokenizer(Vocabulary, Protocol):
    """The part of a tokenizer that spelling needs."""

    def detokenizer(self, *, skip_special: bool = False) -> _Detokenizer: ...


class Speller:
    """Spells one generation. `stopped_by` is set once a stop string was met."""

    __slots__ = ("_detokenizer", "_finder")

    def __init__(self, tokenizer: SpellingTokenizer, stops: Sequence[str]) -> None:
        self._detokenizer = tokenizer.detokenizer()
        self._finder = StopFinder(stops) if any(stops) else None

    @property
    def plain(self) -> bool:
        """Whether no stop string is looked for."""
        return self._finder is None

    @property
    def stopped_by(self) -> str | None:
        return self._finder.found if self._finder is not None else None

    def feed(self, ids: Sequence[int]) -> tuple[str, int]:
        """The text that became certain, and how many of `ids` were taken: all, or those up to the one that completed a
        stop string."""
        finder = self._finder
        if finder is None:
            return self._detokenizer.feed(ids), len(ids)
        parts = []
        for taken, token in enumerate(ids, 1):
            parts.append(finder.feed(self._detokenizer.feed((token,))))
            if finder.found is not None:
                return "".join(parts), taken
        return "".join(parts), len(ids)

    def flush(self) -> str:
        """What was held back, now that no token follows."""
        rest = self._detokenizer.flush()
        if self._finder is None:
            return rest
        if self._finder.found is not None:
            return ""
        certain = self._finder.feed(rest)
        return certain if self._finder.found is not None else certain + self._finder.flush()
