"""How many tokens of a turn its thoughts took.

Promise: a token counts once if any of its characters belongs to a thought or to the marks around it. Only the batches
in which a thought begins or ends are spelled token by token.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from turnwire.prompts.prompt import Tokenizer

__all__ = ["thought_tokens"]


def thought_tokens(
    spans: Sequence[tuple[int, int]],
    texts: Sequence[str],
    sizes: Sequence[int],
    ids: Sequence[int],
    tokenizer: Tokenizer,
) -> int:
    """Tokens within the spans of characters. `texts` and `sizes` are the text and the number of ids of each batch,
    `ids` are those of all batches."""
    if not spans or not ids:
        return 0
    characters = [0, *accumulate(map(len, texts))]
    tokens = [0, *accumulate(sizes)]

    def place(at: int, *, within: bool) -> int:
        """How many tokens begin (`within`: end) before a character."""
        batch = min(bisect_right(characters, at) - 1, len(texts))
        if characters[batch] == at or batch == len(texts):
            return tokens[batch]
        spell, end, count = tokenizer.detokenizer().feed, characters[batch], tokens[batch]
        for token in ids[tokens[batch] : tokens[batch + 1]]:
            begin, end = end, end + len(spell((token,)))
            if begin >= at or (within and end > at):
                break
            count += 1
        return count

    return sum(place(end, within=False) - place(start, within=True) for start, end in spans)
