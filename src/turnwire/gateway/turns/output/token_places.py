"""Where characters of a turn's output lie among its tokens.

Promise: only the batches in which a place lies are spelled.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from turnwire.prompts.prompt import Tokenizer
from turnwire.prompts.recall.recall import ids_within

__all__ = ["TokenPlaces", "thought_tokens"]


class TokenPlaces:
    """The tokens of an output by characters. `lengths` and `sizes` are the number of characters and of ids of each
    batch, `ids` are those of all batches."""

    def __init__(self, lengths: Sequence[int], sizes: Sequence[int], ids: Sequence[int], tokenizer: Tokenizer) -> None:
        self._characters = [0, *accumulate(lengths)]
        self._tokens = [0, *accumulate(sizes)]
        self._ids = ids
        self._tokenizer = tokenizer

    def before(self, at: int, *, within: bool) -> int:
        """How many tokens begin (`within`: end) before a character."""
        characters, tokens = self._characters, self._tokens
        last = len(characters) - 1
        batch = min(bisect_right(characters, at) - 1, last)
        if characters[batch] == at or batch == last:
            return tokens[batch]
        inside, at = self._ids[tokens[batch] : tokens[batch + 1]], at - characters[batch]
        if within:
            return tokens[batch] + ids_within(self._tokenizer, inside, at)
        return tokens[batch] + min(ids_within(self._tokenizer, inside, at - 1) + 1, len(inside))


def thought_tokens(
    spans: Sequence[tuple[int, int]],
    lengths: Sequence[int],
    sizes: Sequence[int],
    ids: Sequence[int],
    tokenizer: Tokenizer,
) -> int:
    """How many tokens a turn's thoughts took, by their spans of characters. A token counts once if any of its
    characters belongs to a thought or to the marks around it."""
    if not spans or not ids:
        return 0
    places = TokenPlaces(lengths, sizes, ids, tokenizer)
    return sum(places.before(end, within=False) - places.before(start, within=True) for start, end in spans)
