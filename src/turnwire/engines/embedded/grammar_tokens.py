"""Grammars as llama.cpp reads them best: the markers of a call as the tokens they are.

Promise: the language stays the same text; only its markers are no longer spelled letter by letter, which a model that
was trained on the tokens would read as something else on its next turn.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["with_tokens"]

# Markers stand in the rules for whole calls; arguments, which are the client's, are in others.
_RULES = ("root ", "call-", "calls-")
_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')


def with_tokens(grammar: str, special_tokens: Mapping[str, int]) -> str:
    """`grammar` with the special tokens in its markers named by id. Linear in the grammar."""
    texts = sorted((text for text in special_tokens if text and '"' not in text and "\\" not in text), key=len)
    if not texts:
        return grammar
    marker = re.compile("(" + "|".join(map(re.escape, reversed(texts))) + ")")

    def spelled(found: re.Match[str]) -> str:
        parts = marker.split(found[1])
        if len(parts) == 1:
            return found[0]
        # `split` gives text and markers in turn.
        return " ".join(
            f"<[{special_tokens[part]}]>" if number % 2 else f'"{part}"'
            for number, part in enumerate(parts)
            if number % 2 or part
        )

    return "\n".join(_LITERAL.sub(spelled, line) if line.startswith(_RULES) else line for line in grammar.split("\n"))
