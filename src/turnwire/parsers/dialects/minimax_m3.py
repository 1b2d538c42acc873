"""MiniMax M3: every tag of a call behind a namespace token, objects and arrays as nested tags."""

from __future__ import annotations

from turnwire.parsers.codecs.nested import Nested
from turnwire.parsers.dialect import Dialect, Reasoning

__all__ = ["DIALECTS"]

DIALECTS = (
    Dialect(
        name="minimax_m3",
        reasoning=Reasoning(("<mm:think>",), ("</mm:think>",)),
        calls=(Nested("]<]minimax[>["),),
        ends=("[e~[",),
        aliases=("minimax_m3_nom",),
        reasoning_aliases=("mm_think",),
    ),
)
