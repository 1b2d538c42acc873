"""Embeddings without a model: a text's words, hashed into the places of a short vector.

Promise: a stand-in for the scripted engine only, so that clients which search by embeddings can be tested. Equal texts
have equal vectors, on every machine; texts that share words are near each other; it knows nothing of meaning.
"""

from __future__ import annotations

import hashlib
import math
import re

__all__ = ["hashed_words"]

_WORD = re.compile(r"\w+")
_SIZE = 1024


def hashed_words(text: str) -> list[float]:
    """A unit vector. Frequent short words count less, as their length tells."""
    vector = [0.0] * _SIZE
    for word in _WORD.findall(text.casefold()):
        stem = word[:-1] if len(word) > 3 and word.endswith("s") else word
        digest = int.from_bytes(hashlib.blake2b(stem.encode(), digest_size=4).digest(), "big")
        vector[digest % _SIZE] += (1.0 if digest & 0x80000000 else -1.0) * min(len(stem), 8)
    length = math.sqrt(sum(value * value for value in vector))
    return [value / length for value in vector] if length else [1.0, *vector[1:]]
