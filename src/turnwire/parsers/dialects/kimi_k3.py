"""Kimi K3 (XTML): thought, response and tools as elements between special tokens."""

from __future__ import annotations

from turnwire.parsers.codecs.xtml import Xtml
from turnwire.parsers.dialect import Dialect, Reasoning

__all__ = ["DIALECTS"]

DIALECTS = (
    Dialect(
        name="kimi_k3",
        reasoning=Reasoning(("<|open|>think<|sep|>",), ("<|close|>think<|sep|>",), by_default=True),
        router=Xtml(),
        aliases=("kimik3",),
    ),
)
