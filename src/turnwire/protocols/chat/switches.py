"""The words with which a text switches thinking: `/no_think` and `/think`, as Qwen and Nemotron models read them.

Promise: linear in the text, and fast where it holds no such word.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

__all__ = ["Switch", "switch_in"]

Switch: TypeAlias = Literal["on", "off", ""]
"""What a text says of thinking; empty where it says nothing."""

# The words between blanks.
_WORDS = re.compile(r"(?<!\S)/(?:no_)?think(?!\S)")


def switch_in(text: str) -> Switch:
    """What a text says of thinking."""
    # A search for words is fast, an expression over a long prompt is not.
    if "/think" not in text and "/no_think" not in text:
        return ""
    words = {found[0] for found in _WORDS.finditer(text)}
    return "" if not words else "off" if "/no_think" in words else "on"
