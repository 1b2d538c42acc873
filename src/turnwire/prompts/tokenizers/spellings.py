"""How tokens are spelled: which added tokens are control tokens, and one expression that finds any of them in a text.

Promise: a control token is one that the tokenizer's file calls special, or an added one that is spelled like markup of
its own (`<think>`, `[TOOL_CALLS]`). Runs of blanks, words and HTML tags that a vocabulary lists as added tokens are
ordinary text to their model and stay it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

__all__ = ["is_control", "longest_of"]

_MARKUP = re.compile(r"[<>\[\]{}|｜]")
_HTML = re.compile(
    r"</?(?:a|b|blockquote|br|caption|code|div|em|h[1-6]|hr|i|img|li|ol|p|pre|s|span|strong|sub|sup|table|tbody|td|tfoot"
    r"|th|thead|tr|u|ul)>"
)


def is_control(text: str, special: bool) -> bool:
    """Whether an added token spelled `text` is one that only the template and the model may write."""
    if not text.strip():
        return False
    return special or (_MARKUP.search(text) is not None and _HTML.fullmatch(text) is None)


def longest_of(texts: Iterable[str]) -> re.Pattern[str]:
    """An expression that finds the leftmost, longest of the texts; a tree, because there may be thousands of them."""
    root: dict[str, Any] = {}
    for text in texts:
        node = root
        for char in text:
            node = node.setdefault(char, {})
        node[""] = {}

    def spell(node: dict[str, Any]) -> str:
        ends = "" in node
        branches = [re.escape(char) + spell(below) for char, below in node.items() if char]
        if not branches:
            return ""
        if len(branches) == 1 and not ends:
            return branches[0]
        return "(?:" + "|".join(branches) + ")" + ("?" if ends else "")

    return re.compile("(" + spell(root) + ")")
