"""MiniMax M3: every tag of a call after a namespace token, objects and arrays as nested tags.

Promise: objects and arrays come back as nested as they were written.
"""

from __future__ import annotations

from turnwire.parsers.codecs.nested import Nested
from turnwire.parsers.dialect import Dialect, Reasoning, Signature
from turnwire.parsers.writing import ArgumentForm, CallForm

__all__ = ["DIALECTS"]

MARK = "]<]minimax[>["

DIALECTS = (
    Dialect(
        name="minimax_m3",
        reasoning=Reasoning(("<mm:think>",), ("</mm:think>",)),
        calls=(Nested(MARK),),
        ends=("[e~[",),
        turns=("]~b]", "[e~["),
        aliases=("minimax_m3_nom",),
        writes=CallForm(
            section=(f"{MARK}<tool_call>\n", f"{MARK}</tool_call>"),
            head=f'{MARK}<invoke name="{{name}}">',
            arguments=ArgumentForm(f"{MARK}<{{key}}>", f"{MARK}</{{key}}>"),
            tail=f"{MARK}</invoke>\n",
        ),
        known_by=(Signature((MARK,)),),
        ids=("minimax-m3",),
        reasoning_aliases=("mm_think",),
    ),
)
