"""Families that write calls as JSON lists behind a marker, or as plain JSON."""

from __future__ import annotations

from turnwire.parsers.codecs.envelope import Envelope
from turnwire.parsers.dialect import Dialect, Reasoning, Sign

__all__ = ["DIALECTS"]

BARE = (Sign("{"), Sign("["))

DIALECTS = (
    Dialect(
        name="nemotron_deci",
        reasoning=Reasoning(),
        calls=(Envelope(wrappers=(("<TOOLCALL>", "</TOOLCALL>"),)),),
        aliases=("nemotron_json", "nemotron_nano_v2", "llama_nemotron"),
    ),
    Dialect(
        name="jamba",
        reasoning=Reasoning(),
        calls=(Envelope(wrappers=(("<tool_calls>", "</tool_calls>"),)),),
    ),
    Dialect(
        name="hunyuan_a13b",
        reasoning=Reasoning(calls="ignore"),
        calls=(Envelope(wrappers=(("<tool_calls>", "</tool_calls>"),)),),
        wrappers=("<answer>", "</answer>", "助手："),
        aliases=("hunyuan_a13",),
    ),
    Dialect(
        name="granite",
        reasoning=Reasoning(
            ("Here is my thought process:", "Here's my thought process:", "<think>"),
            ("Here is my response:", "Here's my response:", "</think>"),
            once=True,
        ),
        calls=(Envelope(wrappers=(("<|tool_call|>", ""), ("<tool_call>", "</tool_call>"))),),
        wrappers=("<response>", "</response>"),
        aliases=("granite3", "granite3_3"),
        reasoning_aliases=("granite_prose",),
    ),
    Dialect(name="granite_20b_fc", calls=(Envelope(wrappers=(("<function_call>", ""),)),)),
    Dialect(
        name="phi4_mini",
        calls=(Envelope(wrappers=(("functools", ""),)),),
        aliases=("phi4_mini_json", "phi4", "phi4_functools", "firefunction_v2", "firefunction"),
    ),
    Dialect(
        name="llama3_json",
        calls=(Envelope(wrappers=(("<|python_tag|>", ""),), bare=BARE, needs_arguments=True),),
        ends=("<|eom_id|>", "<|eot_id|>", "<|end_of_text|>"),
        aliases=("llama3", "llama4_json", "llama", "llama3_1", "llama3_2"),
    ),
    Dialect(
        name="xlam",
        reasoning=Reasoning(),
        calls=(
            Envelope(wrappers=(("[TOOL_CALLS]", ""), ("<tool_call>", "</tool_call>")), bare=BARE, needs_arguments=True),
            Envelope(wrappers=(("```json", "```"), ("```", "```")), needs_arguments=True, proves=False),
        ),
    ),
    # It writes the list as Python does; the marker is usually lost on the way.
    Dialect(
        name="sarashina",
        calls=(Envelope(wrappers=(("<|tool_calls|>", ""),), bare=(Sign("["),), needs_arguments=True),),
        ends=("</s>",),
    ),
    Dialect(name="plain_json", calls=(Envelope(bare=BARE),), aliases=("json",)),
)
