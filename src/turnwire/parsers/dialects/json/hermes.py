"""Hermes and Qwen: a JSON object in `<tool_call>` tags, and the families that changed only the tags.

Promise: one envelope reads them all; a family differs only where its models do.
"""

from __future__ import annotations

from turnwire.parsers.codecs.envelope import Doubts, Envelope
from turnwire.parsers.dialect import Dialect, Reasoning, Sign, Signature
from turnwire.parsers.writing import CallForm, json_object

__all__ = ["DIALECTS", "FENCED", "HERMES"]

HERMES = Envelope(wrappers=(("<tool_call>", "</tool_call>"),))
FENCED = Envelope(
    wrappers=(
        ("```json", "```"),
        ("```tool_call", "```"),
        ("```", "```"),
        ("<tools>", "</tools>"),
    ),
    bare=(Sign("{", where="line", rescue=True),),
    doubts=Doubts(needs_arguments=True, must_fit=True),
)

FORM = json_object("<tool_call>\n", "\n</tool_call>")
# Granite 4, Nemotron's and Kimi's chat markers, and Ling's: templates of models that call as Hermes does.
TURNS = (
    "<|start_of_role|>", "<|end_of_role|>", "<SPECIAL_11>", "<SPECIAL_12>", "<|im_user|>", "<|im_assistant|>",
    "<|im_system|>", "<|im_middle|>", "<role>", "</role>", "[|assistant|]", "[|user|]", "[|system|]",
)  # fmt: skip

IDS = (
    "hermes",
    "openhermes",
    "nous-hermes",
    "deephermes",
    "qwen-1.5",
    "qwen-2",
    "qwen-2.5",
    "qwq",
    "granite-4",
    "smollm-3",
    "bielik",
    "reka",
    "mimo-vl",
    "mimo-7b",
    "exaone-4",
    "ling-1t",
    "ring-1t",
    "ling-*2.0",
    "ring-*2.0",
    "ling-2",
    "ring-2",
    "jan-nano",
    "jan-v1",
    "minicpm-v-4.5",
    "cogito",
)  # fmt: skip

DIALECTS = (
    Dialect(
        name="hermes",
        reasoning=Reasoning(),
        calls=(HERMES,),
        turns=TURNS,
        aliases=("qwen25", "qwen", "qwen2_5", "granite4", "bielik", "reka_edge", "reka", "mimo_vl", "smollm3", "qwq"),
        writes=FORM,
        known_by=(
            Signature(("<tool_call>", '"name"'), ("<function=",), weight="shared"),
            Signature(("<tool_call>", "tool_call.name"), ("<function=",), weight="shared"),
        ),
        ids=IDS,
    ),
    Dialect(
        name="qwen3",
        reasoning=Reasoning(),
        calls=(HERMES,),
        aliases=("qwen3_json",),
        writes=FORM,
        ids=("qwen-3",),
    ),
    Dialect(
        name="qwen3_thinking",
        reasoning=Reasoning(by_default=True),
        calls=(HERMES,),
        writes=FORM,
        ids=("qwen-3*-thinking",),
    ),
    Dialect(
        name="qwen2_5_coder",
        reasoning=Reasoning(),
        calls=(HERMES, FENCED),
        aliases=("hermes_fenced",),
        writes=FORM,
        ids=("qwen-2.5-coder",),
    ),
    Dialect(name="trinity", reasoning=Reasoning(calls="pause"), calls=(HERMES,), writes=FORM, ids=("trinity",)),
    Dialect(
        name="longcat",
        reasoning=Reasoning(("<longcat_think>", "<think>"), ("</longcat_think>", "</think>")),
        calls=(Envelope(wrappers=(("<longcat_tool_call>", "</longcat_tool_call>"),)),),
        aliases=("longcat_flash",),
        writes=json_object("<longcat_tool_call>\n", "\n</longcat_tool_call>"),
        known_by=(Signature(("<longcat_tool_call>",)),),
        ids=("longcat",),
    ),
    Dialect(
        name="ernie45",
        reasoning=Reasoning(by_default=True),
        calls=(HERMES,),
        wrappers=("<response>", "</response>"),
        aliases=("ernie4_5", "ernie"),
        writes=FORM,
        known_by=(Signature(("<tool_call>", "<response>", "</response>"), weight="shared"),),
        ids=("ernie-4.5", "ernie"),
    ),
    Dialect(
        name="internlm2",
        reasoning=Reasoning(),
        calls=(
            Envelope(
                wrappers=(
                    ("<|action_start|><|plugin|>", "<|action_end|>"),
                    ("<|action_start|> <|plugin|>", "<|action_end|>"),
                )
            ),
        ),
        aliases=("internlm", "interns1", "intern_s1", "internlm2_5"),
        writes=json_object("<|action_start|><|plugin|>\n", "\n<|action_end|>", arguments="parameters"),
        known_by=(Signature(("<|action_start|>",)),),
        ids=("internlm", "intern-s1"),
    ),
    Dialect(
        name="minimax_m1",
        reasoning=Reasoning(),
        calls=(Envelope(wrappers=(("<tool_calls>", "</tool_calls>"),)),),
        writes=CallForm(
            section=("<tool_calls>\n", "</tool_calls>"), head='{{"name": "{name}", "arguments": ', tail="}}\n"
        ),
        known_by=(Signature(("<tool_calls>", "<beginning_of_sentence>")),),
        ids=("minimax-m1",),
    ),
)
