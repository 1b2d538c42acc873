"""MiniMax M2 to M2.7: `<invoke>` and `<parameter>` tags in a `<minimax:tool_call>` block.

Promise: a thought that the prompt opened is a thought, or text where clients expect it so.
"""

from __future__ import annotations

from turnwire.parsers.codecs.tagged import Headers, Tagged
from turnwire.parsers.dialect import Dialect, Reasoning, Signature
from turnwire.parsers.writing import ArgumentForm, CallForm

__all__ = ["DIALECTS"]

MINIMAX_M2 = Tagged(
    sections=(("<minimax:tool_call>", "</minimax:tool_call>"),),
    call_open=("<invoke",),
    call_close=("</invoke>",),
    param_open=("<parameter",),
    param_close=("</parameter>",),
    headers=Headers(name_attribute="name", key_attribute="name"),
)

FORM = CallForm(
    section=("<minimax:tool_call>\n", "</minimax:tool_call>"),
    head='<invoke name="{name}">\n',
    arguments=ArgumentForm('<parameter name="{key}">', "</parameter>\n"),
    tail="</invoke>\n",
)
TURNS = ("]~b]", "[e~[")

DIALECTS = (
    Dialect(
        name="minimax_m2",
        reasoning=Reasoning(by_default=True),
        calls=(MINIMAX_M2,),
        ends=("[e~[",),
        turns=TURNS,
        aliases=("minimax_m2_1", "minimax_m2_5", "minimax_m2_7"),
        writes=FORM,
        known_by=(Signature(("<minimax:tool_call>",)),),
        ids=("minimax-m2",),
        reasoning_aliases=("minimax",),
    ),
    # Its clients expect the thought in the text, with the opener that the prompt held.
    Dialect(
        name="minimax_m2_append_think",
        calls=(MINIMAX_M2,),
        ends=("[e~[",),
        turns=TURNS,
        prefix="<think>",
        writes=FORM,
        aliases=("minimax_append_think", "append_think"),
    ),
)
