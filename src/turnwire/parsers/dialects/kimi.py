"""Kimi K2 to K2.7: special tokens around `functions.name:index` and JSON; and the old Kimi's thoughts."""

from __future__ import annotations

from turnwire.parsers.codecs.named import Named
from turnwire.parsers.dialect import Dialect, Reasoning

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

DIALECTS = (
    Dialect(
        name="kimi_k2",
        reasoning=Reasoning(mentions=False),
        calls=(KIMI_K2,),
        ends=("<|im_end|>", "[EOS]"),
        aliases=("kimik2", "kimi_k2_thinking"),
    ),
    Dialect(
        name="kimi_k2_5",
        reasoning=Reasoning(by_default=True, mentions=False),
        calls=(KIMI_K2,),
        ends=("<|im_end|>", "[EOS]"),
        aliases=("kimi_k25", "kimi_k2_6", "kimi_k2_7"),
        reasoning_aliases=("kimi_thinking",),
    ),
    Dialect(
        name="kimi_vl",
        reasoning=Reasoning(("◁think▷",), ("◁/think▷",)),
        aliases=("kimi",),
        reasoning_aliases=("kimi_unicode",),
    ),
)
