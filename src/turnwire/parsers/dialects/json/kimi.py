"""Kimi K2 to K2.7: special tokens around `functions.name:index` and JSON; and the old Kimi's thoughts.

Promise: a call keeps the id that the model gave it.
"""

from __future__ import annotations

from turnwire.parsers.codecs.named import Named
from turnwire.parsers.dialect import Dialect, Reasoning, Signature
from turnwire.parsers.writing import CallForm

__all__ = ["DIALECTS"]

KIMI_K2 = Named(
    header=r"\s*(?P<id>(?:functions\.)?(?P<name>[^\s:<>{}|]+)(?::\d*)?)\s*(?:<\|tool_call_argument_begin\|>)?(?P<rest>\s*)",
    sections=(
        ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        ("<|tool_call_section_begin|>", "<|tool_call_section_end|>"),
    ),
    call_open=("<|tool_call_begin|>",),
    call_close=("<|tool_call_end|>",),
    separators=("<|tool_call_argument_begin|>",),
    noise=True,
    infer=True,
)

FORM = CallForm(
    section=("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    head="<|tool_call_begin|>functions.{name}:{index}<|tool_call_argument_begin|>",
    tail="<|tool_call_end|>",
)
TURNS = ("<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>")

DIALECTS = (
    Dialect(
        name="kimi_k2",
        reasoning=Reasoning(mentions=False),
        calls=(KIMI_K2,),
        ends=("<|im_end|>", "[EOS]"),
        turns=TURNS,
        aliases=("kimik2", "kimi_k2_thinking"),
        writes=FORM,
        known_by=(Signature(("<|tool_calls_section_begin|>",), weight="shared"),),
        ids=("kimi-k2", "kimi-linear"),
    ),
    Dialect(
        name="kimi_k2_5",
        reasoning=Reasoning(by_default=True, mentions=False),
        calls=(KIMI_K2,),
        ends=("<|im_end|>", "[EOS]"),
        turns=TURNS,
        aliases=("kimi_k25", "kimi_k2_6", "kimi_k2_7"),
        writes=FORM,
        ids=("kimi-k2.[5-9]",),
        reasoning_aliases=("kimi_thinking",),
    ),
    Dialect(
        name="kimi_vl",
        reasoning=Reasoning(("◁think▷",), ("◁/think▷",)),
        turns=TURNS,
        aliases=("kimi",),
        known_by=(Signature(("◁think▷",), weight="thought"),),
        ids=("kimi-vl",),
        reasoning_aliases=("kimi_unicode",),
    ),
)
