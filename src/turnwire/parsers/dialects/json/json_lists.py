"""Families that write calls as JSON lists after a marker, or as plain JSON.

Promise: plain JSON is a call only where it names a tool and has arguments.
"""

from __future__ import annotations

from turnwire.parsers.codecs.envelope import Doubts, Envelope
from turnwire.parsers.dialect import Dialect, Reasoning, Sign, Signature
from turnwire.parsers.writing import json_list, json_object

__all__ = ["DIALECTS"]

BARE = (Sign("{"), Sign("["))

DIALECTS = (
    Dialect(
        name="nemotron_deci",
        reasoning=Reasoning(),
        calls=(Envelope(wrappers=(("<TOOLCALL>", "</TOOLCALL>"),)),),
        turns=("<SPECIAL_11>", "<SPECIAL_12>"),
        aliases=("nemotron_json", "nemotron_nano_v2", "llama_nemotron"),
        writes=json_list("<TOOLCALL>[", "]</TOOLCALL>"),
        known_by=(Signature(("<TOOLCALL>",)),),
        ids=("nemotron-nano*v2", "nemotron*ultra", "nemotron*super", "llama-3*nemotron", "llama*nemotron"),
    ),
    Dialect(
        name="jamba",
        reasoning=Reasoning(),
        calls=(Envelope(wrappers=(("<tool_calls>", "</tool_calls>"),)),),
        turns=("<|bom|>", "<|eom|>"),
        writes=json_list("<tool_calls>[\n", "\n]</tool_calls>", between=",\n"),
        known_by=(Signature(("<tool_calls>",), weight="shared"),),
        ids=("jamba", "ai21-jamba"),
    ),
    Dialect(
        name="hunyuan_a13b",
        reasoning=Reasoning(calls="ignore"),
        calls=(Envelope(wrappers=(("<tool_calls>", "</tool_calls>"),)),),
        wrappers=("<answer>", "</answer>", "助手："),
        turns=("<|extra_0|>", "<|extra_4|>", "<|eos|>", "<｜hy_User｜>", "<｜hy_Assistant｜>"),
        aliases=("hunyuan_a13",),
        writes=json_list("<tool_calls>[", "]</tool_calls>"),
        known_by=(
            Signature(("<tool_calls>", "<answer>")),
            Signature(("<tool_calls>", "<|extra_0|>")),
            Signature(("<tool_calls>", "助手")),
        ),
        ids=("hunyuan-a13b", "hunyuan[0-9]"),
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
        turns=("<|start_of_role|>", "<|end_of_role|>"),
        aliases=("granite3", "granite3_3"),
        writes=json_list("<|tool_call|>[", "]"),
        known_by=(Signature(("<|tool_call|>",)),),
        ids=("granite-3",),
        reasoning_aliases=("granite_prose",),
    ),
    Dialect(
        name="granite_20b_fc",
        calls=(Envelope(wrappers=(("<function_call>", ""),)),),
        writes=json_object("<function_call> ", "", between=" "),
        known_by=(Signature(("<function_call>",)),),
        ids=("granite-20b-function", "granite-20b-fc"),
    ),
    Dialect(
        name="phi4_mini",
        calls=(Envelope(wrappers=(("functools", ""),)),),
        aliases=("phi4_mini_json", "phi4", "phi4_functools", "firefunction_v2", "firefunction"),
        writes=json_list("functools[", "]"),
        known_by=(Signature(("functools",)),),
        ids=("phi-4-mini", "phi-4-multimodal", "firefunction", "llama-3-firefunction"),
    ),
    Dialect(
        name="llama3_json",
        calls=(Envelope(wrappers=(("<|python_tag|>", ""),), bare=BARE, doubts=Doubts(needs_arguments=True)),),
        ends=("<|eom_id|>", "<|eot_id|>", "<|end_of_text|>"),
        aliases=("llama3", "llama4_json", "llama", "llama3_1", "llama3_2"),
        writes=json_object("", "", arguments="parameters", between="; "),
        known_by=(
            Signature(("<|python_tag|>",), weight="base"),
            Signature(('"parameters": ', '{"name": '), weight="base"),
        ),
        ids=("llama-3",),
    ),
    Dialect(
        name="xlam",
        reasoning=Reasoning(),
        calls=(
            Envelope(
                wrappers=(("[TOOL_CALLS]", ""), ("<tool_call>", "</tool_call>")),
                bare=BARE,
                doubts=Doubts(needs_arguments=True),
            ),
            Envelope(wrappers=(("```json", "```"), ("```", "```")), doubts=Doubts(needs_arguments=True, proves=False)),
        ),
        writes=json_list("[", "]"),
        known_by=(Signature(('[{"name": "tool_call_name", "arguments":',)),),
        ids=("xlam", "llama-xlam"),
    ),
    # It writes the list as Python does; the marker is usually lost on the way.
    Dialect(
        name="sarashina",
        calls=(Envelope(wrappers=(("<|tool_calls|>", ""),), bare=(Sign("["),), doubts=Doubts(needs_arguments=True)),),
        ends=("</s>",),
        writes=json_list("<|tool_calls|>[", "]"),
        known_by=(Signature(("<|tool_calls|>",)),),
        ids=("sarashina",),
    ),
    Dialect(name="plain_json", calls=(Envelope(bare=BARE),), aliases=("json",), writes=json_list("[", "]")),
)
